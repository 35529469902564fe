"""All sources of collectives together: for each rank, what the best of them knows, completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.sources.collectives import counter_files
from peerwatch_exporter.sources.collectives.counter_files import CounterFiles
from peerwatch_exporter.sources.collectives.inspector import Inspector
from peerwatch_exporter.sources.collectives.process_ranks import ranks_by_pid
from peerwatch_exporter.sources.collectives.ras import Ras
from peerwatch_exporter.sources.collectives.recorders import Readings, Recorders
from peerwatch_exporter.sources.collectives.telemetry import (
    GroupInfo,
    GroupTelemetry,
    RankReport,
    completed_by,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.jobs.known_ranks import KnownRank

# Finished collectives come in bursts as it is: three readings for each scrape of 15 s.
_INSPECTOR_SECONDS = 5.0


class CollectiveSources:
    """Whatever is configured of Flight Recorders, counter files, RAS and Inspector.

    Parameters
    ----------
    config, sources
        Settings; heartbeats, ranks and clock.
    """

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._directory = config.heartbeat.directory
        self._heartbeats = sources.heartbeats
        self._known = sources.known_ranks
        self._clock = sources.clock
        collectives = config.collectives
        self._recorders = Recorders(self._directory, collectives, sources)
        self._counters = (
            None
            if self._directory is None
            else CounterFiles(self._directory, collectives.max_groups, sources.clock)
        )
        self._by_process: list[Ras | Inspector] = []
        if collectives.ras_address is not None:
            host, _, port = collectives.ras_address.rpartition(":")
            self._by_process.append(
                Ras(host.strip("[]"), int(port), collectives.ras_interval_seconds, sources.clock)
            )
        if collectives.inspector_directory is not None:
            self._by_process.append(
                Inspector(collectives.inspector_directory, _INSPECTOR_SECONDS, sources.clock)
            )

    def read(self) -> Readings:
        """Return a report of each rank and source, the best source first; waits for nobody."""
        reports, infos, problems = self._recorders.read()
        known = list(self._known.all() or ())
        reports += self._read_counters(known, infos, problems)
        if self._by_process:
            heartbeats = self._heartbeats.read(self._directory).ranks
            pids = ranks_by_pid((rank for rank in known if rank.is_alive), heartbeats)
            groups = {job_id: list(each.values()) for job_id, each in infos.items()}
            for source in self._by_process:
                more, wrong = source.read(pids, groups)
                reports += more
                problems += wrong
        return Readings(reports, infos, problems)

    def close(self) -> None:
        """End all threads; returns at once."""
        self._recorders.close()
        for source in self._by_process:
            source.close()

    def _read_counters(
        self,
        known: Iterable[KnownRank],
        infos: dict[str, dict[str, GroupInfo]],
        problems: list[Exception],
    ) -> list[RankReport]:
        if self._counters is None:
            return []
        found, wrong = self._counters.read()
        problems += wrong
        jobs = {rank.rank: rank.job_id for rank in known}
        now = self._clock()
        reports = []
        for each in found:
            if each.rank not in jobs:
                continue
            job_id = jobs[each.rank]
            is_fresh = now - each.time <= counter_files.FRESH_SECONDS
            groups = each.groups if is_fresh else ()
            reports.append(
                RankReport(job_id, each.rank, counter_files.SOURCE, is_fresh, each.time, groups)
            )
            for info in each.infos:
                infos.setdefault(job_id, {}).setdefault(info.name, info)
        return reports


def merged(reports: Iterable[RankReport]) -> list[RankReport]:
    """Return one report of each rank, with the groups of all its sources.

    RAS names communicators, which may not be told apart as groups: it counts only where no other
    source answers for the rank.
    """
    found: dict[tuple[str, int], RankReport] = {}
    for report in reports:
        key = report.job_id, report.rank
        before = found.get(key)
        if before is None:
            found[key] = report
        elif not before.groups or report.source != "ras":
            time = before.time if before.groups else report.time
            found[key] = before._replace(time=time, groups=_joined(before.groups, report.groups))
    return list(found.values())


def _joined(
    groups: tuple[GroupTelemetry, ...], others: tuple[GroupTelemetry, ...]
) -> tuple[GroupTelemetry, ...]:
    by_name = {group.group: group for group in groups}
    for other in others:
        ours = by_name.get(other.group)
        by_name[other.group] = other if ours is None else completed_by(ours, other)
    return tuple(by_name.values())
