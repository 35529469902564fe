from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detector import naive
from each_case import each_case
from peerwatch_detector import compiled
from peerwatch_detector.detection.similarity import (
    Distance,
    distance_sums,
    leave_one_out_median,
    normal_score,
    peer_score,
    single_candidates,
    sums_over_some,
    whiten,
)

finite = st.floats(0, 1, width=32)


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    """Return sums of some windows, nodes missing here and there."""
    shape = draw(st.tuples(st.integers(0, 5), st.integers(1, 40)))
    # Equal values are drawn on purpose: ranks and medians must cope with them.
    value = st.sampled_from([0.0, 1.0, 2.5]) | st.floats(0, 100)
    values = draw(hnp.arrays(np.float64, shape, elements=value))
    values[draw(hnp.arrays(bool, shape, elements=st.booleans()))] = math.nan
    return values


@settings(max_examples=60)
@given(
    data=st.data(),
    nodes=st.integers(1, 40),
    features=st.integers(1, 12),
    distance=st.sampled_from(["euclidean", "manhattan", "chebyshev"]),
)
def test_distance_sums_are_the_sums_of_all_pairs(
    data: st.DataObject, nodes: int, features: int, distance: str
) -> None:
    shape = (data.draw(st.integers(0, 3)), nodes, features)
    points = data.draw(hnp.arrays(np.float32, shape, elements=finite))
    present = data.draw(hnp.arrays(bool, shape[:2], elements=st.booleans()))
    points[~present] = 7.0
    expected = naive.distance_sums(points, present, distance)
    found = distance_sums(points, present, distance)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("distance", "order"), [("euclidean", 2), ("manhattan", 1), ("chebyshev", np.inf)]
)
def test_distance_sums_of_a_job_beyond_one_block(distance: str, order: float) -> None:
    rng = np.random.default_rng(0)
    points = rng.random((1, 600, 3)).astype(np.float32)
    present = rng.random((1, 600)) < 0.9
    there = points[present].astype(np.float64)
    expected = np.linalg.norm(there[:, None] - there[None, :], ord=order, axis=-1)
    sums = distance_sums(points, present, distance)
    np.testing.assert_allclose(sums[present], expected.sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("features", [1, 4, 9])
def test_mahalanobis_is_its_definition_with_the_shrunk_covariance(
    nodes: int, features: int
) -> None:
    rng = np.random.default_rng(nodes * 100 + features)
    # Metrics that depend on one another and are of unlike size.
    points = rng.normal(0, 1, (2, nodes, features)) @ rng.normal(0, 1, (features, features))
    points = (points * np.geomspace(1, 30, features)).astype(np.float32)
    present = np.ones((2, nodes), dtype=bool)
    present[1, nodes // 2] = nodes < 3
    expected = np.full((2, nodes), math.nan)
    for window, here in enumerate(present):
        expected[window, here] = naive.mahalanobis_sums(points[window, here].astype(np.float64))
    found = distance_sums(points, present, "mahalanobis")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.xdist_group("scikit-learn")
def test_the_covariance_is_shrunk_as_elsewhere() -> None:
    covariance = pytest.importorskip("sklearn.covariance")
    points = np.random.default_rng(4).normal(0, [1, 2, 3, 4, 5], (9, 5))
    expected, _ = covariance.ledoit_wolf(points)
    np.testing.assert_allclose(naive.shrunk_covariance(points), expected)


def test_whitened_metrics_weigh_alike() -> None:
    points = np.random.default_rng(5).normal(0, [1.0, 3.0], (4000, 2))
    spread = whiten(points).std(axis=0)
    assert 0.95 < spread.min() <= spread.max() < 1.05


@given(values=rows())
def test_normal_score_is_the_papers(values: np.ndarray) -> None:
    expected = [naive.normal_score(row) for row in values.tolist()]
    found = normal_score(values)
    np.testing.assert_allclose(found, np.reshape(expected, values.shape), rtol=1e-6, atol=1e-6)


@given(values=rows())
def test_normal_score_cannot_exceed_the_root_of_the_number_of_others(values: np.ndarray) -> None:
    found = normal_score(values)
    count = np.isfinite(values).sum(axis=1, keepdims=True)
    bound = np.sqrt(np.maximum(count - 1, 0)) + 1e-6
    assert not (np.abs(found) > bound).any()


@given(values=rows())
def test_leave_one_out_median_is_the_median_of_the_others(values: np.ndarray) -> None:
    expected = [naive.leave_one_out_median(row) for row in values.tolist()]
    found = leave_one_out_median(values)
    np.testing.assert_allclose(found, np.reshape(expected, values.shape))


@given(values=rows(), data=st.data())
def test_peer_score_measures_against_the_others(values: np.ndarray, data: st.DataObject) -> None:
    floor = st.sampled_from([0.0, 0.5, 40.0])
    floors = data.draw(hnp.arrays(np.float64, (len(values), 1), elements=floor))
    expected = [
        naive.peer_score(row, least)
        for row, least in zip(values.tolist(), floors[:, 0].tolist(), strict=True)
    ]
    found = peer_score(values, floors)
    np.testing.assert_allclose(found, np.reshape(expected, values.shape), rtol=1e-6, atol=1e-6)


@given(values=rows(), threshold=st.sampled_from([0.5, 2.0, 50.0]))
def test_the_single_candidate_is_the_highest_over_the_threshold(
    values: np.ndarray, threshold: float
) -> None:
    expected = [naive.single_candidates(row, threshold) for row in values.tolist()]
    found = single_candidates(values, threshold)
    np.testing.assert_array_equal(found, np.reshape(expected, values.shape).astype(bool))


@given(
    window=hnp.arrays(np.float32, st.integers(2, 40), elements=finite),
    nodes=st.integers(1, 70),
)
@example(window=np.array([0.101] * 4 + [0.0] * 2 + [0.101] * 26 + [0.75], np.float32), nodes=6)
def test_identical_nodes_score_nothing(window: np.ndarray, nodes: int) -> None:
    points = np.tile(window, (1, nodes, 1))
    for distance in get_args(Distance):
        sums = distance_sums(points, np.ones((1, nodes), dtype=bool), distance)
        assert 0 == np.abs(normal_score(sums)).max()
    sums = distance_sums(points, np.ones((1, nodes), dtype=bool))
    assert not single_candidates(normal_score(sums), 2.0).any()
    floor = np.full((1, 1), 0.1)
    assert not (peer_score(sums, floor) > 1e-3).any()


@each_case("nodes", range(3, 65))
def test_one_outlier_is_found_in_a_job_of_any_size(nodes: int) -> None:
    rng = np.random.default_rng(nodes)
    points = rng.normal(0.5, 0.01, (1, nodes, 8)).astype(np.float32)
    outlier = nodes // 2
    points[0, outlier] += 0.3
    sums = distance_sums(points, np.ones((1, nodes), dtype=bool))
    scores = peer_score(sums, np.full((1, 1), 0.1 * math.sqrt(8) * (nodes - 1)))
    assert [outlier] == np.flatnonzero(scores[0] >= 5).tolist()
    if nodes > 6:
        assert [outlier] == np.flatnonzero(single_candidates(normal_score(sums), 2.0)[0]).tolist()


def test_a_lone_node_has_no_peers() -> None:
    sums = distance_sums(np.zeros((1, 1, 4), np.float32), np.ones((1, 1), dtype=bool))
    assert [[0.0]] == sums.tolist()
    assert [[0.0]] == normal_score(sums).tolist()
    assert np.isnan(peer_score(sums, np.ones((1, 1)))).all()


@pytest.mark.parametrize("fast", [True, False], ids=["compiled", "numpy"])
@pytest.mark.parametrize("features", [3, 8, 56])
def test_many_nodes_have_the_sums_of_all_pairs(
    features: int, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "AVAILABLE", fast)
    points = np.random.default_rng(features).random((1, 1100, features)).astype(np.float32)
    present = np.random.default_rng(1).random((1, 1100)) < 0.97
    here = points[0, present[0]].astype(np.float64)
    expected = [np.linalg.norm(here - point, axis=1).sum() for point in here]
    np.testing.assert_allclose(expected, distance_sums(points, present)[0, present[0]], rtol=1e-6)


@pytest.mark.parametrize("nodes", [9, 100, 1037])
def test_equal_nodes_have_equal_sums(nodes: int) -> None:
    points = np.random.default_rng(nodes).random((1, nodes, 8)).astype(np.float32)
    points[0, [3, nodes - 1]] = points[0, 5]
    sums = distance_sums(points, np.ones((1, nodes), dtype=bool))[0]
    assert sums[5] == sums[3] == sums[nodes - 1]


@pytest.mark.parametrize("nodes", [1, 40, 256])
def test_up_to_256_nodes_what_is_shown_is_over_all_others(nodes: int) -> None:
    points = np.random.default_rng(nodes).random((nodes, 8)).astype(np.float32)
    everyone = np.ones((1, nodes), dtype=bool)
    assert distance_sums(points[None], everyone)[0].tolist() == sums_over_some(points).tolist()


@pytest.mark.parametrize("fast", [True, False], ids=["compiled", "numpy"])
@pytest.mark.parametrize("features", [3, 8])
def test_the_shown_score_of_a_large_job_is_near_that_over_all_others(
    features: int, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "AVAILABLE", fast)
    rng = np.random.default_rng(features)
    # Nodes that differ in their level most of all, one that is unlike them, two that are equal.
    points = rng.normal(0.5, 0.05, (2000, 1)) + rng.normal(0, 0.02, (2000, features))
    points[1234] += 0.6
    points[7] = points[1800]
    points = points.astype(np.float32)
    over_all = normal_score(distance_sums(points[None], np.ones((1, 2000), dtype=bool)))[0]
    sums = sums_over_some(points)
    shown = normal_score(sums[None])[0]
    assert sums[7] == sums[1800]
    assert 1234 == shown.argmax()
    np.testing.assert_allclose(over_all, shown, atol=0.3)
    assert 0.1 > np.sqrt(np.mean((over_all - shown) ** 2))
