"""The Flight Recorders of all ranks on this node: which there are, and their readers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.recorder import RecorderReader
from peerwatch_exporter.sources.collectives.telemetry import GroupInfo, RankReport
from peerwatch_exporter.sources.jobs.known_ranks import KnownRank

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peerwatch_exporter.settings.jobs import CollectivesConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.jobs.heartbeat import Heartbeat


SOURCE = "flight_recorder"


class Readings(NamedTuple):
    """What is known of each rank, the process groups of each job by name, and what is wrong."""

    reports: list[RankReport]
    infos: dict[str, dict[str, GroupInfo]]
    problems: list[Exception]


class Recorders:
    """Starts and ends a reader for each rank that the hook has made files for.

    Parameters
    ----------
    directory
        That of the heartbeats; None if there is none.
    config
        How often, and how many.
    sources
        The heartbeats, the node's ranks, the clock.
    """

    def __init__(self, directory: Path | None, config: CollectivesConfig, sources: Sources) -> None:
        self._directory = directory
        self._config = config
        self._heartbeats = sources.heartbeats
        self._known = sources.known_ranks
        self._clock = sources.clock
        self._readers: dict[tuple[str, int], RecorderReader] = {}

    def read(self) -> Readings:
        """Return what the newest readings gave; waits for nobody."""
        ranks = list(self._ranks())
        problems: list[Exception] = []
        if len(ranks) > self._config.max_ranks:
            problems.append(_too_many(len(ranks), self._config.max_ranks))
            del ranks[self._config.max_ranks :]
        wanted = {(rank.job_id, rank.rank) for rank in ranks}
        for key in self._readers.keys() - wanted:
            self._readers.pop(key).stop()
        reports: list[RankReport] = []
        infos: dict[str, dict[str, GroupInfo]] = {}
        for rank in ranks:
            reading = self._reader(rank.job_id, rank.rank).reading
            if reading is None:
                continue
            identity = rank.job_id, rank.rank
            reports.append(RankReport(*identity, SOURCE, reading.up, reading.time, reading.groups))
            infos.setdefault(rank.job_id, {}).update(reading.infos or {})
            # That a rank which has exited does not answer is no news.
            if reading.problem is not None and rank.is_alive:
                problems.append(reading.problem)
        return Readings(reports, infos, problems)

    def close(self) -> None:
        """End all readers; returns at once."""
        for reader in self._readers.values():
            reader.stop()
        self._readers.clear()

    def _reader(self, job_id: str, rank: int) -> RecorderReader:
        reader = self._readers.get((job_id, rank))
        if reader is None:
            assert self._directory is not None
            reader = RecorderReader(
                self._directory / f"rank-{rank}.sock",
                self._directory / f"rank-{rank}.groups.json",
                self._config,
                self._clock,
            )
            self._readers[job_id, rank] = reader
            reader.start()
        return reader

    def _ranks(self) -> Iterator[KnownRank]:
        """Yield the ranks with a heartbeat and files of the recorder, the lowest first."""
        heartbeats = self._heartbeats.read(self._directory).ranks
        if not heartbeats or self._directory is None:
            return
        names = set(os.listdir(self._directory))  # noqa: PTH208 - names are all that is needed
        for heartbeat in sorted(heartbeats, key=lambda heartbeat: heartbeat.rank):
            files = {f"rank-{heartbeat.rank}.sock", f"rank-{heartbeat.rank}.groups.json"}
            rank = self._identity(heartbeat) if files & names else None
            if rank is not None:
                yield rank

    def _identity(self, heartbeat: Heartbeat) -> KnownRank | None:
        """Return the rank as the ranks collector has it; None if it does not count there."""
        known = self._known.all()
        if known is None:
            # Before that has run for the first time, only a job that is certain.
            return _unchecked(heartbeat) if heartbeat.job_id else None
        same = [rank for rank in known if rank.rank == heartbeat.rank]
        by_pid = [rank for rank in same if rank.pid == heartbeat.pid]
        return next(iter((*by_pid, *same)), None)


def _unchecked(heartbeat: Heartbeat) -> KnownRank:
    return KnownRank(heartbeat.job_id, heartbeat.rank, heartbeat.pid, is_alive=True)


def _too_many(found: int, most: int) -> CollectiveSourceError:
    return CollectiveSourceError(
        "too_many_ranks",
        f"{found} ranks on this node, only the first {most} are read; raise collectives.max_ranks",
    )
