"""The settings of the running process: where it listens, how it shares its time and its jobs.

Part of ``DetectorConfig``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from peerwatch_common.settings.section import Section
from peerwatch_common.settings.servers import ServingConfig

# What is linked to is opened in a browser: no address may be a script.
_URL = r"^https?://[^\s\"'<>]+$"


class ListenConfig(Section):
    """Where the detector serves its web UI and its metrics."""

    address: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=9401, ge=0, le=65535, description="TCP port; 0 chooses a free one.")


class PicturesConfig(Section):
    """Pictures in notifications, at addresses that open without a password until they expire."""

    key_file: Path | None = Field(
        default=None,
        description="File with the key by which addresses are signed, at least 32 bytes, the same "
        "for all replicas. Unset: there are no such addresses.",
    )
    address: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s\"'<>?#]+$",
        max_length=500,
        description="How receivers of notifications reach this detector, such as "
        "https://peerwatch.example.com; needed with key_file.",
    )
    lifetime_seconds: float = Field(
        default=604800.0,
        ge=3600,
        le=31536000,
        description="Minimum time from a finding's begin to the expiry of its address; an "
        "address is valid for at most twice as long.",
    )

    @model_validator(mode="after")
    def _key_needs_an_address(self) -> Self:
        if self.key_file is not None and self.address is None:
            raise ValueError(
                "key_file is set and address is not: set it to the URL at which Slack or a reader "
                "of e-mail reaches this detector"
            )
        return self


class WebConfig(ServingConfig):
    """How the web UI and the metrics are served."""

    pictures: PicturesConfig = Field(default_factory=PicturesConfig)


class LinksConfig(Section):
    """Where a browser finds what the web UI links to; what is not set has no link."""

    grafana: str | None = Field(
        default=None, pattern=_URL, description="Base address of the Grafana with the dashboards."
    )
    prometheus: str | None = Field(
        default=None,
        pattern=_URL,
        description="Base address of Prometheus' own web UI, for the queries of an incident.",
    )
    responder: str | None = Field(
        default=None, pattern=_URL, description="Base address of peerwatch-responder's web UI."
    )
    reliability: str | None = Field(
        default=None, pattern=_URL, description="Base address of peerwatch-reliability's web UI."
    )
    runbooks: str = Field(
        default="https://github.com/peerwatch/peerwatch/blob/main/docs/runbooks",
        pattern=_URL,
        description="Folder of the runbooks, one NAME.md for each alert.",
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
        description="Time between two searches for the root of what is wrong with a job: one "
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
