"""Whether a measured value is what it should be: against peers first, then a floor, then its past.

The rule is relative where it can be: GPUs and images change, and a table of absolute values ages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from peerwatch_checks.check import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_common.check_results.record import Status

# Fewer say nothing about what is usual: one of three that is slow is a third of them.
MIN_PEERS = 4
MIN_EARLIER = 3
# 1.4826 makes the median absolute deviation of a normal distribution its standard deviation.
_DEVIATIONS = 3 * 1.4826
# Between the limit and 5 % above a floor, as Azure's health checks do.
_NEAR_FLOOR = 1.05


@dataclass(frozen=True, slots=True)
class Reference:
    """What a value is compared with.

    Parameters
    ----------
    expected, limit
        What is usual, and from where on the value is bad.
    source
        Where both come from, in words: ``the median of 8 peers``.
    is_floor
        Whether the limit is an absolute one.
    """

    expected: float
    limit: float
    source: str
    is_floor: bool = False


def limit_of(values: Sequence[float], tolerance: float, *, higher_is_better: bool = True) -> float:
    """Return from where on a value is unlike others.

    It is ``max(3 x 1.4826 x MAD, tolerance x median)`` from their median, on the bad side.

    Parameters
    ----------
    values
        What the others measured; at least one.
    tolerance
        Share of the median that is never a fault, such as 0.1.
    higher_is_better
        False for durations and latencies.
    """
    middle = median(values)
    spread = median(abs(value - middle) for value in values)
    distance = max(_DEVIATIONS * spread, tolerance * abs(middle))
    return middle - distance if higher_is_better else middle + distance


def reference(
    peers: Sequence[float],
    earlier: Sequence[float],
    tolerance: float,
    *,
    floor: float | None = None,
    higher_is_better: bool = True,
) -> Reference | None:
    """Return what a value is to be compared with; None: with nothing, for nothing is known.

    Parameters
    ----------
    peers
        What the check measured on nodes of the same kind; too few are not used.
    earlier
        What it measured on this node when it passed.
    tolerance
        Share of the median that is never a fault.
    floor
        The absolute limit; for durations the ceiling.
    higher_is_better
        False for durations and latencies.
    """
    if len(peers) >= MIN_PEERS:
        source = f"the median of {len(peers)} peers"
        limit = limit_of(peers, tolerance, higher_is_better=higher_is_better)
        return Reference(median(peers), limit, source)
    if floor is not None:
        return Reference(floor, floor, "the configured limit", is_floor=True)
    if len(earlier) >= MIN_EARLIER:
        source = f"the median of its last {len(earlier)} runs"
        limit = limit_of(earlier, tolerance, higher_is_better=higher_is_better)
        return Reference(median(earlier), limit, source)
    return None


def judged(
    value: float,
    unit: str,
    against: Reference | None,
    *,
    what: str,
    advice: str,
    device: str = "",
    higher_is_better: bool = True,
) -> Outcome:
    """Return the outcome for a measured value.

    Parameters
    ----------
    value, unit
        What was measured.
    against
        What ``reference`` returned.
    what
        Name of the value, to begin a sentence with: ``Copying memory``.
    advice
        What to do if it is bad; a sentence.
    device
        What was measured.
    higher_is_better
        False for durations and latencies.

    Raises
    ------
    ValueError
        If the value is no finite number: nothing was measured.
    """
    if not math.isfinite(value):
        raise ValueError(f"{what} gave {value!r}, which is no measurement.")
    found = f"{what}: {value:.4g} {unit}"
    if against is None:
        text = f"{found}; measured only: there are no peers, no limit and no earlier runs yet."
        return Outcome("pass", text, device, value, unit)
    known = f"{against.source} is {against.expected:.4g}, the limit {against.limit:.4g}"
    bad = value < against.limit if higher_is_better else value > against.limit
    near = against.is_floor and (
        value < against.limit * _NEAR_FLOOR
        if higher_is_better
        else value > against.limit / _NEAR_FLOOR
    )
    if bad:
        return Outcome("fail", f"{found}; {known}. {advice}", device, value, unit, against.expected)
    status: Status = "warn" if near else "pass"
    return Outcome(status, f"{found}; {known}.", device, value, unit, against.expected)
