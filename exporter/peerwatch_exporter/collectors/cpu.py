"""CPU time of the node, and what the machine's scheduler counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import MissingValues, raise_partial
from peerwatch_exporter.sources.host.procfs import GarbledFileError, Procfs
from peerwatch_exporter.sources.host.rarely import Rarely
from peerwatch_exporter.sources.host.usage import usage_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_PER_PROCESS = "with scope 'processes', the sum over the node's processes"

# As often as the kernel computes it (LOAD_FREQ).
_LOAD_SECONDS = 5

SPECS = (
    MetricSpec(
        "host_cpu_seconds_total",
        "counter",
        "seconds",
        ("mode",),
        f"CPU time spent in each mode; {_PER_PROCESS} (user, system).",
        "/proc/stat cpu; /proc/<pid>/stat utime, stime",
    ),
    MetricSpec(
        "host_cpus",
        "gauge",
        "1",
        (),
        "CPUs of the node: those of the machine, or scope.cpus where it is set.",
        "/proc/stat cpuN; scope.cpus",
    ),
    MetricSpec(
        "host_load1",
        "gauge",
        "1",
        (),
        "Load average over one minute: tasks that run, wait for a CPU or for storage.",
        "/proc/loadavg",
        every_seconds=_LOAD_SECONDS,
    ),
    MetricSpec(
        "host_blocked_tasks",
        "gauge",
        "1",
        (),
        "Tasks that wait for storage right now (iowait). Those stuck elsewhere in the kernel are "
        "in host_uninterruptible_tasks.",
        "/proc/stat procs_blocked",
    ),
    MetricSpec(
        "host_context_switches_total",
        "counter",
        "1",
        (),
        "Context switches of the whole machine.",
        "/proc/stat ctxt",
        not_drawn="the ranks' own say more; kept for queries by hand",
    ),
    MetricSpec(
        "host_boot_time_seconds",
        "gauge",
        "seconds",
        (),
        "When the machine was started (Unix time).",
        "/proc/stat btime",
    ),
)


@register(
    "cpu",
    "CPU time by mode, CPUs, load, context switches, tasks waiting for storage, boot time",
    topic="Host",
    metrics=SPECS,
)
class CpuCollector:
    """Publishes CPU time; load and context switches only where the node is the machine."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._usage = usage_source(config, sources)
        self._procfs = Procfs(sources.paths.procfs)
        self._machine = sources.machine
        self._load: Rarely[float] = Rarely(_LOAD_SECONDS, sources.monotonic, turn=4)
        self._whole_machine = config.scope.kind == "host"

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_cpu_*`` and the machine's scheduler.

        Raises
        ------
        PartialData
            At the end, if some of the values could not be read.
        """
        stat = self._machine.stat()
        usage = self._usage.cpu(stat)
        seconds = family("host_cpu_seconds_total")
        for mode, value in usage.seconds.items():
            seconds.add_metric([mode], value)
        yield seconds
        yield _single("host_cpus", usage.cpus)
        values: dict[str, float | None] = {"host_boot_time_seconds": stat.boot_time}
        problems: list[Exception] = []
        if self._whole_machine:
            values["host_context_switches_total"] = stat.context_switches
            values["host_load1"] = self._load1(problems)
        for name, found in values.items():
            if found is not None:
                yield _single(name, found)
        # Old kernels do not count them.
        if self._whole_machine and stat.blocked is not None:
            yield _single("host_blocked_tasks", stat.blocked)
        raise_partial(problems, found=True)
        missing = [name for name, found in values.items() if found is None]
        if missing:
            raise MissingValues(f"/proc/stat does not give {' and '.join(missing)}.")

    def _load1(self, problems: list[Exception]) -> float | None:
        try:
            return self._load(self._procfs.load1)
        except (OSError, GarbledFileError) as error:
            problems.append(error)
            return None


def _single(name: str, value: float) -> Family:
    single = family(name)
    single.add_metric([], value)
    return single
