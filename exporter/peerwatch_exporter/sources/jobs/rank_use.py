"""What the processes of each rank use, added up: CPU time, memory, storage traffic and waits.

These are three files more for every process of a job, so they are read every few seconds only;
whether a rank runs is known without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.sources.host.monotonic_sum import InheritedSum, MonotonicSum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.sources.host.processes import Process, ProcessKey, ProcessTable

# Three values for each scrape of 15 s (docs/exporter.md).
USE_SECONDS = 5
# Of a clock whose ticks may come a little early.
_REST_SECONDS = USE_SECONDS - 0.5
# From one tick to the next, which may come a little late.
_NEXT_TICK_SECONDS = 1.5

_SUMS = ("rank_memory_resident_bytes", "rank_threads", "rank_processes")
# What the sums call a counter: the metric, and the label values after job_id and rank.
_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "user": ("rank_cpu_seconds_total", ("user",)),
    "system": ("rank_cpu_seconds_total", ("system",)),
    "read": ("rank_read_bytes_total", ()),
    "written": ("rank_written_bytes_total", ()),
    "voluntary": ("rank_context_switches_total", ("voluntary",)),
    "involuntary": ("rank_context_switches_total", ("involuntary",)),
    "run_delay": ("rank_run_delay_seconds_total", ()),
}
_METRICS = (*_SUMS, *dict.fromkeys(name for name, _ in _COUNTERS.values()))

# Job and number of a rank, and its processes.
RankTree = tuple[tuple[str, int], tuple["Process", ...]]


class _RankSums:
    """What all processes of one rank have used, those that ended included."""

    def __init__(self) -> None:
        self._use = InheritedSum()
        self._waits = MonotonicSum()

    def update(
        self,
        use: Mapping[ProcessKey, Mapping[str, float]],
        waits: Mapping[ProcessKey, Mapping[str, float]],
    ) -> dict[str, float]:
        """Take the counters of the processes that run now; return the sum of each counter."""
        return self._use.update(use) | self._waits.update(waits)


class RankUse:
    """Reads what ranks use, every 5 s and whenever a process of theirs came or went.

    Parameters
    ----------
    table
        The node's processes.
    monotonic
        Clock for the 5 s.

    Attributes
    ----------
    refused
        Why storage traffic could not be read of some process; None if it could of all.
    """

    def __init__(self, table: ProcessTable, monotonic: Callable[[], float]) -> None:
        self.refused: PermissionError | None = None
        self._table = table
        self._monotonic = monotonic
        self._sums: dict[tuple[str, int], _RankSums] = {}
        self._known: object = None
        self._due = 0.0
        self._families: tuple[Family, ...] = ()

    def read(self, ranks: Sequence[RankTree]) -> tuple[Family, ...]:
        """Return the families; the same objects until they are read again."""
        now = self._monotonic()
        known = [(rank, [process.key for process in tree]) for rank, tree in ranks]
        if known != self._known or now >= self._due:
            self._known = None
            self._families = self._read(ranks)
            self._known, self._due = known, now + _REST_SECONDS
        return self._families

    def is_due_next(self) -> bool:
        """Return whether the next call reads, and wants to know all processes as they are."""
        return self._monotonic() + _NEXT_TICK_SECONDS >= self._due

    def _read(self, ranks: Sequence[RankTree]) -> tuple[Family, ...]:
        self.refused = None
        # A rank that is gone may come back as another one.
        self._sums = {rank: self._sums.get(rank) or _RankSums() for rank, _ in ranks}
        families = {name: family(name) for name in _METRICS}
        for rank, tree in ranks:
            if tree:
                self._add(families, rank, tree)
        return tuple(item for item in families.values() if item.rows)

    def _add(
        self, families: dict[str, Family], rank: tuple[str, int], tree: tuple[Process, ...]
    ) -> None:
        labels = (rank[0], str(rank[1]))
        resident = 0
        waits: dict[ProcessKey, dict[str, float]] = {}
        use: dict[ProcessKey, dict[str, float]] = {}
        for process in tree:
            waits[process.key] = {}
            resident += self._read_status(process.pid, waits[process.key])
            cpu = {"user": process.user_seconds, "system": process.system_seconds}
            use[process.key] = cpu | self._traffic(process.pid)
        for counter, total in self._sums[rank].update(use, waits).items():
            name, more = _COUNTERS[counter]
            families[name].rows.append(((*labels, *more), total))
        threads = sum(process.threads for process in tree)
        for name, value in zip(_SUMS, (resident, threads, len(tree)), strict=True):
            families[name].rows.append((labels, value))

    def _read_status(self, pid: int, counters: dict[str, float]) -> int:
        """Add a process's counters; return its resident memory in bytes."""
        status = self._table.status(pid)
        if status is not None:
            counters["voluntary"] = status.voluntary_switches
            counters["involuntary"] = status.involuntary_switches
        run_delay = self._table.run_delay_seconds(pid)
        if run_delay is not None:
            counters["run_delay"] = run_delay
        return 0 if status is None else status.resident_bytes

    def _traffic(self, pid: int) -> dict[str, float]:
        """Return a process's storage traffic; empty if it cannot be read."""
        try:
            io = self._table.io(pid)
        except PermissionError as error:  # another user's process
            self.refused, io = error, None
        return {} if io is None else {"read": io.read_bytes, "written": io.written_bytes}
