"""The only code that touches the host; every root and every clock is handed in.

An exception that leaves a source may carry ``error_class``, a short word for
``exporter_collector_error_info`` (for example ``nvml_gpu_is_lost``); without one the runner
makes the word from the exception's own class.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from peerwatch_common.web.facts import WebFacts
from peerwatch_exporter.sources.gpu.facts import GpuFacts
from peerwatch_exporter.sources.host.own_processes import OwnProcesses
from peerwatch_exporter.sources.host.processes import ProcessTable
from peerwatch_exporter.sources.jobs.heartbeat import HeartbeatFiles
from peerwatch_exporter.sources.jobs.process_jobs import ProcessJobs
from peerwatch_exporter.sources.nic.ethtool import EthtoolIoctl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources.nic.ethtool import EthtoolReader


@dataclass(frozen=True, slots=True)
class Paths:
    """Roots of the host's files."""

    procfs: Path
    sysfs: Path
    kmsg: Path


@dataclass(frozen=True)
class Sources:
    """Where collectors read from, and by which clocks.

    Parameters
    ----------
    paths
        Roots of the host's files.
    clock
        Unix time in seconds.
    monotonic
        Seconds that only rise, for durations.
    ethtool
        Statistics of the network drivers.
    gpus
        What the driver process last said about the GPUs.
    web
        What the web server says about itself.
    own_processes
        The exporter's own processes; whoever starts a child adds it here.
    process_jobs
        The job of each rank, as the jobs collector found it.
    heartbeats
        The heartbeat files, read once for all collectors.
    """

    paths: Paths
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    ethtool: EthtoolReader = field(default_factory=EthtoolIoctl)
    gpus: GpuFacts = field(default_factory=GpuFacts)
    web: WebFacts = field(default_factory=WebFacts)
    own_processes: OwnProcesses = field(default_factory=OwnProcesses)
    process_jobs: ProcessJobs = field(default_factory=ProcessJobs)
    heartbeats: HeartbeatFiles = field(default_factory=HeartbeatFiles)

    @cached_property
    def processes(self) -> ProcessTable:
        """The node's processes, listed once for all collectors of one scrape."""
        return ProcessTable(self.paths.procfs, monotonic=self.monotonic)


def real_sources(config: ExporterConfig) -> Sources:
    """Return the sources of the running node as configured."""
    paths = config.paths
    return Sources(Paths(procfs=paths.procfs, sysfs=paths.sysfs, kmsg=paths.kmsg))
