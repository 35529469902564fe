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

    from peerwatch_checks.check import Context
    from peerwatch_common.check_results.record import Status

# Fewer say nothing about what is usual: one of three that is slow is a third of them.
MIN_PEERS = 4
# The fewest of which one that went wrong does not move the median.
MIN_EARLIER = 3
# 1.4826 makes the median absolute deviation of a normal distribution its standard deviation.
_DEVIATIONS = 3 * 1.4826
# However far values of a busy node lie apart, a quarter of what is usual is not usual.
_MOST_DISTANCE = 0.75
# Twenty that share a disk or a CPU get that much each: below it nobody is only disturbed.
_LEAST_SHARE = 0.05
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

    def allows(self, value: float, *, higher_is_better: bool = True) -> bool:
        """Return whether a value is on the good side of the limit."""
        return value >= self.limit if higher_is_better else value <= self.limit


def limit_of(values: Sequence[float], tolerance: float, *, higher_is_better: bool = True) -> float:
    """Return from where on a value is unlike others.

    It is ``max(3 x 1.4826 x MAD, tolerance x median)`` from their median, on the bad side, and at a
    quarter of it at the latest: the values of a node that others use may lie so far apart that
    nothing would ever be bad.

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
    return _limit(middle, spread, tolerance, higher_is_better=higher_is_better)


def _limit(middle: float, spread: float, tolerance: float, *, higher_is_better: bool) -> float:
    distance = max(_DEVIATIONS * spread, tolerance * abs(middle))
    if not higher_is_better:
        return middle + distance
    return middle - min(distance, max(_MOST_DISTANCE, tolerance) * abs(middle))


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


def reference_for(
    context: Context,
    device: str,
    unit: str,
    tolerance: float,
    *,
    others: Sequence[float] = (),
    floor: float | None = None,
) -> Reference | None:
    """Return what a check's value for a device is to be compared with; None: with nothing.

    What Prometheus has of other nodes comes first, where they are enough.

    Parameters
    ----------
    context
        What is known of other nodes and of earlier runs.
    device
        Whose value.
    unit
        Of the value: others in another one are not compared.
    tolerance, floor
        As for ``reference``.
    others
        What parts of the same kind achieve on this node; they count as peers.
    """
    usual = context.usual.get(device)
    if usual is not None and usual.unit == unit and usual.count >= MIN_PEERS:
        limit = _limit(usual.median, usual.deviation, tolerance, higher_is_better=True)
        source = f"the median of {usual.count} peers in Prometheus"
        return Reference(usual.median, limit, source)
    peers = [*context.peers.get(device, ()), *others]
    return reference(peers, context.earlier.get(device, ()), tolerance, floor=floor)


def evaluate(
    value: float,
    unit: str,
    against: Reference | None,
    *,
    what: str,
    advice: str,
    device: str = "",
    higher_is_better: bool = True,
    disturbed: str = "",
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
    disturbed
        What others used of the node meanwhile, a sentence; empty: nothing to speak of. Then a bad
        value counts only if it is far below what sharing with them explains.

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
    bad = not against.allows(value, higher_is_better=higher_is_better)
    near = against.is_floor and (
        value < against.limit * _NEAR_FLOOR
        if higher_is_better
        else value > against.limit / _NEAR_FLOOR
    )
    if bad and disturbed and _is_shared(value, against, higher_is_better=higher_is_better):
        text = f"{found}; {known}. {disturbed} So it says nothing: run it again on an idle node."
        return Outcome("skipped", text, device)
    if bad:
        return Outcome("fail", f"{found}; {known}. {advice}", device, value, unit, against.expected)
    status: Status = "warn" if near else "pass"
    return Outcome(status, f"{found}; {known}.", device, value, unit, against.expected)


def _is_shared(value: float, against: Reference, *, higher_is_better: bool) -> bool:
    """Return whether others who use the same thing explain a bad value."""
    if higher_is_better:
        return value >= _LEAST_SHARE * against.expected
    return value <= against.expected / _LEAST_SHARE
