"""In which scale levels are compared: by factors (default) or by differences.

By factors a node's permanent offset is one constant, whether the job computes or waits, and one
minimum effect size serves every cluster. A floor per metric keeps factors between two values that
are both next to nothing from counting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import MetricConfig
from peerwatch_detector.detection.methods.peerwatch.peers import Levels

# The floor of a metric matters for how far a node deviates; its usual offset may be told from
# smaller values.
_OFFSET_FLOOR_SHARE = 0.1
# Up to this share of the floor a usual level is nothing. A reading of 0 has an offset as of the
# smaller floor, give or take what the job's level moves.
_NOTHING_SHARE = 2 * _OFFSET_FLOOR_SHARE


@dataclass(frozen=True, slots=True)
class Scale:
    """Offsets and distances of one metric.

    Parameters
    ----------
    floor
        Added to a level before its logarithm is taken, in the metric's unit.
    by_factor
        Whether to compare by factors; else by differences.
    """

    floor: float
    by_factor: bool

    def offset(self, values: NDArray[np.float32], middle: float) -> Levels:
        """Return how far values lie from the job's median of the same second."""
        if not self.by_factor:
            return values.astype(np.float64) - middle
        small = self.floor * _OFFSET_FLOOR_SHARE
        return np.log((np.maximum(values, 0) + small) / (max(middle, 0) + small))

    def offsets(self, values: NDArray[np.float32], middles: Levels) -> NDArray[np.float32]:
        """Do the same by factors for values of several seconds, shape (n_steps, n_units)."""
        small = self.floor * _OFFSET_FLOOR_SHARE
        # ``offset`` divides float32 by a number of Python's, which is rounded to float32 for it.
        below = (np.maximum(middles, 0) + small).astype(np.float32)
        return np.log((np.maximum(values, 0) + small) / below[:, None])

    def without(self, values: NDArray[np.float32], offset: Levels) -> NDArray[np.float32]:
        """Take every unit's offset out of its values, shape (n_units, n_steps)."""
        if self.by_factor:
            return (values * np.exp(-offset)[:, None]).astype(np.float32)
        return (values - offset[:, None]).astype(np.float32)

    def restored(self, levels: Levels, offset: Levels) -> Levels:
        """Return levels as measured from levels without their offsets, shape (n_units,)."""
        return levels * np.exp(offset) if self.by_factor else levels + offset

    def nothing(self, offset: Levels, level: float) -> NDArray[np.bool_]:
        """Return which units usually show nothing, such as a sensor that always reads 0.

        No factor brings them to where their peers are.

        Parameters
        ----------
        offset
            Usual one of every unit, shape (n_units,).
        level
            The job's usual level.
        """
        if not self.by_factor:
            return np.zeros(len(offset), dtype=np.bool_)
        none: NDArray[np.bool_] = level * np.exp(offset) <= self.floor * _NOTHING_SHARE
        return none

    def distance(self, levels: Levels, others: Levels | float, floor: float) -> Levels:
        """Return how far levels lie above (positive) or below others."""
        if not self.by_factor:
            return levels - others
        return np.log(np.maximum(levels, 0) + floor) - np.log(np.maximum(others, 0) + floor)

    def min_effect_size(self, metric: MetricConfig, usual: float) -> float:
        """Return the distance below which a deviation never matters.

        Parameters
        ----------
        metric
            Its ``min_ratio``, or else its ``min_effect_size`` seen from the usual level.
        usual
            The job's usual level.
        """
        if not self.by_factor:
            return metric.min_effect_size
        if metric.min_ratio is not None:
            return float(np.log(metric.min_ratio))
        return float(np.log1p(metric.min_effect_size / (max(usual, 0) + self.floor)))
