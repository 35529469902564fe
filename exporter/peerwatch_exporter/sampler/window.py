"""Statistics of the last seconds, exact, kept second by second.

Each second keeps the largest values that could be among the largest 1 % of the whole window, so
the 99th percentile of the window is exact although its values are not kept.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_exporter.sampler.steps import Steps

# For the 99th percentile, of N values the largest N/100 and one more matter.
_TOP_SHARE = 100


class Statistics(NamedTuple):
    """What a window's values were.

    Parameters
    ----------
    samples
        How many there are.
    maximum, p99, mean
        ``p99`` is the smallest value that at least 99 % of all values do not exceed. The mean is
        over time.
    line_ratio
        Part of the samples at line rate.
    active_ratio
        Part of the samples above 0.
    update_seconds
        Median time between two changes in the newest second that had some; 0 if none had.
    """

    samples: int
    maximum: float
    p99: float
    mean: float
    line_ratio: float
    active_ratio: float
    update_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Second:
    samples: int
    sum: float
    seconds: float
    at_line: int
    active: int
    # The largest values above 0, falling.
    top: array[float]


_EMPTY = array("d")


class Window:
    """The last seconds of one series.

    Parameters
    ----------
    seconds
        How many seconds count.
    samples
        The most samples that they may hold.
    threshold
        Value from which a sample counts as at line rate; None if there is no such value.
    """

    def __init__(self, seconds: int, samples: int, threshold: float | None = None) -> None:
        self.threshold = threshold
        self._kept = samples // _TOP_SHARE + 1
        self._seconds: deque[_Second] = deque(maxlen=seconds)
        self._update_seconds = 0.0

    def add(self, steps: Steps) -> None:
        """Add a second of steps; without any, an empty second."""
        self._seconds.append(self._summary(steps.rates, steps.seconds))
        self._update_seconds = _update_seconds(steps) or self._update_seconds

    def add_values(self, values: Sequence[float], seconds: Sequence[float]) -> None:
        """Add a second of plain values, each with the time it stood for."""
        self._seconds.append(self._summary(values, seconds))

    def statistics(self) -> Statistics | None:
        """Return the statistics of the window, or None if there was no sample."""
        samples = sum(second.samples for second in self._seconds)
        if not samples:
            return None
        seconds = sum(second.seconds for second in self._seconds)
        top: list[float] = []
        for second in self._seconds:
            top.extend(second.top)
        top.sort(reverse=True)
        rank = samples - math.ceil(0.99 * samples)
        return Statistics(
            samples=samples,
            maximum=top[0] if top else 0.0,
            p99=top[rank] if rank < len(top) else 0.0,
            mean=sum(second.sum for second in self._seconds) / seconds if seconds else 0.0,
            line_ratio=sum(second.at_line for second in self._seconds) / samples,
            active_ratio=sum(second.active for second in self._seconds) / samples,
            update_seconds=self._update_seconds,
        )

    def _summary(self, values: Sequence[float], seconds: Sequence[float]) -> _Second:
        total = sum(seconds)
        if not any(values):
            return _Second(len(values), 0.0, total, 0, 0, _EMPTY)
        ordered = sorted(values, reverse=True)
        active = len(ordered) - ordered.count(0)
        at_line = 0
        if self.threshold is not None and ordered[0] >= self.threshold:
            at_line = sum(value >= self.threshold for value in ordered)
        amount = sum(map(mul, values, seconds))
        top = array("d", ordered[: min(active, self._kept)])
        return _Second(len(ordered), amount, total, at_line, active, top)


def _update_seconds(steps: Steps) -> float:
    """Return the median time between changes, 0 if there were fewer than two."""
    still = steps.growth.count(0)
    if len(steps.growth) - still < 2:
        return 0.0
    if not still:
        return _median(steps.seconds)
    changes = [time for time, grown in zip(steps.times, steps.growth, strict=True) if grown]
    gaps = [later - earlier for earlier, later in pairwise(changes)]
    return _median(gaps) / 1e9


def _median(values: Sequence[float]) -> float:
    """Return what statistics.median does; that module brings a MiB of others with it."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
