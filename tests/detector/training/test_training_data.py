from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from detector.fakes import START, FakeClock, FakeReader, config_for, healthy, metric, node_names
from detector.small_case import write_case
from peerwatch_common.errors import ConfigError
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import CaseError
from peerwatch_detector.models.base import INTEGRATED
from peerwatch_detector.training.healthy import (
    HealthyWindows,
    integrated_metrics,
    windows_from_cases,
    windows_from_prometheus,
)

BOTH = DetectorConfig.model_validate({"metrics": {"enabled": ["gpu_duty_cycle", "cpu_usage"]}})


def gathered_from(folder: Path, **arrays: np.ndarray) -> HealthyWindows:
    return windows_from_cases(BOTH, [write_case(folder, arrays=arrays)])


def test_good_samples_are_not_broken(tmp_path: Path) -> None:
    gathered = gathered_from(tmp_path / "case")
    assert {} == gathered.broken
    assert {"cpu_usage", "gpu_duty_cycle"} == set(gathered)


def test_a_metric_without_a_single_sample_is_broken(tmp_path: Path) -> None:
    nothing = np.full((4, 200), np.nan)
    gathered = gathered_from(tmp_path / "case", cpu_usage=nothing)
    assert ["cpu_usage"] == list(gathered.broken)
    assert gathered.broken["cpu_usage"].startswith("every sample is missing")


def test_a_metric_that_is_heard_of_too_rarely_is_broken(tmp_path: Path) -> None:
    rare = np.full((4, 200), np.nan)
    rare[:, ::40] = 50
    config = BOTH.model_copy(update={"fill_limit_seconds": 2})
    folder = write_case(tmp_path / "case", arrays={"cpu_usage": rare})
    gathered = windows_from_cases(config, [folder])
    assert {
        "cpu_usage": "no complete window: of 20 samples no 8 follow one another without a gap "
        "wider than 2 s."
    } == gathered.broken


@pytest.mark.parametrize(
    ("outside", "broken"), [(0, False), (8, False), (9, True), (400, True)], ids=str
)
@pytest.mark.parametrize("value", [101.0, -1.0])
def test_more_than_a_hundredth_of_the_samples_outside_the_bounds_is_broken(
    tmp_path: Path, outside: int, broken: bool, value: float
) -> None:
    values = np.full(800, 50.0)
    values[:outside] = value
    gathered = gathered_from(tmp_path / "case", cpu_usage=values.reshape(4, 200))
    assert broken == ("cpu_usage" in gathered.broken)
    if broken:
        reason = gathered.broken["cpu_usage"]
        assert f"{outside / 800:.1%} of the samples lie outside its bounds [0.0, 1.0]" in reason
        assert f"as far as {value / 100:g}, at most 1% may" in reason
        assert "metrics.overrides.cpu_usage.bounds" in reason
        assert gathered["cpu_usage"].min() >= 0
        assert gathered["cpu_usage"].max() <= 1


def test_time_that_goes_backwards_is_refused_with_the_file(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "case")
    with np.load(folder / "samples.npz") as data:
        arrays = dict(data)
    stamps = np.arange(200.0)
    stamps[100:] -= 5
    np.savez(folder / "samples.npz", **arrays, times=stamps)
    with pytest.raises(CaseError, match=r"samples\.npz: time goes backwards: times\[100\]"):
        windows_from_cases(BOTH, [folder])


def test_windows_of_all_metrics_are_those_whole_in_all_of_them(tmp_path: Path) -> None:
    holed = healthy(4, 200) * 100
    holed[2, 50:100] = np.nan
    folder = write_case(tmp_path / "case", arrays={"cpu_usage": holed})
    gathered = windows_from_cases(BOTH, [folder], integrated=True)
    together = gathered[INTEGRATED]
    # Ten seconds on both sides of the hole are filled.
    assert (4 * 193 - (30 + 7), 8, 2) == together.shape
    names = [metric_config.name for metric_config in integrated_metrics(BOTH, gathered)]
    cpu, duty = names.index("cpu_usage"), names.index("gpu_duty_cycle")
    np.testing.assert_array_equal(gathered["cpu_usage"], together[:, :, cpu])
    # The duty cycle is 2.5 points below the level that the CPU shows too.
    np.testing.assert_allclose(together[:20, :, cpu] - 0.025, together[:20, :, duty], atol=1e-5)


def test_a_case_that_lacks_a_metric_gives_no_windows_of_all(tmp_path: Path) -> None:
    whole = write_case(tmp_path / "whole")
    lacking = write_case(tmp_path / "lacking")
    meta = json.loads((lacking / "case.json").read_text())
    del meta["metrics"]["cpu_usage"]
    (lacking / "case.json").write_text(json.dumps(meta))
    gathered = windows_from_cases(BOTH, [lacking, whole], integrated=True)
    assert 2 * 4 * 193 == len(gathered["gpu_duty_cycle"])
    assert 4 * 193 == len(gathered[INTEGRATED])
    assert INTEGRATED not in windows_from_cases(BOTH, [whole])


def test_the_model_of_all_metrics_reads_those_of_method_minder_in_its_order() -> None:
    config = DetectorConfig()
    names = [
        metric_config.name
        for metric_config in integrated_metrics(config, ["memory_usage", "gpu_power"])
    ]
    assert ["gpu_power"] == names
    every = [metric_config.name for metric_config in config.detection_metrics()]
    assert config.minder.metrics == [
        metric_config.name for metric_config in integrated_metrics(config, every)
    ]


def test_series_of_other_nodes_per_metric_are_brought_together() -> None:
    config = config_for(metric("load"), metric("power"))
    reader = FakeReader(FakeClock(START + 5000), config)
    reader.add_job("job-1", {"load": healthy(4, 300)}, node_names(4), START)
    reader.add_job("job-1", {"power": healthy(2, 300, seed=1)}, node_names(4)[2:], START)
    gathered = windows_from_prometheus(
        config, reader, "job-1", START + 0.0, START + 299.0, integrated=True
    )
    assert (4 * 293, 2 * 293) == (len(gathered["load"]), len(gathered["power"]))
    together = gathered[INTEGRATED]
    assert (2 * 293, 8, 2) == together.shape
    np.testing.assert_allclose(healthy(4, 300)[2, :8], together[0, :, 0], rtol=1e-5)
    np.testing.assert_allclose(healthy(2, 300, seed=1)[0, :8], together[0, :, 1], rtol=1e-5)


@pytest.mark.parametrize(("start", "end"), [(0.0, float("inf")), (float("-inf"), 0.0)])
def test_a_range_without_an_end_is_refused(start: float, end: float) -> None:
    config = config_for(metric("load"))
    reader = FakeReader(FakeClock(START), config)
    with pytest.raises(ConfigError, match="check --start and --end"):
        windows_from_prometheus(config, reader, "job-1", start, end)
