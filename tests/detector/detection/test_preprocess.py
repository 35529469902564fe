from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detector import naive
from peerwatch_detector import compiled
from peerwatch_detector.detection.preprocess import fill_nearest, min_max, windows
from peerwatch_detector.frame import mean_over_gpus

gappy = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 40)),
    elements=st.floats(-9, 9, width=32) | st.just(math.nan),
)


@given(values=gappy, limit=st.integers(0, 12), lookahead=st.integers(0, 12))
def test_gaps_are_filled_by_the_nearest_sample_in_reach(
    values: np.ndarray, limit: int, lookahead: int
) -> None:
    expected = naive.fill_nearest(values, limit, lookahead)
    np.testing.assert_array_equal(fill_nearest(values, limit, lookahead=lookahead), expected)


@given(values=gappy, limit=st.integers(0, 12), data=st.data())
def test_without_lookahead_the_future_does_not_matter(
    values: np.ndarray, limit: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, values.shape[1]))
    whole = fill_nearest(values, limit)[:, :cut]
    np.testing.assert_array_equal(fill_nearest(values[:, :cut], limit), whole)


def test_filling_leaves_its_input_alone_and_takes_more_axes() -> None:
    values = np.full((2, 3, 5), np.nan, dtype=np.float32)
    values[1, 2, 1] = 4.0
    filled = fill_nearest(values, 2)
    np.testing.assert_equal(filled[1, 2], [math.nan, 4, 4, 4, math.nan])
    assert 1 == np.isfinite(values).sum()
    assert np.float32 == filled.dtype


def test_infinite_samples_count_as_gaps() -> None:
    values = np.array([[1, math.inf, 3]], dtype=np.float32)
    assert [[1.0, 1.0, 3.0]] == fill_nearest(values, 5).tolist()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(10.0, 0.0), (20.0, 1.0), (12.5, 0.25), (9.0, 0.0), (1e9, 1.0)],
)
def test_min_max_maps_the_bounds_to_0_and_1_and_clips(value: float, expected: float) -> None:
    scaled = min_max(np.array([value], dtype=np.float32), (10.0, 20.0))
    assert [expected] == scaled.tolist()
    assert np.float32 == scaled.dtype


@given(values=gappy, length=st.integers(1, 12))
def test_windows_slide_by_one_and_end_at_their_step(values: np.ndarray, length: int) -> None:
    expected = naive.windows(values, length)
    cut = windows(values, length)
    assert (len(expected), values.shape[0], length) == cut.shape
    np.testing.assert_array_equal(cut, np.reshape(expected, cut.shape))


@given(
    per_gpu=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 3), st.integers(1, 8), st.integers(1, 6)),
        elements=st.floats(-9, 9, width=32) | st.sampled_from([math.nan, math.inf, -0.0]),
    )
)
def test_the_mean_over_gpus_is_over_those_with_a_sample(per_gpu: np.ndarray) -> None:
    found = mean_over_gpus(per_gpu)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "AVAILABLE", False)
        np.testing.assert_allclose(mean_over_gpus(per_gpu), found, rtol=1e-5, atol=1e-6)
    for node, step in np.ndindex(found.shape):
        known = [float(v) for v in per_gpu[node, :, step] if math.isfinite(v)]
        expected = math.fsum(known) / len(known) if known else math.nan
        np.testing.assert_allclose(found[node, step], expected, rtol=1e-4, atol=1e-5)
