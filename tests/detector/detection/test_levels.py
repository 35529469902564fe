from __future__ import annotations

import numpy as np
import pytest

from detector.fakes import config_for, metric
from peerwatch_detector.config import MetricConfig
from peerwatch_detector.detection.methods.peerwatch.levels import Scale


def the_metric(**changes: object) -> MetricConfig:
    return config_for(metric(**changes)).detection_metrics()[0]


def test_by_factors_an_offset_holds_at_every_level() -> None:
    scale = Scale(floor=0.001, by_factor=True)
    busy = scale.offset(np.array([120.0], dtype=np.float32), 100.0)
    calm = scale.offset(np.array([12.0], dtype=np.float32), 10.0)
    np.testing.assert_allclose(busy, calm, rtol=1e-3)
    np.testing.assert_allclose(np.log(1.2), busy, rtol=1e-3)


def test_taking_an_offset_out_and_back_changes_nothing() -> None:
    values = np.array([[3.0, 4.0], [5.0, 6.0]], dtype=np.float32)
    offset = np.array([0.4, -0.1])
    for by_factor in (True, False):
        scale = Scale(1.0, by_factor)
        plain = scale.without(values, offset)
        assert not np.allclose(plain, values)
        np.testing.assert_allclose(values[:, 0], scale.restored(plain[:, 0], offset), rtol=1e-6)


def test_a_unit_that_always_reads_zero_shows_nothing() -> None:
    scale = Scale(20.0, by_factor=True)
    power = np.array([0.0, 90.0, 400.0], dtype=np.float32)
    assert [True, False, False] == scale.nothing(scale.offset(power, 400.0), 400.0).tolist()
    assert not scale.nothing(np.array([np.nan]), 400.0).any()
    plain = Scale(20.0, by_factor=False)
    assert not plain.nothing(plain.offset(power, 400.0), 400.0).any()


def test_the_floor_makes_next_to_nothing_equal() -> None:
    levels, others = np.array([0.2]), np.array([0.1])
    near = Scale(10.0, by_factor=True).distance(levels, others, 10.0)
    far = Scale(10.0, by_factor=True).distance(levels * 1e4, others * 1e4, 10.0)
    assert near[0] < 0.01 < 0.6 < far[0]


def test_by_differences_the_floor_means_nothing() -> None:
    scale = Scale(10.0, by_factor=False)
    assert [0.25] == scale.distance(np.array([0.75]), np.array([0.5]), 10.0).tolist()
    assert 0.1 == scale.min_effect_size(the_metric(min_ratio=2.0), 0.5)


def test_the_minimum_effect_size_is_the_ratio_if_there_is_one() -> None:
    found = Scale(0.1, by_factor=True).min_effect_size(the_metric(min_ratio=2.0), 0.5)
    assert pytest.approx(np.log(2)) == found


@pytest.mark.parametrize("usual", [0.0, 0.5, 3.0])
def test_without_a_ratio_the_minimum_effect_size_counts_from_the_usual_level(usual: float) -> None:
    scale = Scale(0.1, by_factor=True)
    effect = scale.min_effect_size(the_metric(min_effect_size=0.1), usual)
    distance = scale.distance(np.array([usual + 0.1]), np.array([usual]), 0.1)
    np.testing.assert_allclose(effect, distance)


def test_values_below_zero_do_not_break_factors() -> None:
    scale = Scale(0.1, by_factor=True)
    assert np.isfinite(scale.offset(np.array([-5.0], dtype=np.float32), -1.0)).all()
    assert np.isfinite(scale.distance(np.array([-5.0]), np.array([1.0]), 0.1)).all()


def test_offsets_of_several_seconds_are_those_of_each_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    values = rng.lognormal(3, 2, (40, 301)).astype(np.float32)
    values[rng.random(values.shape) < 0.05] = np.nan
    values[rng.random(values.shape) < 0.05] = -1.0
    middles = rng.lognormal(3, 2, 40)
    middles[3] = -0.5
    scale = Scale(0.7, by_factor=True)
    each = [scale.offset(row, float(level)) for row, level in zip(values, middles, strict=True)]
    np.testing.assert_array_equal(each, scale.offsets(values, middles))
