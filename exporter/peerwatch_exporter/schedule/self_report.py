"""What the exporter says about itself, as metric families."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.self_metrics import TIMES_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_common.settings.reload import ReloadFacts
    from peerwatch_exporter.schedule.scheduled_collector import LatestResult
    from peerwatch_exporter.sources.host.own_processes import ProcessUse

# Decimals that say something; the others would be written, compressed and stored all the same.
_MICROSECONDS = 6
_MILLISECONDS = 3


def exporter_families(
    version: str,
    time: float | None,
    missed: int,
    processes: Iterable[ProcessUse],
    reloads: ReloadFacts,
) -> list[Family]:
    """Return what is known without any collector.

    Parameters
    ----------
    version
        The exporter's version.
    time
        When the snapshot was taken (Unix time); ``None`` before the first.
    missed
        Ticks left out since the start.
    processes
        What the exporter's processes use.
    reloads
        How the settings were read last.
    """
    families = [_single("exporter_build_info", 1, version)]
    if time is not None:
        families.append(_single("exporter_snapshot_timestamp_seconds", time))
    families.append(_single("exporter_snapshot_missed_total", missed))
    cpu = family("exporter_cpu_seconds_total")
    resident = family("exporter_resident_memory_bytes")
    for use in processes:
        cpu.add_metric([use.process], use.cpu_seconds)
        resident.add_metric([use.process], use.resident_bytes)
    return [*families, cpu, resident, *_reload_families(reloads)]


def _reload_families(reloads: ReloadFacts) -> list[Family]:
    families = [_single("exporter_config_last_reload_successful", int(reloads.successful))]
    if reloads.success_time is not None:
        name = "exporter_config_last_reload_success_timestamp_seconds"
        families.append(_single(name, reloads.success_time))
    readings = family("exporter_config_reloads_total")
    for result, count in reloads.readings.items():
        readings.add_metric([result], count)
    return [*families, readings]


class CollectorFamilies:
    """Says how each collector's newest run went; what does not change stays the same object."""

    def __init__(self) -> None:
        self._outcomes: list[tuple[object, ...]] = []
        self._kept = _outcome_families(())
        self._times: list[Family] = []
        self._calls = 0

    def __call__(self, results: Sequence[LatestResult]) -> list[Family]:
        """Return the families of the newest results, in the order of the collectors."""
        outcomes: list[tuple[object, ...]] = [
            (
                *(report.collector, report.success, report.error),
                *(report.timeouts, report.stuck_seconds, result.dropped),
            )
            for result in results
            for report in (result.report,)
        ]
        if outcomes != self._outcomes or self._calls % TIMES_SECONDS == 0:
            self._times = _time_families(results)
        if outcomes != self._outcomes:
            self._outcomes, self._kept = outcomes, _outcome_families(results)
        self._calls += 1
        return [self._kept[0], *self._times, *self._kept[1:]]


def _time_families(results: Iterable[LatestResult]) -> list[Family]:
    """Return how long the newest runs took and when the last good ones were."""
    reports = [result.report for result in results]
    duration = family("exporter_collector_duration_seconds")
    duration.rows = [
        ((report.collector,), round(report.duration, _MICROSECONDS)) for report in reports
    ]
    last_success = family("exporter_collector_last_success_timestamp_seconds")
    last_success.rows = [
        ((report.collector,), round(report.last_success, _MILLISECONDS))
        for report in reports
        if report.last_success is not None
    ]
    return [duration, last_success]


def _outcome_families(results: Iterable[LatestResult]) -> list[Family]:
    """Return what is the same after most runs: all but how long they took and when they were."""
    success = family("exporter_collector_success")
    timeouts = family("exporter_collector_timeouts_total")
    stuck = family("exporter_collector_stuck_seconds")
    dropped = family("exporter_collector_dropped_series")
    errors = family("exporter_collector_error_info")
    for result in results:
        report = result.report
        label = (report.collector,)
        success.rows.append((label, int(report.success)))
        timeouts.rows.append((label, report.timeouts))
        dropped.rows.append((label, result.dropped))
        # Always a row for the collector as a whole, so that a rule need not ask for its absence.
        for gpu, seconds in {"": 0.0, **report.stuck_seconds}.items():
            stuck.rows.append(((report.collector, gpu), seconds))
        if result.error is not None:
            errors.rows.append(((report.collector, result.error), 1))
    return [success, timeouts, stuck, dropped, errors]


def with_series_count(families: Sequence[Family]) -> tuple[Family, ...]:
    """Return the families, less the empty ones, and how many series that makes."""
    filled = [item for item in families if item.rows]
    count = 1 + sum([len(item.rows) for item in filled])
    return (*filled, _single("exporter_series", count))


def _single(name: str, value: float, *labels: str) -> Family:
    result = family(name)
    result.add_metric(labels, value)
    return result
