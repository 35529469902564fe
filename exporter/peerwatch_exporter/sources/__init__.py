"""The only code that touches the host; every root and every clock is handed in.

An exception that leaves a source may carry ``error_class``, a short word for
``exporter_collector_error_info`` (for example ``nvml_gpu_is_lost``); without one the runner
makes the word from the exception's own class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from peerwatch_common.settings.reload import ReloadFacts
from peerwatch_common.web.facts import WebFacts
from peerwatch_exporter.sources.gpu.facts import GpuFacts
from peerwatch_exporter.sources.host.access import HostAccess, Paths
from peerwatch_exporter.sources.host.queries import HostQueries, real_queries
from peerwatch_exporter.sources.jobs.known_ranks import KnownRanks
from peerwatch_exporter.sources.jobs.process_jobs import ProcessJobs
from peerwatch_exporter.sources.nic.ethtool import EthtoolIoctl

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources.jobs.heartbeat import HeartbeatFiles
    from peerwatch_exporter.sources.nic.ethtool import EthtoolReader


@dataclass(frozen=True)
class Sources(HostAccess):
    """Where collectors read from: the host, and what is shared by several collectors.

    Parameters
    ----------
    paths, clock, monotonic, own_processes
        As for ``HostAccess``.
    ethtool
        Statistics of the network drivers.
    dcb
        Returns how a network interface keeps classes of traffic apart; None: it cannot be asked.
    gpus
        What the driver process last said about the GPUs.
    web
        Counters and states of the web server.
    reloads
        How the settings were read last.
    process_jobs
        The job of each rank, as the jobs collector found it.
    known_ranks
        The node's ranks, as the ranks collector found them.
    queries
        What is asked of the running system: nothing, unless it is the real one.
    """

    ethtool: EthtoolReader = field(default_factory=EthtoolIoctl)
    dcb: Callable[[str], dict[str, str]] | None = None
    gpus: GpuFacts = field(default_factory=GpuFacts)
    web: WebFacts = field(default_factory=WebFacts)
    reloads: ReloadFacts = field(default_factory=ReloadFacts)
    process_jobs: ProcessJobs = field(default_factory=ProcessJobs)
    known_ranks: KnownRanks = field(default_factory=KnownRanks)
    queries: HostQueries = field(default_factory=HostQueries)

    def __post_init__(self) -> None:
        """Note that the settings of which they are made hold from now on."""
        self.reloads.started(self.clock())

    @cached_property
    def heartbeats(self) -> HeartbeatFiles:
        """The heartbeat files, read once for all collectors."""
        from peerwatch_exporter.sources.jobs.heartbeat import HeartbeatFiles  # noqa: PLC0415

        return HeartbeatFiles()


def real_sources(config: ExporterConfig) -> Sources:
    """Return the sources of the running node as configured."""
    from peerwatch_exporter.sources.nic.dcb import read_dcb  # noqa: PLC0415 - in no driver process

    paths = config.paths
    return Sources(
        Paths(procfs=paths.procfs, sysfs=paths.sysfs, kmsg=paths.kmsg, checks=paths.checks),
        dcb=read_dcb,
        queries=real_queries(paths.procfs, paths.rootfs, paths.system_bus),
    )
