"""The sampler's counters on a grid finer than a second, for the fast endpoint with history.

A scrape every 10 s can so carry what happened every 100 ms (Minder, NSDI'25, section 6.6). The
grid stands on whole multiples of the step in Unix time, so that all nodes share its instants.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import TimedFamily
from peerwatch_exporter.catalog import CATALOG
from peerwatch_exporter.sampler.ring import MISSING, RingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from peerwatch_exporter.sampler.layout import SampledGroup
    from peerwatch_exporter.sampler.process import Sampler
    from peerwatch_exporter.sampler.ring import Rows

# By counter: the metric that all ports' counters are added up to.
_METRICS = {
    "transmit_bytes": "fast_fine_rdma_bytes_per_second",
    "receive_bytes": "fast_fine_rdma_bytes_per_second",
    "transmit_pause_frames": "fast_fine_pfc_transmit_pause_frames_per_second",
    "receive_pause_frames": "fast_fine_pfc_receive_pause_frames_per_second",
    "ecn_marked_packets": "fast_fine_ecn_marked_packets_per_second",
    "cnp_sent": "fast_fine_cnp_sent_packets_per_second",
}
# The newest rows may not be there yet when it is scraped; what is left out then would never come.
# Chosen: far above the sampler's intervals, and a scrape a second still has the last second's.
_LAG_SECONDS = 0.5
# Between two samples further apart than the sampler's longest interval nobody knows when a counter
# rose.
_LONGEST_GAP_SECONDS = 1.0


class FineSamples:
    """Gives the rates of the last seconds on the grid; safe for any number of threads.

    Parameters
    ----------
    sampler
        Whose samples they are.
    step_seconds
        Of the grid.
    clock, monotonic
        Unix time, and the clock of the samples.
    """

    def __init__(
        self,
        sampler: Sampler,
        step_seconds: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._sampler = sampler
        self._step = step_seconds
        self._clock = clock
        self._monotonic = monotonic

    def __call__(self, since: float, until: float) -> list[TimedFamily]:
        """Return the samples after ``since`` and up to ``until``, two Unix times.

        They are half a second late. Asked with adjoining times, each instant comes once.
        """
        first = math.floor((since - _LAG_SECONDS) / self._step) + 1
        last = math.floor((until - _LAG_SECONDS) / self._step)
        if last < first:
            return []
        offset = self._clock() - self._monotonic()
        sums: dict[str, list[float | None]] = {}
        for group in self._sampler.state().layout.groups:
            for metric, rates in self._rates(group, first, last, offset):
                known = sums.setdefault(metric, [0.0] * len(rates))
                # A sum without one of its ports would appear as a drop.
                sums[metric] = [
                    None if total is None or other is None else total + other
                    for total, other in zip(known, rates, strict=True)
                ]
        return [
            TimedFamily(
                CATALOG[metric],
                [
                    ((), rate, round((first + number) * self._step, 3))
                    for number, rate in enumerate(rates)
                    if rate is not None
                ],
            )
            for metric, rates in sums.items()
            if any(rate is not None for rate in rates)
        ]

    def _rates(
        self, group: SampledGroup, first: int, last: int, offset: float
    ) -> Iterator[tuple[str, list[float | None]]]:
        """Yield metric and rates of each counter of a group that has one."""
        wanted = [
            (number, _METRICS[series.counter.name], series.counter.factor)
            for number, series in enumerate(group.series)
            if series.counter.name in _METRICS
        ]
        rows = self._rows(group, first, offset) if wanted else None
        if rows is None:
            return
        instants = [(number * self._step - offset) * 1e9 for number in range(first - 1, last + 1)]
        for number, metric, factor in wanted:
            yield metric, _on_grid(rows.times, rows.columns[number], instants, factor / self._step)

    def _rows(self, group: SampledGroup, first: int, offset: float) -> Rows | None:
        age = self._monotonic() + offset - (first - 1) * self._step + _LONGEST_GAP_SECONDS
        try:
            return self._sampler.read(group, math.ceil(age / group.interval_seconds) + 2)
        except RingError:
            # The process is being started again; its collector reports it.
            return None


def _on_grid(
    times: Sequence[int], values: Sequence[int], instants: Sequence[float], factor: float
) -> list[float | None]:
    """Return the rises between adjoining instants, times ``factor``; None where not known."""
    known = [(time, value) for time, value in zip(times, values, strict=True) if value != MISSING]
    times_known = [time for time, _ in known]
    levels = [_level(known, times_known, instant) for instant in instants]
    return [
        None if low is None or high is None or high < low else (high - low) * factor
        for low, high in pairwise(levels)
    ]


def _level(
    known: Sequence[tuple[int, int]], times_known: Sequence[int], instant: float
) -> float | None:
    """Return the counter at an instant, on the line between its neighbours."""
    after = bisect_left(times_known, instant)
    if after == len(times_known) or (after == 0 and times_known[0] != instant):
        return None
    time, value = known[after]
    if time == instant:
        return float(value)
    before, start = known[after - 1]
    if time - before > _LONGEST_GAP_SECONDS * 1e9 or value < start:
        return None
    return start + (value - start) * (instant - before) / (time - before)
