"""Tasks that stand still in the kernel: the sign of a driver, disk or file system that hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.host.procfs import Procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

SPECS = (
    MetricSpec(
        "host_uninterruptible_tasks",
        "gauge",
        "1",
        (),
        "Processes whose main thread cannot be interrupted (state D): it waits for storage, a "
        "network file system or a driver. Some for a moment are normal; the same number for "
        "minutes is a driver or file system that hangs, and such a process cannot be killed.",
        "/proc/<pid>/stat state",
    ),
    MetricSpec(
        "host_hung_tasks_total",
        "counter",
        "1",
        (),
        "Times the kernel found a task that had not moved for kernel.hung_task_timeout_secs "
        "(120 s). On older kernels see class hung_task of host_kernel_events_total.",
        "/proc/sys/kernel/hung_task_detect_count",
        hardware="Linux 6.13",
    ),
)


@register(
    "tasks",
    "tasks that hang in the kernel or cannot be interrupted",
    interval_seconds=10,
    topic="Host",
    metrics=SPECS,
)
class TasksCollector:
    """Counts processes in state D from the list that the ranks are found in, and hung tasks."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._procfs = Procfs(sources.paths.procfs)
        self._table = sources.processes
        self._whole_machine = config.scope.kind == "host"

    def collect(self) -> Iterator[Family]:
        """Yield ``host_uninterruptible_tasks`` and, from Linux 6.13 on, ``host_hung_tasks_total``.

        Raises
        ------
        NoData
            If the node is only some of the machine's processes.
        """
        if not self._whole_machine:
            raise NoData("Hung tasks belong to the whole machine, not to scope 'processes'.")
        processes = self._table.snapshot().values()
        waiting = family("host_uninterruptible_tasks")
        waiting.add_metric([], sum(process.state == "disk_sleep" for process in processes))
        yield waiting
        hung = self._procfs.hung_tasks()
        if hung is not None:
            total = family("host_hung_tasks_total")
            total.add_metric([], hung)
            yield total
