"""The settings of the running process: where it listens, how it shares its time and its jobs.

Part of ``DetectorConfig``.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator

from peerwatch_detector.config.section import Section


class ListenConfig(Section):
    """Where the detector serves its web UI and its metrics."""

    address: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=9401, ge=0, le=65535, description="TCP port; 0 chooses a free one.")


class WebConfig(Section):
    """How the web UI and the metrics are served."""

    config_file: Path | None = Field(
        default=None,
        description="TLS and basic authentication, in the format of Prometheus' "
        "exporter-toolkit; unset: plain HTTP without a password.",
    )
    max_connections: int = Field(
        default=64,
        ge=2,
        le=1024,
        description="Maximum number of connections; one more replaces one that waits for "
        "its client, or is answered 503. Probes are always answered.",
    )


class SchedulingConfig(Section):
    """How one process shares its time among its training jobs."""

    reading_threads: int = Field(
        default=4,
        ge=1,
        le=64,
        description="Number of training jobs read at a time. Jobs that were slow to read "
        "recently use at most half of them; with 1, a read that hangs delays all others.",
    )
    detection_threads: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of metrics of a training job evaluated at a time, in jobs of at "
        "least 2,500 nodes, or GPUs if metrics are per GPU; findings do not depend on it. More "
        "than 1 only pays off with as many idle CPU cores: on a busy host it costs more than it "
        "brings.",
    )


class DiagnosisConfig(Section):
    """How a job's own evidence is asked for: its ranks' processes, collectives and spans."""

    enabled: bool = Field(
        default=True,
        description="Ask for what a job says itself, and publish it as diagnoses and findings. "
        "Independent of how nodes are compared.",
    )
    interval_seconds: float = Field(
        default=5.0,
        ge=1,
        le=60,
        description="Time between two readings of a job's evidence.",
    )
    timeout_seconds: float = Field(
        default=5.0,
        gt=0,
        le=60,
        description="Time limit for all queries of one reading; a reading that fails leaves "
        "what stood, and never delays a cycle.",
    )
    reading_threads: int = Field(
        default=2,
        ge=1,
        le=32,
        description="Number of training jobs whose evidence is read at a time.",
    )
    config_interval_seconds: float = Field(
        default=300.0,
        ge=15,
        le=3600,
        description="Time between two comparisons of how the nodes of a job are set up.",
    )
    config_timeout_seconds: float = Field(
        default=30.0,
        gt=0,
        le=120,
        description="Time limit for the queries of each step of such a comparison.",
    )
    root_interval_seconds: float = Field(
        default=15.0,
        ge=5,
        le=300,
        description="Time between two questions for the root of what is wrong with a job: one "
        "query while nothing stands against it, some twenty about its nodes otherwise.",
    )
    root_timeout_seconds: float = Field(
        default=5.0,
        gt=0,
        le=60,
        description="Time limit for each of these queries; the root is found without those that "
        "were not answered, and says so.",
    )


class ReplicasConfig(Section):
    """How several detectors share the training jobs."""

    enabled: bool = Field(
        default=False,
        description="Share the jobs with the other detectors of the group, discovered through "
        "Prometheus, which must scrape all of them. False evaluates every job.",
    )
    member: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="Name of this detector, unique in its group. Default: the host name, which "
        "in a StatefulSet ends in the ordinal.",
    )
    group: str = Field(
        default="default",
        min_length=1,
        max_length=253,
        description="Only detectors of one group share jobs; detectors with other settings on "
        "the same Prometheus need another group.",
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
