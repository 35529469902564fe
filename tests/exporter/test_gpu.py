"""The gpu collector, on the genuine pynvml wrappers over a fake library."""

from __future__ import annotations

import pytest

from hardware_cases import case_node, collected, node, only, scenario_of
from peerwatch_exporter.errors import NoData

UUID = "GPU-{0:08x}-51ce-4a7b-9d20-7be1f00c{0:04x}".format


def test_values_of_a_healthy_gpu_are_exact():
    with case_node("h100_node") as h100:
        samples = h100.collect("gpu")

    gpu3 = {key: value for key, value in samples.items() if key[1:3] == ("3", UUID(3))}
    labels = ("3", UUID(3))
    expected = {
        "gpu_utilization_ratio": 0.99,
        "gpu_memory_utilization_ratio": 0.43,
        "gpu_memory_total_bytes": 85520809984,
        "gpu_memory_used_bytes": 70870106112,
        "gpu_memory_reserved_bytes": 546766848,
        "gpu_power_watts": 625.308,
        "gpu_power_limit_watts": 700.0,
        "gpu_energy_joules_total": 918273648.0,
        "gpu_performance_state": 0,
        "gpu_present": 1,
        "gpu_lost": 0,
    }
    assert expected == {key[0]: value for key, value in gpu3.items() if key[1:] == labels}
    assert 61.0 == samples["gpu_temperature_celsius", *labels, "core"]
    assert 74.0 == samples["gpu_temperature_celsius", *labels, "memory"]
    assert 1.935e9 == samples["gpu_clock_hertz", *labels, "sm"]
    assert 1.98e9 == samples["gpu_clock_max_hertz", *labels, "sm"]
    assert 123.456789003 == samples["gpu_throttle_seconds_total", *labels, "sw_power_cap"]
    assert 0.015 == samples["gpu_throttle_seconds_total", *labels, "low_utilization"]
    active = [key[3] for key, on in only_of(samples, "gpu_clock_event_active", "3").items() if on]
    assert ["sw_power_cap"] == active


def only_of(samples, name, gpu):
    """Return the samples of one metric of one GPU."""
    return {key: value for key, value in samples.items() if key[:2] == (name, gpu)}


def test_info_names_the_board_and_the_driver():
    with case_node("h100_node") as h100:
        info = only(h100.collect("gpu"), "gpu_info")

    assert 8 == len(info)
    board = ("7", UUID(7), "NVIDIA H100 80GB HBM3", "1653323000127", "0000:db:00.0")
    assert 1 == info[*board, "96.00.89.00.01", "570.124.06", ""]


def test_lost_gpu_takes_only_its_own_values_away():
    scenario = scenario_of("h100_node")
    with node(scenario) as h100:
        collector = h100.collector("gpu")
        before = collected(collector)
        scenario["gpus"][5]["lost"] = True
        after = collected(collector)

    assert (1, 0) == tuple(after[name, "5", UUID(5)] for name in ("gpu_lost", "gpu_present"))
    assert 7 == after["gpus_visible",]
    assert 1 == after["exporter_nvml_errors_total", "gpu_is_lost"]
    gone = {key for key in before if key[1:3] == ("5", UUID(5))} - {
        key for key in before if key[0] in {"gpu_info", "gpu_present", "gpu_lost"}
    } | {("exporter_source_supported", "power_instant", "5")}
    assert gone == before.keys() - after.keys()


def test_gpu_lost_before_the_exporter_started_is_published_without_uuid():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("gpu")

    assert {("0", UUID(0)): 0, ("1", UUID(1)): 0, ("2", ""): 1, ("3", UUID(3)): 0} == only(
        samples, "gpu_lost"
    )
    assert 3 == samples["gpus_visible",]


def test_gpu_that_vanishes_from_the_list_is_absent_and_not_forgotten():
    scenario = scenario_of("h100_node")
    with node(scenario) as h100:
        collector = h100.collector("gpu")
        collected(collector)
        scenario["gpus"].pop()
        samples = collected(collector)

    assert 0 == samples["gpu_present", "7", UUID(7)]
    assert ("gpu_lost", "7", UUID(7)) not in samples
    assert 7 == samples["gpus_visible",]


def test_old_driver_leaves_out_only_what_it_lacks():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("gpu")

    names = {key[0] for key in samples}
    assert "gpu_memory_reserved_bytes" not in names
    assert 240.0 == samples["gpu_power_watts", "1", UUID(1)]
    assert 59.0 == samples["gpu_temperature_celsius", "1", UUID(1), "core"]
    assert {"0", "1"} == {key[0] for key in only(samples, "gpu_utilization_ratio")}
    reasons = {key[3] for key in only_of(samples, "gpu_throttle_seconds_total", "0")}
    assert {
        "sw_power_cap",
        "thermal",
        "sync_boost",
        "board_limit",
        "low_utilization",
        "reliability",
    } == reasons


def test_failing_call_is_counted_by_code_and_costs_one_value():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("gpu")

    assert {("gpu_is_lost",): 1, ("unknown",): 1} == only(samples, "exporter_nvml_errors_total")
    assert {"1", "3"} == {key[0] for key in only(samples, "gpu_power_limit_watts")}


def test_node_without_gpu_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData):
        cpu_only.collect("gpu")


def test_margin_and_memory_node_are_published_where_the_board_has_them():
    scenario = scenario_of("h100_node")
    scenario["gpus"][1] |= {"margin_temperature": 27, "numa_node": 0}
    with node(scenario) as grace:
        samples = grace.collect("gpu")

    assert {("1", UUID(1)): 27} == only(samples, "gpu_temperature_margin_celsius")
    assert {"": 7, "0": 1} == {
        numa: sum(key[7] == numa for key in only(samples, "gpu_info")) for numa in ("", "0")
    }


def test_lacking_instant_power_is_said():
    with case_node("degraded_node") as degraded:
        supported = only(degraded.collect("gpu"), "exporter_source_supported")

    assert 0 == supported["power_instant", "1"]
    assert {"0", "1", "3"} == {gpu for _, gpu in supported}


def test_boards_are_told_to_the_other_collectors():
    with case_node("h100_node") as h100:
        h100.collect("gpu")

        assert [UUID(n) for n in range(8)] == [board.uuid for board in h100.sources.gpus.boards()]
