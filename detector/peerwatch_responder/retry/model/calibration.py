"""Makes of a model's score how likely it is that another attempt is worth it (Platt's scaling)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Calibration:
    """A line through the scores: the chance is the logistic function of it.

    Parameters
    ----------
    slope, intercept
        Of the line; 1 and 0 leave a score as it is.
    """

    slope: float = 1.0
    intercept: float = 0.0

    def chance(self, score: float) -> float:
        """Return how likely it is that another attempt is worth it, 0 to 1."""
        return float(self.chances(np.array([score]))[0])

    def chances(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the same for many scores."""
        value = np.clip(self.slope * scores + self.intercept, -50, 50)
        return 1 / (1 + np.exp(-value))


def fit_calibration(scores: NDArray[np.float64], truths: NDArray[np.bool_]) -> Calibration:
    """Return the line that makes scores of texts that were not learnt from likely.

    Platt's targets, which are a little inside of 0 and 1, keep few texts from too much certainty.
    """
    right = int(truths.sum())
    high, low = (right + 1) / (right + 2), 1 / (len(truths) - right + 2)
    target = np.where(truths, high, low)
    design = np.stack([scores, np.ones_like(scores)], axis=1)
    line = np.array([1.0, 0.0])
    for _ in range(100):
        chance = 1 / (1 + np.exp(-np.clip(design @ line, -50, 50)))
        slope = np.maximum(chance * (1 - chance), 1e-9)
        hessian = design.T @ (design * slope[:, None]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, design.T @ (target - chance))
        line += np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-9:
            break
    # A model that is worse than nothing must not be believed the other way round.
    return Calibration(max(float(line[0]), 0.0), float(line[1]))
