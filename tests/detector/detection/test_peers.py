from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from detector import naive
from peerwatch_detector import compiled
from peerwatch_detector.detection.methods.peerwatch.peers import compare, job_median

VALUES = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 7), st.integers(1, 6)),
    elements=st.one_of(st.just(math.nan), st.integers(0, 5).map(float)),
)


@pytest.mark.parametrize("fast", [True, False], ids=["compiled", "numpy"])
@given(values=VALUES)
def test_the_comparison_is_that_of_the_slow_version(fast: bool, values: np.ndarray) -> None:
    expected = naive.compare(values.tolist())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "AVAILABLE", fast)
        np.testing.assert_allclose(np.transpose(expected), compare(values), rtol=1e-6)


@given(VALUES)
def test_the_job_median_is_numpys(values: np.ndarray) -> None:
    expected = [
        np.nanmedian(column) if np.isfinite(column).any() else np.nan for column in values.T
    ]
    np.testing.assert_allclose(expected, job_median(values))


def test_two_others_are_both_kept() -> None:
    _, low, high = compare(np.array([[1.0], [2.0], [9.0]], dtype=np.float32))
    assert [2.0, 1.0, 1.0] == low.tolist()
    assert [9.0, 9.0, 2.0] == high.tolist()


def test_a_node_is_compared_in_its_own_seconds_only() -> None:
    rhythm = np.tile([0.0, 0.0, 10.0], 5).astype(np.float32)
    values = np.tile(rhythm, (4, 1))
    # It lost every sample of the busy seconds but one.
    values[2, 2:12:3] = np.nan
    own, low, high = compare(values)
    assert own[2] == low[2] == high[2]
    assert own[0] > own[2]


def test_a_node_with_few_samples_is_not_compared() -> None:
    values = np.ones((4, 15), dtype=np.float32)
    values[1, 6:] = np.nan
    values[3, 7:] = np.nan
    own, _, _ = compare(values)
    assert [True, False, True, True] == np.isfinite(own).tolist()


def test_a_slow_cadence_needs_no_more_than_its_own_samples() -> None:
    values = np.full((3, 15), np.nan, dtype=np.float32)
    values[:, 4::5] = [[1.0], [2.0], [4.0]]
    own, low, high = compare(values)
    assert [1.0, 2.0, 4.0] == own.tolist()
    assert [2.0, 1.0, 1.0] == low.tolist()
    assert [4.0, 4.0, 2.0] == high.tolist()
