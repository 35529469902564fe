"""Whether a node's value can be told from its peers', and how that is written."""

from __future__ import annotations

import math

from peerwatch_detector.units import quantity
from peerwatch_detector.web.deviation import Curve

# The value that is told is that of so many seconds after a deviation began, or of the first moment
# within so many at which the two read differently.
_TOLD_AFTER_SECONDS, _TOLD_WITHIN_SECONDS = 30.0, 300.0
UNTOLD = "deviates"


def difference(curve: Curve, since: float) -> str:
    """Return the node's value and its peers' soon after a deviation began.

    Empty where both read alike all the while: such a metric shows a person nothing, as where a
    node only stands where it usually does not.
    """
    known = [
        (value, median)
        for time, value, median in zip(curve.times, curve.values, curve.median, strict=True)
        if math.isfinite(value) and math.isfinite(median)
        if since + _TOLD_AFTER_SECONDS <= time <= since + _TOLD_WITHIN_SECONDS
    ]
    if not known:
        return UNTOLD
    told = [(quantity(value, curve.unit), quantity(median, curve.unit)) for value, median in known]
    return next((f"{own}, peers {peers}" for own, peers in told if own != peers), "")
