"""The gpu_samples collector: the driver's own samples, their window, and every way to have none."""

from __future__ import annotations

import pynvml
import pytest

from hardware_cases import collected, node, only, scenario_of
from peerwatch_exporter.collectors.gpu_samples import GpuSamplesCollector
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sampler.process import Sampler
from peerwatch_exporter.settings.config import ExporterConfig, SamplerConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.gpu.facts import GpuFacts
from peerwatch_exporter.sources.host.access import Paths

POWER, UTILIZATION = (
    str(number) for number in (pynvml.NVML_TOTAL_POWER_SAMPLES, pynvml.NVML_GPU_UTILIZATION_SAMPLES)
)
START = 1_767_300_000_000_000
ON = ExporterConfig(sampler=SamplerConfig(interval_milliseconds=10, window_seconds=2))
UUID = "GPU-{0:08x}-51ce-4a7b-9d20-7be1f00c{0:04x}".format


def series(values, *, first=0, every=20_000):
    """Return samples as NVML gives them: microseconds and value, 20 ms apart."""
    return [[START + (first + number) * every, value] for number, value in enumerate(values)]


def scenario(*boards):
    """Return GPUs with these buffers, each by kind."""
    gpus = scenario_of("h100_node")["gpus"][: len(boards)]
    return {
        "driver_version": "570.124.06",
        "gpus": [{**gpu, "samples": buffers} for gpu, buffers in zip(gpus, boards, strict=True)],
    }


def collector_of(fixture, config=ON):
    return GpuSamplesCollector(config, fixture.sources)


def values_of(samples, gpu=0):
    return {
        (name.removeprefix("gpu_burst_"), statistic): value
        for (name, index, _, statistic), value in samples.items()
        if index == str(gpu)
    }


def test_window_has_what_a_second_mean_hides():
    # 400 ms at 700 W in a second of 100 W.
    watts = [100_000] * 30 + [700_000] * 20
    with node(scenario({POWER: series(watts), UTILIZATION: series([50] * 50)})) as h100:
        samples = collected(collector_of(h100))

    assert pytest.approx(
        {
            ("power_watts", "max"): 700,
            ("power_watts", "p99"): 700,
            ("power_watts", "mean"): 340,
            ("utilization_ratio", "max"): 0.5,
            ("utilization_ratio", "p99"): 0.5,
            ("utilization_ratio", "mean"): 0.5,
        }
    ) == values_of(samples)
    assert {("0", UUID(0))} == {key[1:3] for key in samples}


def test_each_sample_counts_once_and_for_as_long_as_the_window():
    spike = [100_000] * 49 + [700_000]
    with node(scenario({POWER: series(spike)})) as h100:
        collector = collector_of(h100)
        maxima = [only(collected(collector), "gpu_burst_power_watts")["0", UUID(0), "max"]]
        for second in (1, 2):
            h100.nvml.scenario["gpus"][0]["samples"] = {
                POWER: series(spike, first=0) + series([100_000] * 50, first=50 * second)
            }
            samples = collected(collector)
            maxima.append(only(samples, "gpu_burst_power_watts")["0", UUID(0), "max"])

    assert [700, 700, 100] == maxima


def test_samples_are_handed_on_once():
    with node(scenario({POWER: series([100_000, 250_500])})) as h100:
        collector = collector_of(h100)
        collected(collector)
        first = h100.sources.gpus.take_samples()
        collected(collector)
        again = h100.sources.gpus.take_samples()

    times = [START / 1e6, (START + 20_000) / 1e6]
    assert [("0", UUID(0), "gpu_burst_power_watts", times, [100.0, 250.5])] == first
    assert [] == again


def test_samples_reach_the_main_process_with_the_other_facts():
    main = GpuFacts()
    with node(scenario({POWER: series([100_000])})) as child:
        collected(collector_of(child))
        main.take_in(*child.sources.gpus.drain())

    key = ("0", UUID(0), "gpu_burst_power_watts")
    assert {key: [(START / 1e6, 100.0)]} == main.samples()


def test_dry_buffer_adds_nothing_and_is_no_error():
    with node(scenario({POWER: series([100_000])})) as h100:
        collector = collector_of(h100)
        collected(collector)
        h100.nvml.scenario["gpus"][0]["samples"] = {POWER: []}
        second = collected(collector)
        gone = [collected(collector) for _ in range(2)][-1]

        assert 100 == only(second, "gpu_burst_power_watts")["0", UUID(0), "max"]
        assert {} == gone
        assert {} == dict(collector._nvml.error_counts())


def test_board_without_samples_beside_one_with_them_is_left_out():
    with node(scenario({}, {POWER: series([100_000])})) as two:
        del two.nvml.scenario["gpus"][0]["samples"]
        samples = collected(collector_of(two))

    assert {"1"} == {key[1] for key in samples}


def test_lost_board_costs_its_own_samples():
    boards = [{POWER: series([100_000 * (1 + number)])} for number in range(3)]
    with node(scenario(*boards)) as three:
        collector = collector_of(three)
        collected(collector)
        three.nvml.scenario["gpus"][1]["lost"] = True
        samples = collected(collector)

    assert {"0", "2"} == {key[1] for key in samples}


def test_no_board_with_samples_is_no_data():
    with node(scenario({})) as mig:
        del mig.nvml.scenario["gpus"][0]["samples"]
        with pytest.raises(NoData, match="MIG"):
            collected(collector_of(mig))


def test_driver_without_the_function_is_no_data():
    old = {**scenario({POWER: series([1])}), "missing_functions": ["nvmlDeviceGetSamples"]}
    with node(old) as fixture, pytest.raises(NoData):
        collected(collector_of(fixture))


def test_sampler_that_is_off_asks_the_driver_nothing():
    with node(scenario({POWER: series([1])})) as h100:
        with pytest.raises(NoData, match="off"):
            collected(collector_of(h100, ExporterConfig()))

        assert {} == h100.nvml.calls


def test_facts_keep_the_newest_samples_and_a_bounded_number_of_series():
    facts = GpuFacts()
    for number in range(600):
        facts.add_samples([(str(number), "", "gpu_burst_power_watts", [0.0], [0.0])])
    many = [number / 100 for number in range(10_000)]
    facts.add_samples([("0", "", "gpu_burst_power_watts", many, many)])
    kept = facts.samples()

    assert 512 == len(kept)
    newest = kept["0", "", "gpu_burst_power_watts"]
    assert (8192, (99.99, 99.99)) == (len(newest), newest[-1])


def test_samples_are_kept_for_as_long_as_they_can_be_asked_for(tmp_path):
    sources = Sources(Paths(tmp_path, tmp_path, tmp_path))
    config = ExporterConfig(
        sampler=SamplerConfig(interval_milliseconds=10, history_seconds=30, window_seconds=5)
    )
    Sampler(config, sources)
    for first in range(0, 100, 10):
        times = [float(first + number) for number in range(10)]
        sources.gpus.add_samples([("0", "", "gpu_burst_power_watts", times, times)])
    ((_, kept),) = sources.gpus.samples().items()
    assert [(float(time), float(time)) for time in range(69, 100)] == kept
