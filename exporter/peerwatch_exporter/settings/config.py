"""What can be set on a node: every setting declared once, with its limits and its meaning.

The YAML file, the error texts and the documentation all follow from the classes below. A file
with mistakes is refused as a whole, with all of its mistakes at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from peerwatch_common.check_results.spool import DEFAULT_FOLDER
from peerwatch_exporter.catalog.sampled_counters import SampledCounter

# Pydantic looks the name up when it builds the class.
from peerwatch_exporter.catalog.xid_codes import Severity
from peerwatch_exporter.settings.dcgm import DcgmConfig
from peerwatch_exporter.settings.jobs import (
    CollectivesConfig,
    HeartbeatConfig,
    JobsConfig,
    SpansConfig,
)
from peerwatch_exporter.settings.logs import LogsConfig
from peerwatch_exporter.settings.node_config import NodeConfigConfig
from peerwatch_exporter.settings.pings import PingsConfig
from peerwatch_exporter.settings.section import Section


class ListenConfig(Section):
    """Where the exporter listens."""

    address: str = Field(
        default="0.0.0.0",  # noqa: S104 - Prometheus scrapes from another machine
        min_length=1,
        description="Address to listen on; :: serves IPv6 and IPv4.",
    )
    port: int = Field(default=9400, ge=0, le=65535, description="TCP port; 0 chooses a free one.")


class WebConfig(Section):
    """How the endpoints are served."""

    config_file: Path | None = Field(
        default=None,
        strict=False,
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


class ScopeConfig(Section):
    """What counts as this node."""

    kind: Literal["host", "processes"] = Field(
        default="host",
        description="host: the whole machine. processes: only the processes whose environment "
        "contains all of scope.environment, for several nodes on one machine.",
    )
    environment: dict[str, str] = Field(
        default={}, description="Variables (name: value) that identify the node's processes."
    )
    cpus: float | None = Field(
        default=None, gt=0, le=65536, description="CPUs of the node; unset: those of the machine."
    )
    memory_bytes: int | None = Field(
        default=None, gt=0, description="Memory of the node; unset: that of the machine."
    )

    @model_validator(mode="after")
    def _processes_need_a_variable(self) -> ScopeConfig:
        if self.kind == "processes" and not self.environment:
            raise ValueError(
                "kind 'processes' needs at least one variable in environment, "
                "for example {PEERWATCH_NODE: node-0}"
            )
        return self


def _is_directory(path: Path) -> Path:
    if not path.is_dir():
        raise ValueError(f"{str(path)!r} is no directory")
    return path


_Directory = Annotated[Path, Field(strict=False), AfterValidator(_is_directory)]


class PathsConfig(Section):
    """Roots of the host's files, for containers that see them elsewhere."""

    procfs: _Directory = Field(default=Path("/proc"), description="The node's /proc.")
    sysfs: _Directory = Field(default=Path("/sys"), description="The node's /sys.")
    kmsg: Path = Field(default=Path("/dev/kmsg"), strict=False, description="The kernel log.")
    rootfs: _Directory = Field(
        default=Path("/"),
        description="The node's /, where filesystems are asked for their space. With procfs "
        "elsewhere and this unset they are not.",
    )
    system_bus: Path = Field(
        default=Path("/run/dbus/system_bus_socket"),
        strict=False,
        description="Socket of the system bus, over which systemd is asked for failed units.",
    )
    checks: Path = Field(
        default=DEFAULT_FOLDER,
        strict=False,
        description="Where peerwatch-check leaves its results; may be missing.",
    )


class CollectorsConfig(Section):
    """Which collectors run."""

    enabled: list[str] | None = Field(
        default=None, description="Run exactly these collectors; unset: the default ones."
    )
    disabled: list[str] = Field(default=[], description="Collectors that never run.")
    max_series: int = Field(
        default=5000,
        ge=1,
        le=100000,
        description="Maximum number of series per collector; further ones are dropped and "
        "counted in exporter_collector_dropped_series.",
    )


class FastConfig(Section):
    """The endpoint /metrics/fast."""

    history_seconds: int = Field(
        default=0,
        ge=0,
        le=60,
        description="0: the newest values, for a scrape every second. More: every second's "
        "values with their timestamps, so that a scrape every 10 s transfers them all; set it "
        "to twice the scrape interval.",
    )
    fine_step_milliseconds: int | None = Field(
        default=None,
        ge=10,
        le=1000,
        description="With history and the sampler on: also the node's RDMA bytes, pause frames, "
        "congestion marks and notifications at this step, for example 100; unset: none.",
    )

    @model_validator(mode="after")
    def _fine_steps_need_history(self) -> FastConfig:
        if self.fine_step_milliseconds is not None and self.history_seconds == 0:
            raise ValueError(
                f"fine_step_milliseconds {self.fine_step_milliseconds} needs history_seconds above "
                "0, for example 20: samples within a second need times of their own"
            )
        return self


class NvlinkConfig(Section):
    """Detail of the NVLink metrics."""

    per_link: bool = Field(default=True, description="Publish state and errors per link.")
    fec: bool = Field(
        default=False,
        description="Also publish what forward error correction repaired, 16 series per link "
        "(Blackwell).",
    )


class GpuConfig(Section):
    """What is known of the node's GPUs beforehand."""

    expected_count: int | None = Field(
        default=None,
        ge=0,
        le=1024,
        description="Number of GPUs the node should have; unset: the most that "
        "driver or PCIe bus showed since startup.",
    )


