"""How training jobs and their ranks are found, and what is read of what they say themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from peerwatch_common.settings.pod_names import check_naming
from peerwatch_exporter.settings.section import Section


class HeartbeatConfig(Section):
    """Heartbeat files that ranks write about themselves."""

    directory: Path | None = Field(
        default=None,
        strict=False,
        description="Directory with one file rank-<rank>.json per rank; unset: heartbeats are "
        "not read.",
    )
    forget_after_seconds: float = Field(
        default=1800,
        ge=10,
        le=604800,
        description="How long the heartbeat file of a process that is gone still counts.",
    )
    stacks: bool = Field(
        default=False,
        description="Answer /stack?job_id=JOB&rank=N with the Python stacks of a rank, to clients "
        "that logged in (basic_auth_users in web.config_file).",
    )


class SpansConfig(Section):
    """Spans that ranks keep about their steps, in the directory of the heartbeats."""

    max_spans: int = Field(
        default=200_000,
        ge=1,
        le=10_000_000,
        description="How many spans one answer of /spans has at most; a span has about 50 bytes.",
    )


class CollectivesConfig(Section):
    """How the collectives of ranks are read."""

    interval_seconds: float = Field(
        default=2,
        ge=1,
        le=60,
        description="How often each rank's Flight Recorder is read; less often where its answer "
        "takes long.",
    )
    max_ranks: int = Field(
        default=64, ge=1, le=1024, description="Maximum number of ranks of this node."
    )
    max_groups: int = Field(
        default=32,
        ge=1,
        le=1024,
        description="Maximum number of process groups per rank: those used last.",
    )
    ras_address: Annotated[str, Field(pattern=r"^\S+:\d{1,5}$")] | None = Field(
        default=None,
        description="Address and port of NCCL's RAS service, usually localhost:28028; unset: it is "
        "not asked.",
    )
    ras_interval_seconds: float = Field(
        default=10,
        ge=2,
        le=300,
        description="How often RAS is asked; each request makes all processes of the job answer.",
    )
    inspector_directory: Path | None = Field(
        default=None,
        strict=False,
        description="Directory in which NCCL's Inspector writes its JSON files "
        "(NCCL_INSPECTOR_DUMP_DIR); unset: they are not read.",
    )


class JobsConfig(Section):
    """How the node's training jobs are found."""

    mapping_directory: Path | None = Field(
        default=None,
        strict=False,
        description="Directory in dcgm-exporter's format: files named by GPU index, one job id "
        "per line; the file 'node' lists jobs of the node as a whole.",
    )
    environment: bool = Field(
        default=True, description="Also take job ids from the environment of rank processes."
    )
    cgroups: bool = Field(
        default=True,
        description="Also take Slurm jobs and pods from the control groups of processes on GPUs.",
    )
    pod_resources_socket: Path | None = Field(
        default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        strict=False,
        description="The kubelet's pod-resources socket, read if it exists; null: never.",
    )
    kubernetes_job_id: Annotated[str, AfterValidator(check_naming)] = Field(
        default="job",
        min_length=1,
        description="How the job of a pod without any other job id is identified. job: "
        "namespace/job, where the job is the pod's name without what its operator added for "
        "role, index and replica. pod: namespace/pod. Otherwise a regular expression for the "
        "whole of namespace/pod, whose group (?P<job>...) is the job id.",
    )
