"""The settings file of ``peerwatch-reliability``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, FilePath, model_validator

from peerwatch_common.settings.pod_names import check_naming
from peerwatch_common.settings.section import Section
from peerwatch_common.settings.servers import AskedServer, ServingConfig

_DAY = 86_400.0


class ListenConfig(Section):
    """Where metrics and the report are served."""

    address: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=9403, ge=0, le=65535, description="TCP port; 0 chooses a free one.")


class SlurmConfig(Section):
    """How Slurm is asked."""

    folder: Path = Field(default=Path("/usr/bin"), description="Where sacct and sacctmgr are.")
    configuration: FilePath | None = Field(
        default=None, description="Slurm's settings; unset: where its commands look for them."
    )
    timeout_seconds: float = Field(
        default=300.0, gt=0, le=3600, description="Longest run of one command."
    )
    gpus_per_node: int = Field(
        default=0, ge=0, le=64, description="GPUs of a node where Slurm accounts none; 0: none."
    )


class KubernetesConfig(Section):
    """What is read of kube-state-metrics' series, in the server below ``prometheus``."""

    selector: str = Field(
        default="",
        description="Label matchers of kube-state-metrics' series, such as "
        'job="kube-state-metrics"; empty: all.',
    )
    resources: tuple[str, ...] = Field(
        default=("nvidia.com/gpu", "amd.com/gpu"),
        min_length=1,
        max_length=32,
        description="A pod is read if it requests one of these resources; each unit is a GPU.",
    )
    job_id: Annotated[str, AfterValidator(check_naming)] = Field(
        default="job",
        min_length=1,
        description="How a pod's job is called; the same as the exporter's "
        "jobs.kubernetes_job_id, so that what they observe is found.",
    )
    ignored_owners: tuple[str, ...] = Field(
        default=("DaemonSet", "ReplicaSet"),
        max_length=32,
        description="Pods of these kinds of controllers are services, not jobs.",
    )


class PrometheusConfig(AskedServer):
    """The server that is asked for evidence."""

    timeout_seconds: float = Field(default=60.0, gt=0, le=600, description="Longest answer.")
    connections: int = Field(default=4, ge=1, le=32, description="Queries at a time.")
    selector: str = Field(
        default="",
        description='Label matchers of the cluster, such as cluster="c1"; empty: all series.',
    )


class AssumedConfig(Section):
    """What is taken for jobs of which nobody says or measures it; half and twice bound it."""

    checkpoint_seconds: float = Field(
        default=3600.0, gt=0, le=7 * _DAY, description="Time between two checkpoints."
    )
    write_seconds: float = Field(
        default=0.0,
        ge=0,
        le=_DAY,
        description="For how long writing a checkpoint halts a job; 0: it is written in the "
        "background, and then more checkpoints are always better.",
    )
    restart_seconds: float = Field(
        default=300.0,
        ge=0,
        le=_DAY,
        description="Time from the start of an attempt until it makes progress.",
    )


class LemonConfig(Section):
    """Which nodes are called lemons."""

    half_life_days: float = Field(
        default=14.0, gt=0, le=365, description="After so long a fault counts half."
    )
    history_days: float = Field(
        default=56.0,
        gt=0,
        le=732,
        description="How far back faults are asked for; with the half-life the older ones hardly "
        "count.",
    )
    merge_days: float = Field(
        default=1.0,
        ge=0,
        le=28,
        description="Faults that begin so soon after the last one ended are one episode.",
    )
    least_episodes: int = Field(
        default=2, ge=1, le=100, description="Faults within the window that make a lemon."
    )
    largest_share: float = Field(
        default=0.025, gt=0, le=1, description="Share of the fleet that is flagged at most."
    )
    probation_days: float = Field(
        default=7.0, ge=0, le=90, description="For so long a returned node is on probation."
    )


class ReliabilityConfig(Section):
    """All settings."""

    window_days: float = Field(
        default=28.0, gt=0, le=366, description="How far back the books reach."
    )
    interval_seconds: float = Field(
        default=300.0, ge=10, le=_DAY, description="How often they are made anew."
    )
    nodes: int = Field(
        default=0,
        ge=0,
        description="Nodes of the cluster; 0: those that were seen in jobs or events.",
    )
    ettr_target_ratio: float = Field(
        default=0.9, gt=0, lt=1, description="The ETTR below which an alert opens a ticket."
    )
    listen: ListenConfig = ListenConfig()
    web: ServingConfig = ServingConfig()
    scheduler: Literal["slurm", "kubernetes"] = Field(
        default="slurm", description="What runs the jobs, and so has their history."
    )
    slurm: SlurmConfig = SlurmConfig()
    kubernetes: KubernetesConfig = KubernetesConfig()
    prometheus: PrometheusConfig | None = Field(
        default=None, description="Asked for evidence; without it causes stay unknown."
    )
    assumed: AssumedConfig = AssumedConfig()
    lemons: LemonConfig = LemonConfig()

    @model_validator(mode="after")
    def _has_a_server(self) -> ReliabilityConfig:
        if self.scheduler == "kubernetes" and self.prometheus is None:
            raise ValueError(
                "scheduler kubernetes needs prometheus: kube-state-metrics' series are read there"
            )
        return self