class EthtoolConfig(Section):
    """Which network interfaces have their driver's statistics read."""

    interfaces: list[str] = Field(
        default=[],
        max_length=64,
        description="Names of further interfaces to read besides those of the RDMA ports.",
    )


class NicConfig(Section):
    """Which RDMA devices are read."""

    exclude: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        default=[],
        max_length=64,
        description="Patterns of RDMA devices that are never read, for example [mlx5_4, "
        "'mlx5_1*']: restricted functions of NVLink switches do not answer and fill the kernel "
        "log.",
    )


class SamplerConfig(Section):
    """Sampling of counters many times a second, by a process of its own."""

    interval_milliseconds: float | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Time between two samples; unset: the sampler is off.",
    )
    window_seconds: int = Field(
        default=15,
        ge=1,
        le=60,
        description="Time covered by maximum, 99th percentile and mean; ideally the scrape "
        "interval.",
    )
    history_seconds: float = Field(
        default=15, ge=1, le=600, description="How far back /burst can return individual samples."
    )
    line_rate_ratio: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Share of a port's speed above which a sample counts as at line rate.",
    )
    max_cpu_ratio: float = Field(
        default=0.05,
        ge=0.001,
        le=1,
        description="CPU time per second that sampling may use; above it, samples are taken less "
        "often.",
    )
    counters: list[SampledCounter] = Field(
        default=[
            "transmit_bytes",
            "receive_bytes",
            "cnp_sent",
            "cnp_handled",
            "ecn_marked_packets",
            "transmit_pause_frames",
            "receive_pause_frames",
        ],
        min_length=1,
        description="Counters to sample on every port; transmit_packets and receive_packets are "
        "available too.",
    )
    devices: list[str] = Field(
        default=[], max_length=128, description="RDMA devices to sample; empty: all."
    )

    @model_validator(mode="after")
    def _counters_stand_once(self) -> SamplerConfig:
        twice = {name for name in self.counters if self.counters.count(name) > 1}
        if twice:
            raise ValueError(f"sampler.counters names {', '.join(sorted(twice))} more than once")
        return self


class XidConfig(Section):
    """How serious XID errors are taken."""

    severity: dict[Annotated[int, Field(ge=1, le=9999)], Severity] = Field(
        default={},
        max_length=256,
        description="Classes of XID codes (1 to 9999) that differ from the built-in ones, for "
        "example {109: hardware}: hardware, degraded, watch, application or ignore. They also "
        "override what a log line says.",
    )


class ExporterConfig(Section):
    """All settings of one exporter, frozen once loaded."""

    listen: ListenConfig = Field(default=ListenConfig(), description="Where the exporter listens.")
    web: WebConfig = Field(default=WebConfig(), description="How the endpoints are served.")
    scope: ScopeConfig = Field(default=ScopeConfig(), description="What counts as this node.")
    paths: PathsConfig = Field(default=PathsConfig(), description="Roots of the host's files.")
    heartbeat: HeartbeatConfig = Field(
        default=HeartbeatConfig(), description="Heartbeat files of the ranks."
    )
    spans: SpansConfig = Field(default=SpansConfig(), description="Spans of the ranks' steps.")
    collectives: CollectivesConfig = Field(
        default=CollectivesConfig(), description="Collectives of the ranks."
    )
    jobs: JobsConfig = Field(default=JobsConfig(), description="How training jobs are found.")
    logs: LogsConfig = Field(default=LogsConfig(), description="Logs of jobs and of the kernel.")
    collectors: CollectorsConfig = Field(
        default=CollectorsConfig(), description="Which collectors run."
    )
    deadline_seconds: float = Field(
        default=0.8,
        gt=0,
        le=0.95,
        description="A collector slower than this is left out of the snapshot. Below 1 s, "
        "because collectors run once a second.",
    )
    mean_seconds: int = Field(
        default=5,
        ge=1,
        le=60,
        description="Utilisation, activity, power, clocks, TCP queues and round trips on /metrics "
        "are means over this time. At least the scrape interval, or healthy nodes seem to differ "
        "because each is sampled in another part of a training step.",
    )
    fast: FastConfig = Field(default=FastConfig(), description="The endpoint /metrics/fast.")
    nvlink: NvlinkConfig = Field(default=NvlinkConfig(), description="Detail of NVLink metrics.")
    xid: XidConfig = Field(default=XidConfig(), description="How serious XID errors are taken.")
    gpu: GpuConfig = Field(default=GpuConfig(), description="What is known of the GPUs.")
    dcgm: DcgmConfig = Field(default=DcgmConfig(), description="A DCGM host engine.")
    nic: NicConfig = Field(default=NicConfig(), description="Which RDMA devices are read.")
    ethtool: EthtoolConfig = Field(
        default=EthtoolConfig(), description="Interfaces with driver statistics."
    )
    node_config: NodeConfigConfig = Field(
        default=NodeConfigConfig(), description="What is published of how nodes are set up."
    )
    pings: PingsConfig = Field(default=PingsConfig(), description="Pings between nodes.")
    sampler: SamplerConfig = Field(
        default=SamplerConfig(), description="Sampling many times a second."
    )

    @model_validator(mode="after")
    def _fine_steps_need_the_sampler(self) -> ExporterConfig:
        step, interval = self.fast.fine_step_milliseconds, self.sampler.interval_milliseconds
        if step is not None and (interval is None or interval > step):
            raise ValueError(
                f"fast.fine_step_milliseconds {step} needs sampler.interval_milliseconds at or "
                f"below it, not {interval}"
            )
        return self
