"""What a change costs, from pairs of measurements that ran under the same conditions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Difference:
    """The median of paired differences, with a 95 % interval, in the unit of what was measured."""

    median: float
    low: float
    high: float
    pairs: int

    def text(self, unit: str, scale: float = 1.0) -> str:
        """Return it for people, such as ``212 us (208 to 219)``."""
        middle, low, high = (f"{value * scale:.3g}" for value in (self.median, self.low, self.high))
        return f"{middle} {unit} ({low} to {high})"


def difference(without: list[float], with_it: list[float]) -> Difference:
    """Return by how much the second of each pair is more than the first.

    The interval is the quantiles of the medians of 2,000 bootstrap draws of whole pairs; the seed
    is fixed.
    """
    differences = np.subtract(with_it, without)
    rng = np.random.default_rng(1)
    drawn = rng.choice(differences, size=(_DRAWS, len(differences)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return Difference(float(np.median(differences)), float(low), float(high), len(differences))
