from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector import naive
from detector.fakes import config_for, metric
from peerwatch_detector.config.methods import PeerwatchConfig
from peerwatch_detector.detection.methods.peerwatch.baseline import Usual
from peerwatch_detector.detection.methods.peerwatch.effects import (
    StepDeviations,
    candidates_on,
    deviate,
    spreads_needed,
)
from peerwatch_detector.detection.methods.peerwatch.levels import Scale
from peerwatch_detector.detection.methods.peerwatch.peers import job_median

METRIC = config_for(metric(floor=0.02, min_ratio=1.2)).detection_metrics()[0]
SCALE = Scale(0.02, by_factor=True)


def usual(count: int, offset: float | np.ndarray = 0.0, level: float = 1.0) -> Usual:
    return Usual(np.zeros(count) + offset, lambda: np.full(count, 0.01), level)


def deviation_of(window: np.ndarray, normal: Usual | None = None) -> StepDeviations:
    normal = normal or usual(len(window))
    return deviate(window, job_median(window), normal, METRIC, SCALE, PeerwatchConfig())


def effects(values: list[float]) -> StepDeviations:
    known = np.array(values)
    return StepDeviations(
        known, np.abs(known) * 10, np.ones(len(known), dtype=bool), collapsed=False
    )


@given(
    seed=st.integers(0, 10_000),
    units=st.integers(2, 8),
    missing=st.sampled_from([0.0, 0.2, 0.6]),
)
def test_deviations_are_those_of_the_slow_version(seed: int, units: int, missing: float) -> None:
    rng = np.random.default_rng(seed)
    window = rng.uniform(0.5, 2, (units, 15)).astype(np.float32)
    window[rng.random(window.shape) < missing] = np.nan
    offset = rng.normal(0, 0.3, units)
    expected = np.array(naive.deviation(window.tolist(), offset.tolist(), 0.02)) / np.log(1.2)
    found = deviation_of(window, usual(units, offset)).effects
    np.testing.assert_allclose(expected, found, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("factor", [0.5, 1.0, 6.0])
def test_what_is_shared_is_how_far_the_level_is_above_its_usual_one(factor: float) -> None:
    shared = deviation_of(np.full((4, 15), factor, dtype=np.float32)).shared
    assert pytest.approx(np.log((factor + 0.02) / 1.02) / np.log(1.2), abs=1e-6) == shared


@given(seed=st.integers(0, 1000), factor=st.floats(0.5, 50))
def test_all_nodes_larger_by_one_factor_deviate_as_before(seed: int, factor: float) -> None:
    window = np.random.default_rng(seed).uniform(50, 200, (5, 15)).astype(np.float32)
    normal = usual(5, level=100.0)
    more = usual(5, level=100.0 * factor)
    np.testing.assert_allclose(
        deviation_of(window, normal).effects,
        deviation_of(window * np.float32(factor), more).effects,
        atol=2e-3,
    )


@given(seed=st.integers(0, 1000), order=st.permutations(range(6)))
def test_the_order_of_the_nodes_means_nothing(seed: int, order: list[int]) -> None:
    window = np.random.default_rng(seed).uniform(0.5, 2, (6, 15)).astype(np.float32)
    np.testing.assert_allclose(
        deviation_of(window).effects[order], deviation_of(window[order]).effects, atol=1e-6
    )


def test_of_three_nodes_the_one_that_is_unlike_both_deviates() -> None:
    window = np.repeat(np.array([[1.0], [1.02], [0.5]], dtype=np.float32), 15, axis=1)
    found = np.abs(deviation_of(window).effects)
    assert found[2] > 3
    assert found[:2].max() < 0.2


def test_a_node_at_its_usual_offset_does_not_deviate() -> None:
    window = np.ones((4, 15), dtype=np.float32)
    window[1] *= 2
    offset = np.array([0, np.log(2), 0, 0])
    assert np.abs(deviation_of(window, usual(4, offset)).effects).max() < 1e-5
    # Back among its peers it deviates from its own past, but has not moved away from them.
    window[1] = 1
    found = deviation_of(window, usual(4, offset))
    assert found.effects[1] < -1
    assert pytest.approx(0.0, abs=1e-5) == found.plain[1]
    # Or it is still above them, and only by less than usual.
    window[1] = 1.5
    found = deviation_of(window, usual(4, offset))
    assert found.effects[1] < -1
    assert found.plain[1] < -1


def test_what_usually_shows_nothing_cannot_show_less_but_more() -> None:
    window = np.ones((5, 15), dtype=np.float32)
    window[0] = 0.0
    offset = np.zeros(5)
    offset[0] = SCALE.offset(np.zeros(1, dtype=np.float32), 1.0)[0]
    assert 0 == deviation_of(window, usual(5, offset)).effects[0]
    assert -1 > deviation_of(window, usual(5)).effects[0]
    window[0] = 0.5
    assert 1 < deviation_of(window, usual(5, offset)).effects[0]


def test_a_node_that_moves_off_is_away() -> None:
    window = np.ones((4, 15), dtype=np.float32)
    window[1] *= 0.6
    found = deviation_of(window)
    assert found.effects[1] < -1
    assert found.plain[1] > 1
    assert np.abs(np.delete(found.plain, 1)).max() < 0.1


@pytest.mark.parametrize(("level", "collapsed"), [(0.19, True), (0.21, False)])
def test_a_metric_has_collapsed_below_a_share_of_its_usual_level(
    level: float, collapsed: bool
) -> None:
    found = deviation_of(np.full((4, 15), level, dtype=np.float32))
    assert collapsed is found.collapsed
    assert (not collapsed) is bool(found.healthy.all())


def test_while_collapsed_only_what_is_large_against_the_usual_level_counts() -> None:
    window = np.full((4, 15), 0.001, dtype=np.float32)
    window[1], window[2] = 0.01, 1.5
    found = deviation_of(window).effects
    assert found[1] < 0.5
    assert found[2] > 5


def test_suspects_are_not_learned_from() -> None:
    assert [True, False, False, True] == effects([0.5, 0.7, -0.7, np.nan]).healthy.tolist()


EVIDENT = np.ones(8, dtype=bool)


def test_a_side_holds_the_candidates_of_one_sign() -> None:
    found = effects([0.1, 2.0, -3.0, 0, 0, 0, 0, 0])
    high = candidates_on(found, EVIDENT, (8, 1), 1, 2)
    low = candidates_on(found, EVIDENT, (8, 1), -1, 2)
    assert [1] == np.flatnonzero(high.strength >= 1).tolist()
    assert [2] == np.flatnonzero(low.strength >= 1).tolist()
    assert 3.0 == low.strength[2]


def test_without_evidence_nobody_is_a_candidate() -> None:
    found = candidates_on(effects([5.0] + [0.0] * 7), ~EVIDENT, (8, 1), 1, 2)
    assert 0.0 == found.strength.max()
    assert not found.common


def test_many_that_deviate_alike_have_a_common_cause() -> None:
    found = candidates_on(effects([4.0, 3.0, 2.5, 0, 0, 0, 0, 0]), EVIDENT, (8, 1), 1, 2)
    assert found.common
    assert 0.0 == found.strength.max()


def test_one_far_above_the_rest_is_no_common_cause() -> None:
    found = candidates_on(effects([9.0, 3.0, 2.5, 0, 0, 0, 0, 0]), EVIDENT, (8, 1), 1, 2)
    assert not found.common
    assert 9.0 == found.strength[0]


@pytest.mark.parametrize(
    ("deviations", "kind", "left"),
    [
        # Eight of 32 drifted away slowly, and one of them, a little ahead, is no fault.
        ([2.0, 1.92, 1.91, 1.9, 1.81, 1.75, 1.59, 1.52], "work", []),
        # Congestion spreads, so that a second node makes it one of many.
        ([2.0, 1.9], "network", []),
        # Some feel it more than others.
        ([3.02, 1.82, 1.77, 1.26], "network", []),
        ([3.02, 1.4, 1.3, 1.2], "network", [0]),
        # Two faults at once, and what others usually show.
        ([2.0, 1.9, 0.8, 0.7], "load", [0, 1]),
        # One far above many: only the many are equals of each other.
        ([9.0, 1.5, 1.5, 1.4], "work", [0]),
        # Where equals do not count, all.
        ([2.0, 1.92, 1.91, 1.9], None, [0, 1, 2, 3]),
    ],
)
def test_a_node_with_many_equals_is_one_of_many(
    deviations: list[float], kind: str | None, left: list[int]
) -> None:
    measured = effects(deviations + [0.1] * (32 - len(deviations)))
    found = candidates_on(measured, np.ones(32, dtype=bool), (32, 1), 1, 8, kind)
    assert left == np.flatnonzero((found.strength >= 1) & ~found.of_many).tolist()
    assert deviations == found.strength[: len(deviations)].tolist()


def test_the_worst_gpu_speaks_for_its_node_and_is_named_if_alone() -> None:
    found = candidates_on(effects([0.2, 2.0, 0.1, 0, 1.5, 1.4, 0, 0]), EVIDENT, (4, 2), 1, 2)
    assert [2.0, 0.1, 1.5, 0.0] == found.strength.tolist()
    assert [1, 0, -1, -1] == found.gpu.tolist()


@pytest.mark.parametrize(
    ("nodes", "spreads"), [(1, 4.0), (3, 4.0), (64, 4.0), (4096, 5.657), (10_000, 5.953)]
)
def test_more_nodes_need_more_spreads(nodes: int, spreads: float) -> None:
    assert pytest.approx(spreads, abs=1e-3) == spreads_needed(4.0, nodes)


def test_the_largest_of_many_harmless_deviations_stays_below_what_is_needed() -> None:
    rng = np.random.default_rng(0)
    for nodes in (64, 1024, 16_384):
        largest = [np.abs(rng.standard_normal(nodes)).max() for _ in range(100)]
        # The same share of draws is over the threshold, whatever the number of nodes.
        assert np.mean(np.array(largest) > spreads_needed(4.0, nodes)) <= 0.02
