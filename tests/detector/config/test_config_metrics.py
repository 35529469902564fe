"""The metrics of a configuration: presets, overrides, order, metrics of one's own."""

from __future__ import annotations

import pytest

from detector.fakes import metric
from peerwatch_detector.config import DetectorConfig, MetricConfig, load_preset
from peerwatch_exporter.collector import all_metrics

CATALOG = all_metrics()


def test_overrides_change_one_metric_and_keep_the_rest() -> None:
    config = DetectorConfig.model_validate(
        {"metrics": {"overrides": {"cpu_usage": {"min_effect_size": 0.3, "direction": "low"}}}}
    )
    before = {
        metric_config.name: metric_config for metric_config in DetectorConfig().detection_metrics()
    }
    after = {metric_config.name: metric_config for metric_config in config.detection_metrics()}
    changed = after.pop("cpu_usage")
    original = before.pop("cpu_usage")
    assert before == after
    assert (0.3, "low") == (changed.min_effect_size, changed.direction)
    assert (original.bounds, original.expression) == (changed.bounds, changed.expression)


def test_enabled_metrics_come_in_the_order_given_extra_ones_included() -> None:
    config = DetectorConfig.model_validate(
        {"metrics": {"enabled": ["mine", "gpu_power", "cpu_usage"], "extra": [metric("mine")]}}
    )
    names = [metric_config.name for metric_config in config.detection_metrics()]
    assert ["mine", "gpu_power", "cpu_usage"] == names


def test_extra_metrics_are_asked_after_the_presets() -> None:
    config = DetectorConfig.model_validate({"metrics": {"extra": [metric("mine")]}})
    names = [metric_config.name for metric_config in config.detection_metrics()]
    assert [
        *(metric_config.name for metric_config in DetectorConfig().detection_metrics()),
        "mine",
    ] == names


def test_the_preset_is_sound() -> None:
    preset = load_preset("peerwatch")
    names = [metric_config.name for metric_config in preset.metrics]
    assert sorted(set(names)) == sorted(names)
    assert len({metric_config.recorded for metric_config in preset.metrics}) == len(names)
    for metric_config in preset.metrics:
        low, high = metric_config.bounds
        assert metric_config.min_effect_size < high - low
        assert metric_config.recorded.startswith(
            "job_gpu:" if metric_config.scope == "gpu" else "job_node:"
        )


@pytest.mark.parametrize("name", ["peerwatch", "fast", "dcgm"])
def test_every_shipped_metric_says_all_that_is_shown_of_it(name: str) -> None:
    for shipped in load_preset(name).metrics:
        assert shipped.title == shipped.shown_title
        # An explanation cuts longer ones.
        assert 0 < len(shipped.title) <= 24
        assert shipped.meaning[0].isupper()


def test_a_metric_of_your_own_is_shown_by_its_name_or_its_title() -> None:
    own = MetricConfig.model_validate(metric("nic_temperature"))
    titled = MetricConfig.model_validate(metric("nic_temperature") | {"title": "NIC heat"})
    assert ("Nic temperature", "NIC heat") == (own.shown_title, titled.shown_title)


def test_the_fast_preset_compares_the_same_in_the_same_way() -> None:
    same = {"name", "scope", "direction", "min_ratio", "kind"}
    ours, fast = (
        {
            metric_config.name: metric_config.model_dump(include=same)
            for metric_config in load_preset(name).metrics
            if metric_config.fast
        }
        for name in ("peerwatch", "fast")
    )
    units, theirs = (
        {
            metric_config.name: (metric_config.unit, metric_config.bounds)
            for metric_config in load_preset(name).metrics
            if metric_config.fast
        }
        for name in ("peerwatch", "fast")
    )
    assert list(ours.items()) == list(fast.items())
    # The fast endpoint has the share of the memory only.
    assert {"gpu_memory_used"} == {name for name in units if units[name] != theirs[name]}


@pytest.mark.parametrize("metric", load_preset("fast").metrics, ids=lambda metric: metric.name)
def test_the_fast_preset_reads_what_the_fast_endpoint_has(metric: MetricConfig) -> None:
    labels = {"node": (), "gpu": ("gpu",)}[metric.scope]
    of_job = metric.select == "job_id"
    assert (*labels, *(["job_id"] if of_job else [])) == CATALOG[metric.recorded].labels
    assert "gauge" == CATALOG[metric.recorded].kind
    assert metric.recorded in metric.expression
