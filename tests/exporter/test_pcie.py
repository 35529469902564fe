"""The pcie collector: NVML for the GPU's own link, sysfs for GPU and NIC functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import case_node, collected, node, only, scenario_of
from peerwatch_exporter.collector import NoData
from peerwatch_exporter.collectors.pcie import UnwrappedCounter

UUID = "GPU-{0:08x}-51ce-4a7b-9d20-7be1f00c{0:04x}".format


def test_gpu_link_values_are_exact():
    with case_node("h100_node") as h100:
        samples = h100.collect("pcie")

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


def test_narrow_link_shows_in_both_sources():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("pcie")

    assert 8 == samples["gpu_pcie_link_width_lanes", "1", UUID(1)]
    assert 4 == samples["gpu_pcie_link_generation", "1", UUID(1)]
    assert 48213 == samples["gpu_pcie_replays_total", "1", UUID(1)]
    assert 8 == samples["pcie_link_width_lanes", "0000:3b:00.0"]
    assert 16e9 == samples["pcie_link_speed_transfers_per_second", "0000:3b:00.0"]


def test_lost_gpu_keeps_its_sysfs_values_and_the_other_gpus():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("pcie")

    assert {"0", "1", "3"} == {key[0] for key in only(samples, "gpu_pcie_link_generation")}
    assert 1 == samples["pcie_aer_errors_total", "0000:4c:00.0", "fatal", "total"]


def test_aer_errors_by_type_and_without_double_counting():
    with case_node("h100_node") as h100:
        errors = only(h100.collect("pcie"), "pcie_aer_errors_total")

    assert {
        ("0000:9b:00.0", "correctable", "BadTLP"): 2,
        ("0000:9b:00.0", "correctable", "Timeout"): 1,
        ("0000:3a:00.0", "correctable", "RxErr"): 5,
        ("0000:9a:00.0", "nonfatal", "total"): 3,
    } == {key: value for key, value in errors.items() if value}
    # Eight types of correctable errors, one total for each other severity; 8 GPUs and 4 NICs.
    assert 12 * 10 == len(errors)


def test_only_gpu_and_nic_functions_are_published():
    with case_node("h100_node") as h100:
        speeds = only(h100.collect("pcie"), "pcie_link_speed_transfers_per_second")

    # Neither the switch port, the NVMe disk, nor the VGA of the BMC, which has no link.
    assert 12 == len(speeds)
    assert {32e9} == set(speeds.values())


def test_virtual_functions_share_the_link_of_their_physical_one(tmp_path):
    for name, extra in (("0000:18:00.0", "vendor"), ("0000:18:00.1", "physfn")):
        device = tmp_path / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "class").write_text("0x020000\n")
        (device / "current_link_width").write_text("16\n")
        (device / extra).touch()
    with node(None, root=tmp_path) as guest:
        samples = guest.collect("pcie")

    assert {("pcie_link_width_lanes", "0000:18:00.0"): 16} == samples


def test_garbled_aer_line_costs_only_itself():
    with case_node("degraded_node") as degraded:
        errors = only(degraded.collect("pcie"), "pcie_aer_errors_total")

    first_nic = {key[1:]: value for key, value in errors.items() if key[0] == "0000:18:00.0"}
    assert {("correctable", "RxErr"): 4, ("nonfatal", "total"): 0, ("fatal", "total"): 0} == (
        first_nic
    )


def test_node_without_gpu_and_nic_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData):
        cpu_only.collect("pcie")


def test_driver_without_byte_counters_leaves_them_out():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("pcie")

    assert {} == only(samples, "gpu_pcie_transmit_bytes_total")


def test_bytes_go_on_over_a_wrap_at_32_bits():
    scenario = scenario_of("h100_node")
    fields = scenario["gpus"][0]["fields"]
    fields["197"] = 2**32 - 1000
    with node(scenario) as h100:
        collector = h100.collector("pcie")
        collected(collector)
        fields["197"] = 500
        samples = collected(collector)

    assert 2**32 + 500 == samples["gpu_pcie_transmit_bytes_total", "0", UUID(0)]
    assert 655000000000 == samples["gpu_pcie_receive_bytes_total", "0", UUID(0)]


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
