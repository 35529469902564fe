"""Whether a node's value can be told from its peers', and how that is written.

It cannot where both read the same, nor where they lie so close in the picture of the metric that
nobody sees two lines: a deviation is one from what is usual for the node, which may be over as soon
as the whole job stands.
"""

from __future__ import annotations

import math

from peerwatch_detector.units import quantity
from peerwatch_detector.web.deviation import Curve

# The value that is told is that of so many seconds after a deviation began, or of the first moment
# within so many at which the two read differently. Chosen: two scrapes of 15 s later rates have
# moved; later than five minutes it is another story.
_TOLD_AFTER_SECONDS, _TOLD_WITHIN_SECONDS = 30.0, 300.0
UNTOLD = "deviates"
# Lines in a picture that are closer than this share of its height are one: 3 of a small one's 92
# units, where two lines touch.
_LEAST_APART = 0.03


def difference(curve: Curve, since: float) -> str:
    """Return the node's value and its peers' soon after a deviation began; empty if alike."""
    least = _LEAST_APART * _height(curve)
    known = [
        (value, median)
        for time, value, median in zip(curve.times, curve.values, curve.median, strict=True)
        if math.isfinite(value) and math.isfinite(median)
        if since + _TOLD_AFTER_SECONDS <= time <= since + _TOLD_WITHIN_SECONDS
    ]
    if not known:
        return UNTOLD
    told = (
        (quantity(value, curve.unit), quantity(median, curve.unit))
        for value, median in known
        if abs(value - median) >= least
    )
    return next((f"{own}, peers {peers}" for own, peers in told if own != peers), "")


def _height(curve: Curve) -> float:
    """Return how far the values of a picture lie apart."""
    shown = [each for each in (*curve.values, *curve.low, *curve.high) if math.isfinite(each)]
    return max(shown) - min(shown) if shown else 0.0
