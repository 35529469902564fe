"""What the node uses: the whole machine, or the processes that play the node.

``usage_source`` is the one place that chooses between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from peerwatch_exporter.sources.host.environments import EnvironmentIndex
from peerwatch_exporter.sources.host.monotonic_sum import InheritedSum
from peerwatch_exporter.sources.host.procfs import DiskStat, Procfs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources.host.access import HostAccess
    from peerwatch_exporter.sources.host.processes import Process, ProcessKey
    from peerwatch_exporter.sources.host.procfs import MachineStat

# Storage servers have a hundred; the exposition must stay bounded whatever is attached.
MAX_DISKS = 256
# The kernel's idle and iowait counters may step back a little; more than this is a CPU taken
# offline or put back, which is a new count. Chosen: steps are of ticks of 10 ms.
_STEP_BACK_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """CPU seconds by mode, and how many CPUs they were spent on."""

    seconds: Mapping[str, float]
    cpus: float


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Memory of the node and what is left of it, in bytes; None where the kernel does not say."""

    total: int | None
    available: int | None


class UsageSource(Protocol):
    """Reads what the node uses."""

    def cpu(self, stat: MachineStat) -> CpuUsage:
        """Return CPU time used since some fixed moment; it never falls.

        Parameters
        ----------
        stat
            What was just read of the machine: on many CPUs it takes long, so it is read once.
        """

    def memory(self) -> MemoryUsage:
        """Return memory in total and available."""

    def disks(self, problems: list[Exception]) -> Mapping[str, DiskStat]:
        """Return storage traffic by disk; ``problems`` takes what could not be read."""


class HostUsage:
    """The whole machine, from its own counters."""

    def __init__(self, config: ExporterConfig, host: HostAccess) -> None:
        self._scope = config.scope
        self._procfs = Procfs(host.paths.procfs)
        self._seconds: dict[str, float] = {}

    def cpu(self, stat: MachineStat) -> CpuUsage:
        """Return the machine's CPU time by mode."""
        for mode, seconds in stat.cpu_seconds.items():
            before = self._seconds.get(mode, 0.0)
            stepped_back = before - _STEP_BACK_SECONDS < seconds < before
            self._seconds[mode] = before if stepped_back else seconds
        return CpuUsage(dict(self._seconds), self._scope.cpus or stat.cpus)

    def memory(self) -> MemoryUsage:
        """Return the machine's memory; the kernel itself estimates what is available."""
        meminfo = self._procfs.meminfo()
        total = self._scope.memory_bytes or meminfo.get("MemTotal")
        return MemoryUsage(total, meminfo.get("MemAvailable"))

    def disks(self, problems: list[Exception]) -> Mapping[str, DiskStat]:
        """Return the traffic of whole disks."""
        return self._procfs.disks(MAX_DISKS + 1, problems)


class ProcessUsage:
    """The processes marked by ``scope.environment``, as if they had a machine to themselves.

    Memory is the sum of resident sizes: pages shared between processes count for each of them.
    The proportional size would be exact, but costs a scan of every page table and waits for
    the lock of a process that is busy changing its own.
    """

    def __init__(self, config: ExporterConfig, host: HostAccess) -> None:
        self._scope = config.scope
        self._procfs = Procfs(host.paths.procfs)
        self._table = host.processes
        self._index = EnvironmentIndex(self._table, self._is_ours, monotonic=host.monotonic)
        self._cpu = InheritedSum()
        self._io = InheritedSum()

    def cpu(self, stat: MachineStat) -> CpuUsage:
        """Return user and system time of the processes, those that ended included."""
        counters = {
            process.key: {"user": process.user_seconds, "system": process.system_seconds}
            for process in self._processes()
        }
        seconds = {"user": 0.0, "system": 0.0, **self._cpu.update(counters)}
        return CpuUsage(seconds, self._scope.cpus or stat.cpus)

    def memory(self) -> MemoryUsage:
        """Return the node's memory and what its processes leave of it, at least 0."""
        total = self._scope.memory_bytes or self._procfs.meminfo().get("MemTotal")
        if total is None:
            return MemoryUsage(None, None)
        statuses = (self._table.status(process.pid) for process in self._processes())
        resident = sum(status.resident_bytes for status in statuses if status is not None)
        return MemoryUsage(total, max(0, total - resident))

    def disks(self, problems: list[Exception]) -> Mapping[str, DiskStat]:  # noqa: ARG002
        """Return the traffic of the processes as one disk named ``processes``."""
        counters: dict[ProcessKey, dict[str, float]] = {}
        for process in self._processes():
            io = self._table.io(process.pid)
            counters[process.key] = (
                {} if io is None else {"read": io.read_bytes, "written": io.written_bytes}
            )
        sums = self._io.update(counters)
        stat = DiskStat(int(sums.get("read", 0)), int(sums.get("written", 0)), io_seconds=None)
        return {"processes": stat}

    def _processes(self) -> list[Process]:
        return [process for process, _ in self._index.find()]

    def _is_ours(self, environment: Mapping[str, str]) -> bool | None:
        return belongs_to_node(environment, self._scope.environment) or None


def belongs_to_node(environment: Mapping[str, str], node_variables: Mapping[str, str]) -> bool:
    """Return whether an environment holds all the variables of the node."""
    return node_variables.items() <= environment.items()


def usage_source(config: ExporterConfig, host: HostAccess) -> UsageSource:
    """Return the reader for the configured scope."""
    if config.scope.kind == "processes":
        return ProcessUsage(config, host)
    return HostUsage(config, host)
