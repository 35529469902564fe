"""The two metrics endpoints: expositions of the newest snapshot, kept until the next one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from peerwatch_common.metrics.exposition import Renderer
from peerwatch_common.metrics.spec import TimedFamily
from peerwatch_common.web.pieces import Pieces
from peerwatch_exporter.pages.scrapers import LastScrape, Scrapers
from peerwatch_exporter.schedule.fast_aggregator import fast_up
from peerwatch_exporter.schedule.fast_metrics import UNTIMED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from peerwatch_common.metrics.spec import Family, MetricSpec
    from peerwatch_exporter.schedule.runner import Runner
    from peerwatch_exporter.snapshot import FastSnapshot, Snapshot

# A snapshot older than ten ticks says nothing about the node as it is: the clock's thread starves,
# or the process was stopped and has just gone on.
_STALE_SECONDS = 10.0


class Endpoints:
    """What a scrape gets; safe for any number of threads, and never reads from the node.

    Parameters
    ----------
    runner
        Takes the snapshots. If it keeps history, the fast endpoint gives, with the time of each,
        all samples that the scraper did not get yet; else the newest values, without times.
    more_samples
        Called by the fast endpoint with history: returns further samples between two Unix times,
        such as values read more often than once a second.
    on_shortened
        Called with metric and label for every label value that was too long.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        more_samples: Callable[[float, float], Sequence[TimedFamily]] | None = None,
        on_shortened: Callable[[str, str], None] = lambda _metric, _label: None,
    ) -> None:
        self._runner = runner
        self._more_samples = more_samples
        self._lock = threading.Lock()
        self._renderer = Renderer(on_shortened=on_shortened)
        self._scrapers = Scrapers(runner.monotonic)
        self._kept: dict[tuple[str, bool], tuple[Snapshot, Pieces]] = {}

    def full(self, *, openmetrics: bool, timeout: float) -> Pieces:
        """Return the exposition of everything.

        Parameters
        ----------
        openmetrics
            In OpenMetrics; else in Prometheus' text format.
        timeout
            Seconds to wait at most for the first snapshot; after that the exporter's own
            metrics stand alone, as they do when the newest snapshot is too old.
        """
        snapshot = self._runner.snapshot(timeout)
        with self._lock:
            if snapshot is None:
                return self._rendered(self._runner.own(), openmetrics)
            if self._is_stale(snapshot):
                return self._rendered(snapshot.own, openmetrics)
            return self._exposition("full", snapshot, snapshot.families, openmetrics)

    def fast(self, *, openmetrics: bool, scraper: str | None, timeout: float) -> Pieces:
        """Return the exposition of the few series that are read every second.

        Parameters
        ----------
        openmetrics, timeout
            As for ``full``.
        scraper
            Who asks: with history each gets every sample once. ``None`` is a name too.
        """
        snapshot = self._runner.snapshot(timeout)
        with self._lock:
            if snapshot is None or self._is_stale(snapshot):
                return self._rendered([fast_up()], openmetrics)
            if self._runner.history_seconds == 0:
                return self._exposition(
                    "fast", snapshot, snapshot.fast_history[-1].families, openmetrics
                )
            return self._rendered(self._new_to(scraper or "", snapshot), openmetrics)

    def readiness(self) -> tuple[bool, str]:
        """Return whether the endpoints have something to show, and a sentence for a person."""
        snapshot = self._runner.snapshot(0)
        if snapshot is None:
            return False, "The first snapshot is not taken yet."
        if self._is_stale(snapshot):
            age = self._runner.monotonic() - snapshot.monotonic
            return False, f"The newest snapshot is {age:.0f} s old."
        stuck = self._runner.stuck()
        if stuck and len(stuck) == len(self._runner.names):
            return False, f"Every collector is stuck: {', '.join(stuck)}."
        return True, "peerwatch-exporter is ready."

    def _is_stale(self, snapshot: Snapshot) -> bool:
        return self._runner.monotonic() - snapshot.monotonic > _STALE_SECONDS

    def _exposition(
        self, name: str, snapshot: Snapshot, families: Iterable[Family], openmetrics: bool
    ) -> Pieces:
        kept = self._kept.get((name, openmetrics))
        if kept is None or kept[0] is not snapshot:
            kept = self._kept[name, openmetrics] = (
                snapshot,
                self._rendered(families, openmetrics),
            )
        return kept[1]

    def _rendered(self, families: Iterable[Family | TimedFamily], openmetrics: bool) -> Pieces:
        return Pieces(self._renderer.pieces(families, openmetrics=openmetrics))

    def _new_to(self, scraper: str, snapshot: Snapshot) -> Sequence[Family | TimedFamily]:
        newest = snapshot.fast_history[-1]
        last = self._scrapers.last(scraper)
        if last is None:
            last = LastScrape(0, newest.time - self._runner.history_seconds)
        unseen = snapshot.fast_history[max(0, last.number + 1 - snapshot.first_in_history) :]
        self._scrapers.record(scraper, LastScrape(snapshot.number, newest.time))
        plain = [item for item in newest.families if item.spec.name in UNTIMED]
        more = () if self._more_samples is None else self._more_samples(last.time, newest.time)
        return [*plain, *timed_families(unseen), *more]


def timed_families(history: Sequence[FastSnapshot]) -> list[TimedFamily]:
    """Return the samples of several snapshots by metric and series, by rising time."""
    series: dict[MetricSpec, dict[tuple[str, ...], list[tuple[float, float]]]] = {}
    for snapshot in history:
        for item in snapshot.families:
            if item.spec.name in UNTIMED:
                continue
            samples = series.setdefault(item.spec, {})
            for labels, value in item.rows:
                samples.setdefault(labels, []).append((value, snapshot.time))
    return [
        TimedFamily(
            spec,
            [(labels, value, time) for labels, found in samples.items() for value, time in found],
        )
        for spec, samples in series.items()
    ]
