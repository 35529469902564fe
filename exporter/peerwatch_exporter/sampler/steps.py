"""From raw counter values to rates between successive samples."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from operator import sub, truediv
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# No link carries more than its rate; a little more may show, for a value is read some microseconds
# after its time was taken: 50 us of the shortest interval, 1 ms.
_POSSIBLE = 1.05
_NANOSECONDS = 1e9


@dataclass(slots=True)
class Steps:
    """What happened between samples: each list has an entry per step.

    Parameters
    ----------
    times
        End of the step, monotonic nanoseconds.
    seconds
        Its length.
    growth
        What the counter rose by, in its own counts.
    rates
        Growth per second, in the series' unit.
    spread
        Whether some rates were spread out, so that steps before these matter too.
    """

    times: list[int]
    seconds: list[float]
    growth: list[int]
    rates: list[float]
    spread: bool = False


def lengths(times: Sequence[int]) -> list[float]:
    """Return the seconds between successive times; never 0."""
    return [max(1, later - earlier) / _NANOSECONDS for earlier, later in pairwise(times)]


def steps(
    times: Sequence[int],
    seconds: Sequence[float],
    values: Sequence[int],
    *,
    factor: int = 1,
    line_rate: float | None = None,
) -> Steps:
    """Return the steps between samples; those to or from a missing value, or down, are left out.

    Parameters
    ----------
    times, values
        Of the samples; negative values are missing.
    seconds
        ``lengths(times)``, worked out once for all series of a group.
    factor
        What one count stands for.
    line_rate
        What the link can carry, in the series' unit; a step above it is spread out.
    """
    later = values[1:]
    result = Steps(list(times[1:]), list(seconds), list(map(sub, later, values)), [])
    if values and (min(values) < 0 or min(result.growth, default=0) < 0):
        _leave_out(result, values)
    scaled = result.seconds if factor == 1 else [length / factor for length in result.seconds]
    result.rates = list(map(truediv, result.growth, scaled))
    if line_rate is not None and max(result.rates, default=0.0) > line_rate * _POSSIBLE:
        result.spread = True
        _spread(result, factor, line_rate * _POSSIBLE)
    return result


def since(result: Steps, time: int) -> Steps:
    """Return the steps that end after a time."""
    first = bisect_right(result.times, time)
    return Steps(
        result.times[first:],
        result.seconds[first:],
        result.growth[first:],
        result.rates[first:],
        result.spread,
    )


def _leave_out(result: Steps, values: Sequence[int]) -> None:
    """Drop steps that say nothing: a value is missing, or the counter began anew."""
    kept = [
        index
        for index, grown in enumerate(result.growth)
        if grown >= 0 and values[index] >= 0 and values[index + 1] >= 0
    ]
    result.times = [result.times[index] for index in kept]
    result.seconds = [result.seconds[index] for index in kept]
    result.growth = [result.growth[index] for index in kept]


def _spread(result: Steps, factor: int, possible: float) -> None:
    """Spread what the link cannot have carried in one step over steps before it.

    Some NICs refresh a counter more rarely than it is read: it stands still and jumps, again and
    again after about the same time, and a jump belongs to that time. A jump after a longer pause
    is the beginning of a burst, and goes back only as far as the link's speed makes it.
    """
    rates, growth, seconds = result.rates, result.growth, result.seconds
    last, usual_gap = -1, 1
    for index, rate in enumerate(rates):
        if not growth[index]:
            continue
        gap = index - last if last >= 0 else 1
        if rate > possible:
            first, amount, length = index, growth[index], seconds[index]
            reach = index + 1 - min(gap, usual_gap)
            while first > 0 and (first > reach or amount * factor / length > possible):
                first -= 1
                amount += growth[first]
                length += seconds[first]
            rates[first : index + 1] = [amount * factor / length] * (index + 1 - first)
        last, usual_gap = index, gap
