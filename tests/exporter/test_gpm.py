"""The gpm collector: two kept samples, their window, and every way to have none."""

from __future__ import annotations

import pynvml
import pytest

from hardware_cases import case_node, collected, node, only, scenario_of
from peerwatch_demo.simulated_node.nvml_registry import FUNCTIONS, address_of
from peerwatch_exporter.errors import NoData

UUID = "GPU-{0:08x}-51ce-4a7b-9d20-7be1f00c{0:04x}".format
ZERO = ("0", UUID(0))


def scenario(**gpm):
    """Return one GPU with GPM; None takes a metric away."""
    board = scenario_of("h100_node")["gpus"][0]
    values = {number.removeprefix("m"): value for number, value in gpm.items()}
    board["gpm"] = {
        number: value for number, value in (board["gpm"] | values).items() if value is not None
    }
    return {"driver_version": "570.124.06", "gpus": [board]}


def second(fixture, seconds=1.0):
    """Return what a new collector publishes in its second scrape."""
    collector = fixture.collector("gpm")
    collected(collector)
    fixture.clock.now += seconds
    return activity(collector)


def activity(collector):
    """Return what a collector publishes but for which GPUs have GPM."""
    return {
        key: value
        for key, value in collected(collector).items()
        if key[0] != "exporter_source_supported"
    }


def test_first_scrape_has_no_window_and_the_second_is_exact():
    with case_node("h100_node") as h100:
        collector = h100.collector("gpm")
        first = activity(collector)
        h100.clock.now += 2.5
        samples = activity(collector)

    gpu4 = ("4", UUID(4))
    assert {} == first
    assert {
        ("gpu_graphics_active_ratio", *gpu4): 0.985,
        ("gpu_sm_active_ratio", *gpu4): 0.9175,
        ("gpu_sm_occupancy_ratio", *gpu4): 0.315,
        ("gpu_tensor_active_ratio", *gpu4): 0.4775,
        ("gpu_dram_active_ratio", *gpu4): 0.385,
        ("gpu_pipe_active_ratio", *gpu4, "fp64"): 0.0,
        ("gpu_pipe_active_ratio", *gpu4, "fp32"): 0.045,
        ("gpu_pipe_active_ratio", *gpu4, "fp16"): 0.0125,
        ("gpu_pipe_active_ratio", *gpu4, "int"): 0.065,
        ("gpu_gpm_window_seconds", *gpu4): 2.5,
    } == {key: value for key, value in samples.items() if key[1] == "4"}
    assert 80 == len(samples)


def test_every_window_begins_where_the_last_one_ended():
    with node(scenario()) as h100:
        collector = h100.collector("gpm")
        windows = []
        for seconds in (0, 1, 2, 0.5):
            h100.clock.now += seconds
            windows.append(only(collected(collector), "gpu_gpm_window_seconds").get(ZERO))

    assert [None, 1, 2, 0.5] == windows


def test_samples_are_at_least_100_ms_apart_and_the_reading_is_kept_meanwhile():
    with node(scenario()) as h100:
        before = second(h100)
        collector = h100.collector("gpm")
        collected(collector)
        h100.clock.now += 0.05
        too_early = activity(collector)
        taken = h100.nvml.calls["nvmlGpmSampleGet"]
        h100.clock.now += 0.06
        samples = activity(collector)
        h100.clock.now += 0.06
        again = activity(collector)

    assert 10 == len(before)
    assert {} == too_early
    assert 3 == taken
    assert pytest.approx(0.11) == samples["gpu_gpm_window_seconds", *ZERO]
    assert samples == again


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -1.0, None], ids=["nan", "inf", "negative", "lacking"]
)
def test_value_that_is_none_is_left_out_alone(value):
    with node(scenario(m5=value)) as h100:
        samples = second(h100)

    assert ("gpu_tensor_active_ratio", *ZERO) not in samples
    assert 9 == len(samples)


def test_rounding_above_the_whole_is_the_whole():
    with node(scenario(m10=100.4)) as h100:
        assert 1.0 == second(h100)["gpu_dram_active_ratio", *ZERO]


