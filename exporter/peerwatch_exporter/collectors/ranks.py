"""How the ranks of training jobs on this node are doing.

From outside: the processes of each rank. From inside, where the job offers it: the heartbeat
file. The two are joined by rank and job; either is enough.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.catalog.rank_ends import RANK_END_SPECS
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import DirectoryNotFoundError, NoData, PartialData, raise_partial
from peerwatch_exporter.sources.jobs.joined_rank import JoinedRank
from peerwatch_exporter.sources.jobs.known_ranks import KnownRank
from peerwatch_exporter.sources.jobs.mapping import MappingFiles
from peerwatch_exporter.sources.jobs.rank_ends import RankEnds
from peerwatch_exporter.sources.jobs.rank_facts import RankFacts
from peerwatch_exporter.sources.jobs.rank_life import RankLife, key_of
from peerwatch_exporter.sources.jobs.rank_use import USE_SECONDS, RankUse
from peerwatch_exporter.sources.jobs.ranks import RankFinder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.host.processes import Process
    from peerwatch_exporter.sources.jobs.heartbeat import Heartbeat
    from peerwatch_exporter.sources.jobs.ranks import RankProcess

_RANK_LABELS = ("job_id", "rank")
_TREE = "summed over the processes of the rank"

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "training job",
        MetricSpec(
            "rank_info",
            "gauge",
            "1",
            ("job_id", "rank", "local_rank", "world_size", "pid"),
            "1 for each rank of a training job on this node; pid is its main process.",
            "environment of rank processes; heartbeat files",
        ),
    ),
    MetricSpec(
        "rank_heartbeat_timestamp_seconds",
        "gauge",
        "seconds",
        _RANK_LABELS,
        "When the rank last gave a sign of life (Unix time).",
        "heartbeat file: time",
        hardware="heartbeat",
    ),
    MetricSpec(
        "rank_last_step_timestamp_seconds",
        "gauge",
        "seconds",
        _RANK_LABELS,
        "When the rank last finished an optimiser step (Unix time).",
        "heartbeat file: last_step_time",
        hardware="heartbeat",
    ),
    MetricSpec(
        "rank_steps_total",
        "counter",
        "1",
        _RANK_LABELS,
        "Optimiser steps the rank has finished; falls when a job resumes from a checkpoint.",
        "heartbeat file: step",
        hardware="heartbeat",
    ),
    MetricSpec(
        "rank_batches_total",
        "counter",
        "1",
        _RANK_LABELS,
        "Batches the rank has taken from PyTorch's data loaders, for training and evaluation.",
        "heartbeat file: batches",
        hardware="heartbeat",
        not_drawn="the detector reads it: whoever others wait for works as long as it rises",
    ),
    *needing(
        "training job",
        MetricSpec(
            "rank_process_state",
            "gauge",
            "1",
            ("job_id", "rank", "state"),
            "1 for the state of the rank's main process, 0 for the others: running, sleeping, "
            "disk_sleep, stopped, traced (by a debugger), zombie, exited (a heartbeat file is left "
            "but no process). All 0 for a process that writes heartbeats but cannot be seen.",
            "/proc/<pid>/stat state",
        ),
        *RANK_END_SPECS,
        MetricSpec(
            "rank_cpu_seconds_total",
            "counter",
            "seconds",
            ("job_id", "rank", "mode"),
            f"CPU time of the rank in user and system mode, {_TREE}.",
            "/proc/<pid>/stat utime, stime, cutime, cstime",
            every_seconds=USE_SECONDS,
        ),
        MetricSpec(
            "rank_memory_resident_bytes",
            "gauge",
            "bytes",
            _RANK_LABELS,
            f"Resident memory of the rank, {_TREE}; shared pages count for each of them.",
            "/proc/<pid>/status VmRSS",
            every_seconds=USE_SECONDS,
        ),
        MetricSpec(
            "rank_read_bytes_total",
            "counter",
            "bytes",
            _RANK_LABELS,
            f"Bytes the rank had read from storage, {_TREE}.",
            "/proc/<pid>/io read_bytes",
            every_seconds=USE_SECONDS,
        ),
        MetricSpec(
            "rank_written_bytes_total",
            "counter",
            "bytes",
            _RANK_LABELS,
            f"Bytes the rank had written to storage, {_TREE}.",
            "/proc/<pid>/io write_bytes",
            every_seconds=USE_SECONDS,
        ),
        MetricSpec(
            "rank_context_switches_total",
            "counter",
            "1",
            ("job_id", "rank", "kind"),
            "Context switches of the main threads of the rank's processes: voluntary (waited) or "
            "involuntary (pushed off the CPU).",
            "/proc/<pid>/status voluntary_ctxt_switches, nonvoluntary_ctxt_switches",
            every_seconds=USE_SECONDS,
        ),
        MetricSpec(
            "rank_run_delay_seconds_total",
            "counter",
            "seconds",
            _RANK_LABELS,
            "Time the main threads of the rank's processes were ready to run but waited for a CPU.",
            "/proc/<pid>/schedstat, second field",
            every_seconds=USE_SECONDS,
        ),
        MetricSpec(
            "rank_threads",
            "gauge",
            "1",
            _RANK_LABELS,
            f"Threads of the rank, {_TREE}.",
            "/proc/<pid>/stat num_threads",
            every_seconds=USE_SECONDS,
        ),
        MetricSpec(
            "rank_processes",
            "gauge",
            "1",
            _RANK_LABELS,
            "Processes of the rank: the main process and its descendants.",
            "/proc/<pid>/stat ppid",
            every_seconds=USE_SECONDS,
        ),
    ),
)

_METRICS = (
    "rank_halted_seconds",
    "rank_stopped_seconds_total",
    "rank_exit_info",
    "rank_heartbeat_timestamp_seconds",
    "rank_last_step_timestamp_seconds",
    "rank_steps_total",
    "rank_batches_total",
)
# A few sets per rank: room for hundreds of ranks, of one job after another.
_MOST_LABELS = 4096


class _GarbledHeartbeat(PartialData):
    error_class = "garbled_heartbeat"


class _Families:
    """The families under construction, in the order of their first use."""

    def __init__(self) -> None:
        self._families = {name: family(name) for name in _METRICS}

    def add(self, name: str, labels: tuple[str, ...], value: float | None) -> None:
        """Add a sample unless its value is unknown."""
        if value is not None:
            self._families[name].rows.append((labels, value))

    def families(self) -> Iterator[Family]:
        """Yield the families that have samples."""
        return (family for family in self._families.values() if family.rows)


@register(
    "ranks",
    "ranks of training jobs: process state and use, heartbeat, steps",
    topic="Training jobs and ranks",
    metrics=SPECS,
)
class RanksCollector:
    """Publishes every rank found by its processes or its heartbeat file."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._heartbeat = config.heartbeat
        mapping = config.jobs.mapping_directory
        self._mapping = None if mapping is None else MappingFiles(mapping)
        self._files = sources.heartbeats
        self._jobs = sources.process_jobs
        self._known = sources.known_ranks
        self._clock = sources.clock
        self._table = sources.processes
        self._finder = RankFinder(config, sources)
        self._facts = RankFacts()
        self._use = RankUse(self._table, sources.monotonic)
        self._life = RankLife()
        self._ends = RankEnds(self._table, sources.clock, sources.monotonic)

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``rank_*``.

        Raises
        ------
        NoData
            If there is no rank.
        DirectoryNotFoundError
            If there is none, nor the directory in which ranks should leave heartbeats.
        PartialData
            At the end, if some processes or heartbeats could not be read.
        """
        heartbeats = self._files.read(self._heartbeat.directory)
        refused: PermissionError | None = None
        try:
            processes = self._finder.find()
        except PermissionError as error:
            if not heartbeats.ranks:
                raise
            refused, processes = error, []
        ranks = [rank for rank in self._joined(processes, heartbeats.ranks) if self._counts(rank)]
        directory = []
        if heartbeats.missing is not None:
            directory.append(DirectoryNotFoundError("heartbeat.directory", heartbeats.missing))
        ranks = self._with_job(ranks)
        self._known.update(
            [KnownRank(r.job_id, r.rank, r.pid, bool(r.tree) or r.unseen) for r in ranks]
        )
        if not ranks and not heartbeats.problems:
            raise_partial(directory, found=False)
            raise NoData("No rank of a training job runs on this node.")
        families = _Families()
        self._ends.begin()
        for rank in ranks:
            _add_heartbeat(families, rank)
            self._add_end(families, rank)
        yield from self._facts.families(ranks)
        yield from families.families()
        yield from self._use.read([((rank.job_id, rank.rank), rank.tree) for rank in ranks])
        self._watch(ranks)
        refused = self._use.refused or refused
        if refused is not None:
            raise PartialData(str(refused)) from refused
        raise_partial(directory, found=True)
        if heartbeats.problems:
            raise _GarbledHeartbeat("; ".join(heartbeats.problems))

    def _watch(self, ranks: Iterable[JoinedRank]) -> None:
        """Have looked at, in the next second, whoever may say something new then.

        The state of a rank is that of its main process. Of the others, such as dozens that load
        data, only the use counts, and who takes over what their children used.
        """
        everybody = self._use.is_due_next()
        for rank in ranks:
            self._table.watch(
                process.pid
                for process in rank.tree
                if everybody or process is rank.tree[0] or self._table.children(process.pid)
            )

    def _joined(
        self, processes: Sequence[RankProcess], heartbeats: Sequence[Heartbeat]
    ) -> list[JoinedRank]:
        """Return all ranks; of those without a process, which ones are merely unseen."""
        ranks = list(self._join(processes, heartbeats))
        alive = [(rank.heartbeat, bool(rank.tree)) for rank in ranks if rank.heartbeat is not None]
        gone = self._life.gone(alive)
        return [
            replace(rank, unseen=True)
            if rank.heartbeat is not None and not rank.tree and key_of(rank.heartbeat) not in gone
            else rank
            for rank in ranks
        ]

    def _add_end(self, families: _Families, rank: JoinedRank) -> None:
        """Add for how long the rank has been halted, and how it ended."""
        key = rank.job_id, rank.rank
        self._ends.follow(key, rank.pid, rank.state, rank.heartbeat)
        labels = _labels(*key)
        families.add("rank_halted_seconds", labels, self._ends.halted_seconds(key))
        families.add("rank_stopped_seconds_total", labels, self._ends.stopped_seconds(key))
        if (end := self._ends.ended(key)) is not None:
            families.add("rank_exit_info", _labels(*key, end.code, end.signal, end.error), 1)

    def _join(
        self, processes: Sequence[RankProcess], heartbeats: Sequence[Heartbeat]
    ) -> Iterator[JoinedRank]:
        waiting = {
            process.root.pid: JoinedRank(
                process.identity.job_id,
                process.identity.rank,
                process.identity.local_rank,
                process.identity.world_size,
                process.tree,
                None,
            )
            for process in processes
        }
        for heartbeat in heartbeats:
            candidates = [rank for rank in waiting.values() if rank.may_be_that_of(heartbeat)]
            # With several jobs on the node, the pid decides, else the youngest process.
            candidates.sort(key=lambda r: (r.pid == heartbeat.pid, r.tree[0].start_ticks))
            if not candidates:
                yield self._from_heartbeat(heartbeat)
                continue
            rank = candidates[-1]
            del waiting[rank.tree[0].pid]
            yield replace(rank, heartbeat=heartbeat, job_id=rank.job_id or heartbeat.job_id)
        yield from waiting.values()

    def _from_heartbeat(self, heartbeat: Heartbeat) -> JoinedRank:
        tree: tuple[Process, ...] = ()
        if heartbeat.pid is not None:
            tree = self._finder.tree_of(heartbeat.pid, started_before=heartbeat.time)
        return JoinedRank(
            heartbeat.job_id,
            heartbeat.rank,
            heartbeat.local_rank,
            heartbeat.world_size,
            tree,
            heartbeat,
        )

    def _with_job(self, ranks: list[JoinedRank]) -> list[JoinedRank]:
        """Give ranks that name no job the one they are known to run in, such as their pod's.

        Else they take the mapped one, where the node has exactly one.
        """
        if all(rank.job_id for rank in ranks):
            return ranks
        mapped = self._only_mapped_job()
        return [
            rank if rank.job_id else replace(rank, job_id=self._jobs.job_id(rank.pid) or mapped)
            for rank in ranks
        ]

    def _only_mapped_job(self) -> str:
        if self._mapping is None:
            return ""
        try:
            job_ids = self._mapping.read().job_ids
        except OSError:  # the jobs collector reports it
            return ""
        return job_ids[0] if len(job_ids) == 1 else ""

    def _counts(self, rank: JoinedRank) -> bool:
        """Return False for what a job of long ago left behind."""
        oldest = self._clock() - self._heartbeat.forget_after_seconds
        return bool(rank.tree) or (rank.heartbeat is not None and rank.heartbeat.time >= oldest)


def _add_heartbeat(families: _Families, rank: JoinedRank) -> None:
    heartbeat = rank.heartbeat
    if heartbeat is not None:
        labels = _labels(rank.job_id, rank.rank)
        families.add("rank_heartbeat_timestamp_seconds", labels, heartbeat.time)
        families.add("rank_last_step_timestamp_seconds", labels, heartbeat.last_step_time)
        families.add("rank_steps_total", labels, heartbeat.step)
        families.add("rank_batches_total", labels, heartbeat.batches)


@lru_cache(maxsize=_MOST_LABELS)
def _labels(job_id: str, rank: int, *more: str) -> tuple[str, ...]:
    """Return the same label values for a series each second, which makes it cheap further on."""
    return job_id, str(rank), *more
