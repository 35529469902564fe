"""The two pages, rendered from the newest snapshot when somebody asks and kept until the next."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from peerwatch_exporter.pages.render import Renderer
from peerwatch_exporter.pages.scrapers import Given, Scrapers
from peerwatch_exporter.schedule.fast import UNTIMED, fast_up
from peerwatch_exporter.snapshot import TimedFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from peerwatch_exporter.catalog import Family, MetricSpec
    from peerwatch_exporter.schedule.runner import Runner
    from peerwatch_exporter.snapshot import Moment, Snapshot

# A snapshot older than this says nothing about the node as it is: the clock's thread starves, or
# the process was stopped and has just gone on.
_STALE_SECONDS = 10.0


class Pages:
    """What the server sends; safe for any number of threads, and never reads from the node.

    Parameters
    ----------
    runner
        Takes the snapshots. If it keeps history, the fast page holds, with the time of each, all
        samples that the scraper was not given yet; else the newest values, plainly.
    more_samples
        Called for a fast page with history: returns further samples between two Unix times, such
        as values read more often than once a second.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        more_samples: Callable[[float, float], Sequence[TimedFamily]] | None = None,
    ) -> None:
        self._runner = runner
        self._more_samples = more_samples
        self._lock = threading.Lock()
        self._renderer = Renderer()
        self._scrapers = Scrapers(runner.monotonic)
        self._kept: dict[tuple[str, bool], tuple[Snapshot, bytes]] = {}

    def full(self, *, openmetrics: bool, timeout: float) -> bytes:
        """Return the page with everything.

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
                return self._renderer.render(self._runner.own(), openmetrics=openmetrics)
            if self._is_stale(snapshot):
                return self._renderer.render(snapshot.own, openmetrics=openmetrics)
            return self._page("full", snapshot, snapshot.families, openmetrics)

    def fast(self, *, openmetrics: bool, scraper: str | None, timeout: float) -> bytes:
        """Return the page of the few series that are read every second.

        Parameters
        ----------
        openmetrics, timeout
            As for the full page.
        scraper
            Who asks: with history each is given every sample once. ``None`` is a name too.
        """
        snapshot = self._runner.snapshot(timeout)
        with self._lock:
            if snapshot is None or self._is_stale(snapshot):
                return self._renderer.render([fast_up()], openmetrics=openmetrics)
            if self._runner.history_seconds == 0:
                return self._page("fast", snapshot, snapshot.moments[-1].families, openmetrics)
            families = self._new_to(scraper or "", snapshot)
            return self._renderer.render(families, openmetrics=openmetrics)

    def readiness(self) -> tuple[bool, str]:
        """Return whether the page is worth reading, and a sentence for a person."""
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

    def _page(
        self, name: str, snapshot: Snapshot, families: Iterable[Family], openmetrics: bool
    ) -> bytes:
        kept = self._kept.get((name, openmetrics))
        if kept is None or kept[0] is not snapshot:
            page = self._renderer.render(families, openmetrics=openmetrics)
            kept = self._kept[name, openmetrics] = (snapshot, page)
        return kept[1]

    def _new_to(self, scraper: str, snapshot: Snapshot) -> Sequence[Family | TimedFamily]:
        newest = snapshot.moments[-1]
        last = self._scrapers.last(scraper)
        if last is None:
            last = Given(0, newest.time - self._runner.history_seconds)
        moments = snapshot.moments[max(0, last.number + 1 - snapshot.first_moment) :]
        self._scrapers.give(scraper, Given(snapshot.number, newest.time))
        plain = [item for item in newest.families if item.spec.name in UNTIMED]
        more = () if self._more_samples is None else self._more_samples(last.time, newest.time)
        return [*plain, *timed_families(moments), *more]


def timed_families(moments: Sequence[Moment]) -> list[TimedFamily]:
    """Return the samples of several moments by metric and series, by rising time."""
    series: dict[MetricSpec, dict[tuple[str, ...], list[tuple[float, float]]]] = {}
    for moment in moments:
        for item in moment.families:
            if item.spec.name in UNTIMED:
                continue
            samples = series.setdefault(item.spec, {})
            for labels, value in item.rows:
                samples.setdefault(labels, []).append((value, moment.time))
    return [
        TimedFamily(
            spec,
            [(labels, value, time) for labels, found in samples.items() for value, time in found],
        )
        for spec, samples in series.items()
    ]
