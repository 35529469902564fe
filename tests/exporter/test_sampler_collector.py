"""What the sampler's statistics become in the exposition, and what stands there when it fails."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hardware_cases import collected, only
from peerwatch_common.errors import ConfigError
from peerwatch_exporter.catalog.sampled_counters import COUNTERS
from peerwatch_exporter.collector import all_metrics, metrics_by_topic
from peerwatch_exporter.collectors.gpu_samples import GpuSamplesCollector
from peerwatch_exporter.collectors.sampler import SamplerCollector
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sampler.layout import RingLayout, SampledGroup, SampledSeries
from peerwatch_exporter.sampler.process import Sampler, SamplerState
from peerwatch_exporter.sampler.settings import SamplerSettings
from peerwatch_exporter.sampler.window import Statistics
from peerwatch_exporter.settings.config import ExporterConfig, SamplerConfig
from peerwatch_exporter.settings.load import load_config
from sampler_node import Tree, sampler_on, sources_of, until

CATALOG = all_metrics()
TOPICS = metrics_by_topic()

PORT = ("mlx5_0", "1")
LAYOUT = RingLayout(
    tuple(
        SampledGroup(0.01, (SampledSeries(counter, *PORT, 5e10 if counter.link else None),))
        for counter in COUNTERS.values()
    )
)
QUIET = Statistics(1500, 0.0, 0.0, 0.0, 0.0, 0.0)
SECOND = {
    "begin": 5_000_000_000,
    "end": 20_000_000_000,
    "interval": 0.0101,
    "stretched": True,
    "cpu": 0.02,
    "samples": 4711,
    "late": 3,
    "missing": 1,
    "intervals": [0.01] * len(COUNTERS),
    "statistics": [list(QUIET)] * len(COUNTERS),
}


def statistics(**known):
    """Return the message of a second with these statistics, by counter."""
    rows = [known.get(name, QUIET) for name in COUNTERS]
    return {**SECOND, "statistics": [row and list(row) for row in rows]}


class StandingSampler(Sampler):
    """A sampler whose process said something once."""

    def __init__(self, root, state):
        settings = SamplerSettings(str(root), 0.01)
        super().__init__(ExporterConfig(), sources_of(root), settings=settings)
        self._standing = state

    def state(self):
        return self._standing


def collector_of(tmp_path, state):
    return SamplerCollector(ExporterConfig(), StandingSampler(tmp_path, state).sources)


def exposition_of(tmp_path, second=SECOND, **changes):
    state = replace(SamplerState(LAYOUT, second), **changes)
    return collected(collector_of(tmp_path, state))


def test_statistics_become_metrics(tmp_path):
    busy = Statistics(1500, 5e10, 4e10, 1e9, 0.02, 0.3, 0.0101)
    pauses = Statistics(1500, 9e5, 0.0, 60.0, 0.0, 0.004, 0.0)
    exposition = exposition_of(
        tmp_path, statistics(transmit_bytes=busy, receive_pause_frames=pauses)
    )

    assert {
        ("max",): 5e10,
        ("p99",): 4e10,
        ("mean",): 1e9,
    } == {k[2:]: v for k, v in only(exposition, "nic_burst_transmit_bytes_per_second").items()}
    pause = only(exposition, "nic_burst_pfc_pause_frames_per_second")
    assert 9e5 == pause[*PORT, "receive", "max"]
    assert 0 == pause[*PORT, "transmit", "max"]
    line_rate = only(exposition, "nic_burst_line_rate_ratio")
    assert {(*PORT, "transmit"): 0.02, (*PORT, "receive"): 0} == line_rate
    active = only(exposition, "nic_burst_active_ratio")
    assert 0.004 == active[*PORT, "receive_pause_frames"]
    assert (*PORT, "transmit_bytes") not in active
    updates = only(exposition, "nic_burst_update_interval_seconds")
    assert {(*PORT, "transmit_bytes"): 0.0101} == updates


def test_sampler_says_how_it_fares(tmp_path):
    exposition = exposition_of(tmp_path, restarts=2)

    assert {
        "sampler_interval_seconds": 0.0101,
        "sampler_interval_stretched": 1,
        "sampler_samples_total": 4711,
        "sampler_late_samples_total": 3,
        "sampler_cpu_ratio": 0.02,
        "sampler_missing_series": 1,
        "sampler_window_seconds": 15,
        "sampler_series": len(COUNTERS),
        "sampler_restarts_total": 2,
        "sampler_stuck_seconds": 0,
    } == {key[0]: value for key, value in exposition.items() if key[0].startswith("sampler_")}


def test_series_without_samples_is_left_out(tmp_path):
    exposition = exposition_of(tmp_path, statistics(transmit_bytes=None))

    assert {} == only(exposition, "nic_burst_transmit_bytes_per_second")
    assert 3 == len(only(exposition, "nic_burst_receive_bytes_per_second"))


def families_until_partial(collector):
    found = []
    with pytest.raises(PartialData) as caught:  # noqa: PT012
        for family in collector.collect():
            found.append(family)  # noqa: PERF402
    return {family.spec.name: family.rows for family in found}, caught.value.__cause__


def test_stuck_sampler_says_for_how_long_and_publishes_nothing_old(tmp_path):
    state = SamplerState(LAYOUT, SECOND, stuck_seconds=12.5)
    exposition, cause = families_until_partial(collector_of(tmp_path, state))

    assert [((), 12.5)] == exposition["sampler_stuck_seconds"]
    assert "sampler_stuck" == cause.error_class
    assert not [name for name in exposition if name.startswith("nic_burst_")]


def test_refused_sampler_says_why(tmp_path):
    state = SamplerState(refused="15 s of history need 100 MiB.")
    exposition, cause = families_until_partial(collector_of(tmp_path, state))

    assert "sampler_memory_limit" == cause.error_class
    assert "100 MiB" in str(cause)
    assert [((), 0)] == exposition["sampler_series"]


def test_sampler_that_ends_again_and_again_says_so(tmp_path):
    state = SamplerState(restarts=3)
    exposition, cause = families_until_partial(collector_of(tmp_path, state))

    assert "sampler_ended" == cause.error_class
    assert [((), 3)] == exposition["sampler_restarts_total"]


def test_sampler_that_was_started_again_publishes_what_it_has(tmp_path):
    families = collector_of(tmp_path, SamplerState(LAYOUT, SECOND, restarts=3)).collect()
    assert [family for family in families if family.spec.name.startswith("nic_burst_")]


def test_sampler_that_is_off_has_no_data(tmp_path):
    never_made = SamplerCollector(ExporterConfig(), sources_of(tmp_path))
    sources = sources_of(tmp_path)
    Sampler(ExporterConfig(), sources)
    for collector in (never_made, SamplerCollector(ExporterConfig(), sources)):
        with pytest.raises(NoData, match="off"):
            list(collector.collect())


def test_every_catalogued_metric_is_published_with_its_labels(tmp_path):
    busy = Statistics(1500, 5e10, 4e10, 1e9, 0.02, 0.3, 0.0101)
    state = SamplerState(LAYOUT, statistics(**dict.fromkeys(COUNTERS, busy)))
    families = list(collector_of(tmp_path, state).collect())

    published = {family.spec.name for family in families if family.rows}
    gpu = {"gpu_burst_power_watts", "gpu_burst_utilization_ratio"}
    assert {spec.name for spec in TOPICS["Millisecond sampling"]} == published | gpu
    for family in families:
        assert {len(CATALOG[family.spec.name].labels)} == {len(row) for row, _ in family.rows}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_promtool_accepts_the_names(tmp_path):
    busy = Statistics(1500, 5e10, 4e10, 1e9, 0.02, 0.3, 0.0101)
    state = SamplerState(LAYOUT, statistics(**dict.fromkeys(COUNTERS, busy)))
    registry = CollectorRegistry()
    registry.register(collector_of(tmp_path, state))
    check = subprocess.run(
        ["promtool", "check", "metrics"],
        input=generate_latest(registry),
        capture_output=True,
        check=False,
    )

    assert b"" == check.stderr
    assert 0 == check.returncode


def test_exposition_of_a_real_sampler(tmp_path):
    tree = Tree(tmp_path)
    with sampler_on(tree.root) as sampler:
        collector = SamplerCollector(ExporterConfig(), sampler.sources)
        until(lambda: sampler.state().second)
        exposition = collected(collector)

    assert 5 == exposition["sampler_series",]
    assert 0 == exposition["nic_burst_transmit_bytes_per_second", *PORT, "max"]
    assert 0 == exposition["nic_burst_line_rate_ratio", *PORT, "transmit"]


def test_settings_reach_the_process(tmp_path):
    section = SamplerConfig(
        interval_milliseconds=2,
        window_seconds=30,
        history_seconds=20,
        line_rate_ratio=0.8,
        max_cpu_ratio=0.1,
        counters=["receive_bytes"],
        devices=["mlx5_3"],
    )
    config = ExporterConfig(sampler=section)
    settings = SamplerSettings.from_config(config, tmp_path)

    assert settings == SamplerSettings(
        str(tmp_path), 0.002, 30, 20, 0.8, 0.1, ("receive_bytes",), ("mlx5_3",)
    )
    assert settings == SamplerSettings.from_json(settings.to_json())
    assert SamplerSettings.from_config(ExporterConfig(), tmp_path) is None
    assert isinstance(GpuSamplesCollector(config, sources_of(tmp_path)), GpuSamplesCollector)


def test_mistakes_in_the_settings_are_told_together(tmp_path):
    path = tmp_path / "exporter.yaml"
    path.write_text(
        "sampler: {interval_milliseconds: 0.5, window_seconds: 61, counters: [speed], "
        "max_cpu_ratio: 2}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path, listen=None, known_collectors=())

    keys = ("interval_milliseconds", "window_seconds", "max_cpu_ratio", "counters.0")
    assert sorted(f"sampler.{key}" for key in keys) == sorted(
        mistake.split(":")[0] for mistake in caught.value.mistakes
    )


def test_counter_named_twice_is_refused(tmp_path):
    path = tmp_path / "exporter.yaml"
    path.write_text("sampler: {counters: [cnp_sent, receive_bytes, cnp_sent]}\n")
    with pytest.raises(ConfigError, match="cnp_sent more than once"):
        load_config(path, listen=None, known_collectors=())
