"""RollingMean over the last seconds, for values that swing with the steps of the job.

A training job repeats itself every few seconds. Whoever reads a gauge as rarely as that sees
the same part of a step again and again, and on another node, scraped at another moment, another
part: healthy nodes differ for as long as the two rhythms keep in step. A mean over the time between
two scrapes shows the whole of it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from peerwatch_common.metrics.spec import Family

# Ticks of the clock are a second apart, but for some milliseconds.
_HALF_TICK_SECONDS = 0.5
_DIGITS = 9  # the last of a float's 17 differ with the order of adding


class _Reading(NamedTuple):
    """When a gauge was read, and the value of each series: two sequences in the same order."""

    time: float
    labels: tuple[tuple[str, ...], ...]
    values: tuple[float, ...]


class _Last(NamedTuple):
    """A family, what was made of it, and whether nothing else had come within the seconds."""

    came: Family
    made: Family
    alone: bool


class RollingMean:
    """Puts the mean of the last seconds in the place of every gauge that swings.

    Parameters
    ----------
    seconds
        Of the mean; 1 leaves every value as it is.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._past: dict[str, deque[_Reading]] = {}
        # By metric: what came last.
        self._last: dict[str, _Last] = {}

    def cover(self, seconds: float) -> None:
        """Take means over so long from now on; what is remembered stays."""
        if seconds != self._seconds:
            self._seconds = seconds
            # Nobody added to it while it was off.
            if seconds <= 1:
                self._past.clear()

    def __call__(self, families: Iterable[Family], now: float) -> Iterator[Family]:
        """Yield the families, those that swing as means.

        Parameters
        ----------
        families
            Each metric once.
        now
            The tick's time on the clock for durations.
        """
        if self._seconds <= 1:
            yield from families
            return
        for item in families:
            yield self._mean(item, now) if item.spec.swings else item

    def _mean(self, item: Family, now: float) -> Family:
        name = item.spec.name
        past = self._past.setdefault(name, deque())
        last = self._last.get(name)
        # What stands still comes as the very same object: its values are not taken out again.
        if past and last is not None and last.came is item:
            newest = past[-1]._replace(time=now)
        else:
            newest = _reading(item, now, past)
        past.append(newest)
        while past[0].time < now - self._seconds + _HALF_TICK_SECONDS:
            past.popleft()
        alone = all(reading.values is newest.values for reading in past)
        if alone and last is not None and last.alone and last.came is item:
            return last.made
        result = item.spec.family()
        result.rows = [
            (series, round(sum(values) / len(values), _DIGITS))
            for series, values in zip(newest.labels, _by_series(past, newest.labels), strict=True)
        ]
        # The very same object says that nothing is new.
        if last is not None and last.made.rows == result.rows:
            result = last.made
        self._last[name] = _Last(item, result, alone)
        return result


def _reading(item: Family, now: float, past: Sequence[_Reading]) -> _Reading:
    labels = tuple([labels for labels, _ in item.rows])
    # Of labels that stay, every reading holds the same object: quick to compare.
    if past and past[-1].labels == labels:
        labels = past[-1].labels
    return _Reading(now, labels, tuple([value for _, value in item.rows]))


def _by_series(
    past: Iterable[_Reading], wanted: tuple[tuple[str, ...], ...]
) -> Iterable[Sequence[float]]:
    """Return the values of each of the wanted series, oldest first."""
    if all(reading.labels is wanted for reading in past):
        return zip(*[reading.values for reading in past], strict=True)
    found = [dict(zip(reading.labels, reading.values, strict=True)) for reading in past]
    return ([values[series] for values in found if series in values] for series in wanted)