def test_three_samples_per_gpu_are_allocated_however_long_it_runs():
    with case_node("h100_node") as h100:
        collector = h100.collector("gpm")
        for _ in range(23):
            h100.clock.now += 1
            collected(collector)

        assert 24 == len(h100.nvml.gpm_samples)
        assert 24 == h100.nvml.calls["nvmlGpmSampleAlloc"]


def test_details_are_means_of_5_s_and_the_rest_of_every_second(monkeypatch):
    asked = []

    def means(fake, request):
        wanted = request._obj
        ends = [
            fake.gpm_samples[address_of(sample)][2]["at"]
            for sample in (wanted.sample1, wanted.sample2)
        ]
        metrics = {wanted.metrics[index].metricId for index in range(wanted.numMetrics)}
        asked.append(("compared" if {1, 5} == metrics else "details", *ends))
        return pynvml.NVML_SUCCESS

    monkeypatch.setitem(FUNCTIONS, "nvmlGpmMetricsGet", means)
    fixture = scenario()
    with node(fixture) as h100:
        collector = h100.collector("gpm")
        for at in range(14):
            # Ticks are a little early or late.
            h100.clock.now = 1000.0 + at + 0.05 * (-1) ** at
            fixture["gpus"][0]["gpm"]["at"] = at
            collected(collector)

    assert [("compared", at, at + 1) for at in range(13)] == [
        each for each in asked if each[0] == "compared"
    ]
    assert [("details", 0, 1), ("details", 1, 6), ("details", 6, 11)] == [
        each for each in asked if each[0] == "details"
    ]


def test_board_without_gpm_beside_one_with_it_is_left_out():
    with case_node("degraded_node") as degraded:
        samples = second(degraded)

    assert {"0"} == {key[1] for key in samples}
    assert 0.125 == samples["gpu_sm_active_ratio", *ZERO]


def test_board_without_gpm_says_so():
    older = scenario()
    del older["gpus"][0]["gpm"]
    with node(older) as a100:
        assert {("exporter_source_supported", "gpm", "0"): 0} == a100.collect("gpm")


def test_pcie_rates_are_mebibytes_as_the_gpu_sees_them():
    with node(scenario(m20=1.5, m21=2.0)) as h100:
        samples = second(h100)

    assert 1.5 * 2**20 == samples["gpu_pcie_transmit_bytes_per_second", *ZERO]
    assert 2.0 * 2**20 == samples["gpu_pcie_receive_bytes_per_second", *ZERO]


@pytest.mark.parametrize(
    "function", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmMetricsGet"]
)
def test_driver_without_a_function_has_no_values(function):
    with node({**scenario(), "missing_functions": [function]}) as old:
        collector = old.collector("gpm")
        for _ in range(3):
            old.clock.now += 1
            assert {} == activity(collector)


def test_node_without_gpu_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData):
        cpu_only.collect("gpm")


def test_lost_gpu_costs_its_own_values_and_its_samples_are_freed():
    faulty = scenario_of("h100_node")
    with node(faulty) as h100:
        collector = h100.collector("gpm")
        collected(collector)
        h100.clock.now += 1
        collected(collector)
        faulty["gpus"][5]["lost"] = True
        h100.clock.now += 1
        samples = activity(collector)

        assert set("0123467") == {key[1] for key in samples}
        assert 14 == len(h100.nvml.gpm_samples)


def test_gpu_that_vanishes_frees_its_samples():
    smaller = scenario_of("h100_node")
    with node(smaller) as h100:
        second(h100)
        collector = h100.collector("gpm")
        collected(collector)
        held = len(h100.nvml.gpm_samples)
        smaller["gpus"].pop()
        collected(collector)

        # Boards listed anew are new to the sampler too: all of its samples were freed and retaken.
        assert 16 + 8 == held
        assert 16 + 7 == len(h100.nvml.gpm_samples)


def test_failed_sample_makes_the_next_window_longer():
    with node(scenario()) as h100:
        collector = h100.collector("gpm")
        collected(collector)
        h100.nvml.scenario["gpus"][0]["errors"] = {"nvmlGpmSampleGet": pynvml.NVML_ERROR_UNKNOWN}
        h100.clock.now += 1
        failed = activity(collector)
        h100.nvml.scenario["gpus"][0]["errors"] = {}
        h100.clock.now += 1
        samples = collected(collector)

    assert {} == failed
    assert 2 == samples["gpu_gpm_window_seconds", *ZERO]
