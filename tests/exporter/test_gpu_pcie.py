"""The gpu_pcie collector: true byte counters, and what the GPU says of its link."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import case_node, collected, node, only, scenario_of
from peerwatch_exporter.collectors.gpu_pcie import UnwrappedCounter
from peerwatch_exporter.errors import NoData

UUID = "GPU-{0:08x}-51ce-4a7b-9d20-7be1f00c{0:04x}".format


def test_values_are_exact():
    with case_node("h100_node") as h100:
        samples = h100.collect("gpu_pcie")

    labels = ("6", UUID(6))
    assert {
        "gpu_pcie_transmit_bytes_total": 731000000006,
        "gpu_pcie_receive_bytes_total": 655000000006,
        "gpu_pcie_link_generation": 5,
        "gpu_pcie_link_generation_max": 5,
        "gpu_pcie_link_width_lanes": 16,
        "gpu_pcie_link_width_lanes_max": 16,
        "gpu_pcie_replays_total": 6,
    } == {key[0]: value for key, value in samples.items() if key[1:] == labels}
    assert 1 == samples["exporter_source_supported", "pcie_bytes", "6"]


def test_narrow_link_shows():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("gpu_pcie")

    assert 8 == samples["gpu_pcie_link_width_lanes", "1", UUID(1)]
    assert 4 == samples["gpu_pcie_link_generation", "1", UUID(1)]
    assert 48213 == samples["gpu_pcie_replays_total", "1", UUID(1)]
    assert {"0", "1", "3"} == {key[0] for key in only(samples, "gpu_pcie_link_generation")}


def test_driver_without_byte_counters_leaves_them_out_and_says_so():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("gpu_pcie")

    assert {} == only(samples, "gpu_pcie_transmit_bytes_total")
    assert 0 == samples["exporter_source_supported", "pcie_bytes", "0"]


def test_errors_are_by_type():
    scenario = scenario_of("h100_node")
    scenario["gpus"][0]["fields"] |= {"95": 1, "173": 7, "176": 3, "180": 0}
    with node(scenario) as h100:
        errors = only(h100.collect("gpu_pcie"), "gpu_pcie_errors_total")

    assert {"replay_rollover": 1, "correctable": 7, "bad_tlp": 3, "fatal": 0} == {
        key[2]: value for key, value in errors.items() if key[0] == "0"
    }


def test_link_is_read_every_ten_seconds_and_shown_in_between():
    scenario = scenario_of("h100_node")
    with node(scenario) as h100:
        collector = h100.collector("gpu_pcie")
        widths = []
        for seconds in (0, 9, 1):
            h100.clock.now += seconds
            widths.append(collected(collector)["gpu_pcie_link_width_lanes", "0", UUID(0)])
            scenario["gpus"][0]["pcie"]["width"] = 8

    assert [16, 16, 8] == widths


def test_lost_gpu_does_not_show_its_old_link():
    scenario = scenario_of("h100_node")
    with node(scenario) as h100:
        collector = h100.collector("gpu_pcie")
        before = collected(collector)
        scenario["gpus"][5]["lost"] = True
        after = collected(collector)

    gone = {key[1:2] + key[2:3] for key in before.keys() - after.keys()}
    assert {("5", UUID(5)), ("pcie_bytes", "5")} == gone


def test_bytes_go_on_over_a_wrap_at_32_bits():
    scenario = scenario_of("h100_node")
    fields = scenario["gpus"][0]["fields"]
    fields["197"] = 2**32 - 1000
    with node(scenario) as h100:
        collector = h100.collector("gpu_pcie")
        collected(collector)
        fields["197"] = 500
        samples = collected(collector)

    assert 2**32 + 500 == samples["gpu_pcie_transmit_bytes_total", "0", UUID(0)]
    assert 655000000000 == samples["gpu_pcie_receive_bytes_total", "0", UUID(0)]


def test_node_without_gpu_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData):
        cpu_only.collect("gpu_pcie")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([10, 25, 25], 25),
        ([2**32 - 1, 0], 2**32),
        ([2**40, 5], 2**40 + 5),
        ([2**64 - 10, 5], 2**64 + 5),
        ([2**31 - 5, 10], 2**31 + 5),
    ],
    ids=["rises", "wraps_at_32", "restarts", "wraps_at_64", "restarts_below_half"],
)
def test_unwrapped_counter(raw, expected):
    counter = UnwrappedCounter()

    assert expected == [counter.add(value) for value in raw][-1]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_unwrapped_counter_never_falls(raw):
    counter = UnwrappedCounter()
    totals = [counter.add(value) for value in raw]

    assert sorted(totals) == totals


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**31), min_size=1))
def test_unwrapped_counter_gives_back_the_increments(start, increments):
    counter = UnwrappedCounter()
    total = start
    counter.add(start)
    for increment in increments:
        total += increment
        result = counter.add(total % 2**32)

    assert total == result
