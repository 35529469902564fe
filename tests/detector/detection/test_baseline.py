from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detector import naive
from peerwatch_detector import compiled
from peerwatch_detector.detection.methods.peerwatch.baseline import Baseline
from peerwatch_detector.detection.methods.peerwatch.rows import row_median, row_spreads

START = 15_000


def fresh(nodes: int = 2, seconds: int = 600, gpus: tuple[str, ...] = ()) -> Baseline:
    baseline = Baseline(seconds)
    baseline.follow(tuple("abcdef"[:nodes]), gpus)
    return baseline


def learn(
    baseline: Baseline,
    offsets: np.ndarray,
    healthy: np.ndarray | None = None,
    *,
    begin: int = 0,
    level: float = 1.0,
) -> list[list[float]]:
    """Feed one row per step; returns the offsets in force at every step."""
    found = []
    for step, row in enumerate(offsets, start=begin):
        time = START + 5 * step
        found.append(baseline.usual(time).offset.tolist())
        here = np.ones(row.shape, dtype=bool) if healthy is None else healthy[step - begin]
        baseline.learn(time, level, row, here)
    return found


def after(baseline: Baseline, steps: int) -> np.ndarray:
    return baseline.usual(START + 5 * steps).offset


def test_a_node_is_evaluated_once_a_minute_of_its_past_is_known() -> None:
    offsets = np.array(learn(fresh(), np.full((30, 2), 0.2)))
    known = np.isfinite(offsets).all(axis=1)
    # A minute, and the newest seconds that do not count yet; then the next whole period.
    assert 16 <= int(known.argmax()) <= 18
    np.testing.assert_allclose(0.2, offsets[18:], rtol=1e-6)


@pytest.mark.parametrize(("seconds", "latest"), [(60, 9), (30, 6), (15, 6)])
def test_a_short_baseline_is_known_sooner(seconds: int, latest: int) -> None:
    offsets = np.array(learn(fresh(seconds=seconds), np.full((15, 2), 0.2)))
    assert np.isfinite(offsets[latest:]).all()


def test_the_offset_is_each_nodes_own_median() -> None:
    offsets = np.tile([0.3, -0.1], (120, 1))
    offsets[::7] = 5.0
    baseline = fresh()
    learn(baseline, offsets)
    np.testing.assert_allclose([0.3, -0.1], after(baseline, 120), rtol=1e-6)


def test_the_spread_is_a_nodes_own_or_the_typical_one() -> None:
    rng = np.random.default_rng(0)
    offsets = rng.normal(0, [0.1, 0.1, 0.1, 0.5, 0.001], (120, 5))
    baseline = fresh(5)
    learn(baseline, offsets)
    spread = baseline.usual(START + 600).spread
    # Of a mean, half of a sample's.
    np.testing.assert_allclose([0.05, 0.05, 0.05, 0.25, 0.05], spread, rtol=0.25)
    assert spread[4] > 0.03


def test_the_level_is_the_jobs_median_over_time() -> None:
    baseline = fresh()
    learn(baseline, np.zeros((60, 2)), level=7.0)
    assert 7.0 == baseline.usual(START + 300).level


def test_the_newest_seconds_do_not_count_yet() -> None:
    baseline = fresh(seconds=120)
    learn(baseline, np.zeros((20, 2)))
    learn(baseline, np.full((3, 2), 9.0), begin=20)
    values = baseline.usual(START + 5 * 24)
    assert [0.0, 0.0] == values.offset.tolist()


def test_faulty_steps_are_left_out_however_long_they_last() -> None:
    offsets = np.zeros((400, 2))
    offsets[100:, 0] = 0.5
    baseline = fresh()
    learn(baseline, offsets, offsets < 0.1)
    assert [0.0, 0.0] == after(baseline, 400).tolist()


def test_an_accepted_new_level_becomes_the_offset() -> None:
    offsets = np.zeros((300, 2))
    offsets[100:, 0] = 0.5
    baseline = fresh()
    learn(baseline, offsets)
    np.testing.assert_allclose([0.5, 0.0], after(baseline, 300))


def test_steps_without_a_value_teach_nothing() -> None:
    offsets = np.full((60, 2), np.nan)
    offsets[:6, 0] = 0.2
    offsets[:, 1] = 0.1
    baseline = fresh()
    learn(baseline, offsets)
    found = after(baseline, 60)
    assert np.isnan(found[0])
    np.testing.assert_allclose(0.1, found[1], rtol=1e-6)


def test_what_is_forgotten_is_learned_anew_but_of_who_is_kept() -> None:
    baseline = fresh(nodes=3)
    learn(baseline, np.tile([0.3, -0.1, 0.2], (40, 1)))
    baseline.assume_like_peers("c")
    baseline.forget({"b", "unknown"})
    found = after(baseline, 40)
    assert np.isnan(found[0])
    np.testing.assert_allclose([-0.1, 0.0], found[1:], atol=1e-6)
    learn(baseline, np.tile([0.5, -0.1, 0.0], (30, 1)), begin=40)
    np.testing.assert_allclose([0.5, -0.1, 0.0], after(baseline, 70), atol=1e-6)


