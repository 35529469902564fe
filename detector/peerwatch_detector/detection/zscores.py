"""The outlier rule of Aegis (NSDI'25): a node beyond mean + 2 standard deviations of its job.

The rule is one-sided in the paper; metrics whose harmful direction is low or both are compared
on that side too. With n nodes the score cannot exceed sqrt(n - 1): in jobs of five nodes or
fewer a threshold of 2 is never passed, which the peer score makes up for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import Direction
from peerwatch_detector.detection.similarity import Mask, Scores, normal_score


def zscores(values: NDArray[np.float64]) -> Scores:
    """Return (x - mean) / std over the nodes at every step.

    Parameters
    ----------
    values
        Shape (n_steps, n_nodes), NaN = missing.
    """
    return normal_score(values)


def outliers(scores: Scores, threshold: float, direction: Direction) -> Mask:
    """Mark scores beyond the threshold on the side that means harm.

    Parameters
    ----------
    scores
        Shape (n_steps, n_nodes), NaN = missing.
    threshold
        Standard deviations from the mean.
    direction
        The metric's harmful side.
    """
    return toward(scores, direction) > threshold


def toward(values: Scores, direction: Direction) -> Scores:
    """Turn signed deviations so that positive means harm; NaN stays NaN."""
    if direction == "both":
        return np.abs(values)
    return values if direction == "high" else -values
