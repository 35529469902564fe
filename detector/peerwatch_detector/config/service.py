"""The settings of the running process: where it listens, how it shares its time and its jobs.

Part of ``DetectorConfig``.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator

from peerwatch_detector.config.detection import Section


class ListenConfig(Section):
    """Where the detector serves its web UI and its metrics."""

    address: str = Field(default="127.0.0.1", description="Address to bind.")
    port: int = Field(default=9401, ge=0, le=65535, description="TCP port; 0 takes a free one.")


class WebConfig(Section):
    """How the web UI and the metrics are served."""

    config_file: Path | None = Field(
        default=None,
        description="TLS and basic authentication, in the format of Prometheus' exporter-toolkit; "
        "unset: plain HTTP for everybody.",
    )
    max_connections: int = Field(
        default=64,
        ge=2,
        le=1024,
        description="Connections at once; a further one takes the place of one that idles, or is "
        "answered 503.",
    )


class SchedulingConfig(Section):
    """How one process shares its time among its training jobs."""

    reading_threads: int = Field(
        default=4,
        ge=1,
        le=64,
        description="Training jobs that are read at a time. Jobs that were slow to read lately "
        "hold at most half of them; with 1, a read that hangs delays all others.",
    )
    detection_threads: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Metrics of a training job that are evaluated at a time, in jobs of at least "
        "2,500 nodes, or GPUs if metrics are per GPU; what is found does not depend on it. Give "
        "more than 1 only if as many CPU cores are idle: on a busy host it costs more than it "
        "brings.",
    )


class ReplicasConfig(Section):
    """How several detectors share the training jobs."""

    enabled: bool = Field(
        default=False,
        description="Share the jobs with the other detectors of the group, found through "
        "Prometheus, which must scrape all of them. False evaluates every job.",
    )
    member: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="Name of this detector; no other of its group may have it. Default: the host's "
        "name, which in a StatefulSet ends in the ordinal.",
    )
    group: str = Field(
        default="default",
        min_length=1,
        max_length=253,
        description="Only detectors of one group share jobs; give detectors of other settings on "
        "the same Prometheus another one.",
    )
    replication: int = Field(
        default=1,
        ge=1,
        le=5,
        description="How many detectors evaluate the same job; rules and dashboards count their "
        "findings once.",
    )

    @field_validator("replication")
    @classmethod
    def _copies_need_replicas(cls, replication: int, info: ValidationInfo) -> int:
        if replication > 1 and info.data.get("enabled") is False:
            raise ValueError(
                f"{replication} detectors cannot evaluate the same job while enabled is false; set "
                "enabled to true"
            )
        return replication