def test_what_was_usual_earlier_is_remembered_for_an_hour() -> None:
    baseline = fresh()
    rows = np.repeat([[0.1, 0.0], [0.6, 0.0], [0.2, 0.0]], 240, axis=0)
    learn(baseline, rows)
    first = baseline.earlier[0]
    # Noted every 120 steps: at the beginning nothing is known.
    assert [0.1, 0.1, 0.6, 0.6, 0.2] == [round(float(value), 3) for value in first[1:]]
    assert np.isnan(first[0])
    learn(baseline, np.full((600, 2), 0.2), begin=720)
    assert 0.1 not in np.round(baseline.earlier[0].astype(float), 3)


def test_what_was_usual_earlier_goes_with_its_node() -> None:
    baseline = fresh()
    learn(baseline, np.tile([0.1, 0.3], (240, 1)))
    baseline.follow(("b", "c"))
    assert [0.3] == sorted({round(float(each), 3) for each in baseline.earlier[0][-1:]})
    assert np.isnan(baseline.earlier[1]).all()


def test_what_was_usual_until_it_is_forgotten_was_usual_earlier() -> None:
    baseline = fresh()
    learn(baseline, np.tile([0.1, 0.3], (40, 1)))
    assert np.isnan(baseline.earlier).all()
    after(baseline, 40)
    baseline.forget()
    assert np.isnan(after(baseline, 40)).all()
    np.testing.assert_allclose([0.1, 0.3], baseline.earlier[:, -1], rtol=1e-6)


def test_what_other_nodes_did_was_never_usual() -> None:
    baseline = fresh()
    learn(baseline, np.tile([0.1, 0.3], (40, 1)))
    after(baseline, 40)
    baseline.follow(("c", "d"))
    baseline.forget()
    assert np.isnan(baseline.earlier).all()


def test_a_baseline_of_no_seconds_is_off() -> None:
    baseline = fresh(seconds=0)
    learn(baseline, np.full((40, 2), 0.4))
    assert [0.0, 0.0] == after(baseline, 40).tolist()


def test_known_nodes_keep_their_past_when_the_list_changes() -> None:
    baseline = fresh()
    learn(baseline, np.tile([0.3, -0.1], (40, 1)))
    baseline.follow(("new", "b"), ())
    found = after(baseline, 40)
    assert np.isnan(found[0])
    np.testing.assert_allclose(-0.1, found[1], rtol=1e-6)


def test_known_gpus_keep_their_past_when_another_shows_up() -> None:
    baseline = fresh(gpus=("0", "2"))
    learn(baseline, np.tile([0.3, -0.1, 0.2, 0.0], (40, 1)))
    baseline.follow(("b", "a"), ("0", "1", "2"))
    found = after(baseline, 40).reshape(2, 3)
    np.testing.assert_allclose([[0.2, np.nan, 0.0], [0.3, np.nan, -0.1]], found, rtol=1e-6)


def test_a_distrusted_node_is_evaluated_as_if_it_had_no_offset() -> None:
    baseline = fresh()
    learn(baseline, np.full((4, 2), 0.4))
    baseline.assume_like_peers("a")
    baseline.assume_like_peers("unknown")
    found = after(baseline, 4)
    assert 0.0 == found[0]
    assert np.isnan(found[1])


def test_a_node_distrusted_before_its_gpus_are_known_is_so_on_all_of_them() -> None:
    baseline = fresh()
    baseline.assume_like_peers("a")
    baseline.follow(("a", "b"), ("0", "1"))
    found = after(baseline, 1)
    assert [0.0, 0.0] == found[:2].tolist()
    assert np.isnan(found[2:]).all()


def test_the_median_of_a_row_is_numpys() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(0, 1, (50, 9))
    values[rng.random(values.shape) < 0.4] = np.nan
    values[0] = np.nan
    expected = [np.nanmedian(row) if np.isfinite(row).any() else np.nan for row in values]
    np.testing.assert_allclose(expected, row_median(values))


@pytest.mark.parametrize("fast", [True, False], ids=["compiled", "numpy"])
@given(
    values=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 4), st.integers(1, 13)),
        elements=st.sampled_from([np.nan, 0.0, 1.0, 1.5]) | st.floats(-9, 9, width=32),
    ),
    least=st.integers(1, 5),
)
def test_spreads_are_those_of_the_slow_version(fast: bool, values: np.ndarray, least: int) -> None:
    expected = [naive.spread(row, least) for row in values.tolist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "AVAILABLE", fast)
        found = row_spreads(values.copy(), least)
    np.testing.assert_allclose(np.transpose(expected), found, rtol=1e-5, atol=1e-6)
