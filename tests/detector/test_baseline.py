from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_detector.baseline import Baseline

START = 15_000


def learn(
    baseline: Baseline,
    residual: np.ndarray,
    candidates: np.ndarray | None = None,
    *,
    cuts: tuple[int, ...] = (),
) -> list[list[float]]:
    """Feed seconds cut into cycles as the pipeline does; returns the offset of every second."""
    marks = np.zeros(residual.shape, dtype=bool) if candidates is None else candidates
    times = np.arange(START, START + len(residual))
    edges = sorted({0, len(times), *(cut for cut in cuts if cut < len(times))})
    offsets: list[list[float]] = []
    for left, right in itertools.pairwise(edges):
        for part in baseline.periods(times[left:right]):
            here = slice(left + part.start, left + part.stop)
            offset = baseline.offset(int(times[here][0]))
            offsets += [offset.tolist()] * len(times[here])
            baseline.learn(times[here], residual[here], marks[here])
    return offsets


def fresh(nodes: int = 2, seconds: int = 120) -> Baseline:
    baseline = Baseline(seconds)
    baseline.follow(tuple("abcdef"[:nodes]))
    return baseline


def test_a_node_is_judged_once_a_minute_of_its_past_is_known() -> None:
    offsets = np.array(learn(fresh(), np.full((100, 2), 0.2)))
    assert np.isnan(offsets[:60]).all()
    np.testing.assert_allclose(offsets[60:], 0.2, rtol=1e-6)


def test_the_offset_is_each_nodes_own_median() -> None:
    residual = np.tile([0.3, -0.1], (120, 1))
    residual[::7] = 5.0
    baseline = fresh()
    learn(baseline, residual)
    np.testing.assert_allclose(baseline.offset(START + 120), [0.3, -0.1], rtol=1e-6)


def test_faulty_seconds_are_left_out_however_long_they_last() -> None:
    residual = np.zeros((1000, 2))
    residual[200:, 0] = 0.5
    candidates = residual > 0.1
    baseline = fresh()
    learn(baseline, residual, candidates)
    assert [0.0, 0.0] == baseline.offset(START + 1000).tolist()


def test_an_accepted_new_level_becomes_the_offset() -> None:
    residual = np.zeros((400, 2))
    residual[200:, 0] = 0.5
    baseline = fresh()
    learn(baseline, residual)
    np.testing.assert_allclose(baseline.offset(START + 400), [0.5, 0.0])


def test_seconds_without_a_value_teach_nothing() -> None:
    residual = np.full((300, 2), np.nan)
    residual[:30, 0] = 0.2
    residual[:, 1] = 0.1
    baseline = fresh()
    learn(baseline, residual)
    found = baseline.offset(START + 300)
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1], 0.1, rtol=1e-6)


def test_a_baseline_of_no_seconds_is_off() -> None:
    baseline = fresh(seconds=0)
    assert [[0.0, 0.0]] * 20 == learn(baseline, np.full((20, 2), 0.4))


def test_a_short_baseline_is_ready_as_soon_as_it_is_full() -> None:
    offsets = np.array(learn(fresh(seconds=15), np.full((45, 2), 0.2)))
    assert np.isnan(offsets[:15]).all()
    np.testing.assert_allclose(offsets[15:], 0.2, rtol=1e-6)


def test_known_nodes_keep_their_past_when_the_list_changes() -> None:
    baseline = fresh()
    learn(baseline, np.tile([0.3, -0.1], (90, 1)))
    baseline.follow(("new", "b"))
    found = baseline.offset(START + 300)
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1], -0.1, rtol=1e-6)


def test_a_distrusted_node_is_judged_at_once_as_if_it_had_no_offset() -> None:
    baseline = fresh()
    learn(baseline, np.full((10, 2), 0.4))
    baseline.assume_like_peers("a")
    baseline.assume_like_peers("unknown")
    found = baseline.offset(START + 10)
    assert 0.0 == found[0]
    assert np.isnan(found[1])


@given(
    seed=st.integers(0, 1000),
    length=st.integers(1, 300),
    cuts=st.lists(st.integers(1, 299), max_size=20),
)
def test_offsets_do_not_depend_on_how_the_cycles_fall(
    seed: int, length: int, cuts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    residual = rng.normal(0, 1, (length, 3))
    residual[rng.random(residual.shape) < 0.1] = np.nan
    candidates = rng.random(residual.shape) < 0.2
    whole = learn(fresh(3, 90), residual, candidates)
    parts = learn(fresh(3, 90), residual, candidates, cuts=tuple(cuts))
    np.testing.assert_array_equal(whole, parts)
