from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peerwatch_detector import compiled
from peerwatch_detector.detection.methods.peerwatch.ranked import ranked

# Noise around a level, few values many times, all sizes, and what floats have at their ends.
KINDS = ("noise", "equal", "sizes", "ends")


def values_of(kind: str, rng: np.random.Generator) -> np.ndarray:
    shape = (int(rng.integers(1, 7)), int(rng.integers(1, 60)))
    drawn = {
        "noise": 1 + 0.02 * rng.normal(0, 1, shape),
        "equal": rng.integers(-2, 3, shape).astype(np.float64),
        "sizes": np.exp(rng.normal(0, 20, shape)) * rng.choice([-1, 1], shape),
        "ends": rng.choice([0.0, -0.0, 1e-45, -1e-45, 3e38, np.inf, -np.inf], shape),
    }
    values = drawn[kind].astype(np.float32)
    values[rng.random(shape) < rng.choice([0.0, 0.1, 0.6, 1.0])] = np.nan
    return values


@pytest.mark.parametrize("fast", [True, False], ids=["compiled", "numpy"])
@given(seed=st.integers(0, 100_000), kind=st.sampled_from(KINDS), count=st.integers(1, 3))
@example(seed=2, kind="equal", count=3)
def test_what_is_ranked_are_the_values_of_sorted_rows(
    fast: bool, seed: int, kind: str, count: int
) -> None:
    rng = np.random.default_rng(seed)
    values = values_of(kind, rng)
    there = (~np.isnan(values)).sum(axis=1)
    places = np.where(there > 0, rng.integers(0, 1000, len(values)) % np.maximum(there, 1), -1)
    expected = np.full((len(values), count), np.nan, np.float32)
    for row, place in zip(range(len(values)), places, strict=True):
        if place >= 0:
            part = np.sort(values[row])[place : place + count]
            expected[row, : len(part)] = part
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "AVAILABLE", fast)
        np.testing.assert_array_equal(expected, ranked(values, places, count))
