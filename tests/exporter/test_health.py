"""The health collector: memory errors, repairs, recovery actions, on the genuine pynvml."""

from __future__ import annotations

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import case_node, collected, node, only, scenario_of
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig, GpuConfig
from peerwatch_exporter.sources.gpu.nvml import Nvml
from peerwatch_exporter.sources.gpu.nvml_access import share_nvml
from peerwatch_exporter.sources.gpu.nvml_health import fabric_health

UUID = "GPU-{0:08x}-51ce-4a7b-9d20-7be1f00c{0:04x}".format
EIGHT = ExporterConfig(gpu=GpuConfig(expected_count=8))


def of_gpu(samples, index):
    """Return the samples of one GPU, without its labels."""
    uuid = UUID(index)
    return {
        (key[0], *key[3:]): value
        for key, value in samples.items()
        if key[1:3] == (str(index), uuid)
    }


def test_healthy_gpu_is_exact():
    with case_node("h100_node") as h100:
        samples = h100.collect("health")

    ecc = "gpu_ecc_errors_total"
    assert {
        (ecc, "corrected", "dram", "volatile"): 3,
        (ecc, "uncorrected", "dram", "volatile"): 0,
        (ecc, "corrected", "dram", "aggregate"): 13,
        (ecc, "uncorrected", "dram", "aggregate"): 0,
        (ecc, "corrected", "sram", "volatile"): 0,
        (ecc, "uncorrected", "sram", "volatile"): 0,
        (ecc, "corrected", "sram", "aggregate"): 2,
        (ecc, "uncorrected", "sram", "aggregate"): 0,
        ("gpu_sram_ecc_threshold_exceeded",): 0,
        ("gpu_remapped_rows", "correctable"): 0,
        ("gpu_remapped_rows", "uncorrectable"): 0,
        ("gpu_row_remap_pending",): 0,
        ("gpu_row_remap_failed",): 0,
        ("gpu_row_remap_banks", "max"): 640,
        ("gpu_row_remap_banks", "high"): 0,
        ("gpu_row_remap_banks", "partial"): 0,
        ("gpu_row_remap_banks", "low"): 0,
        ("gpu_row_remap_banks", "none"): 0,
        ("gpu_repair_pending", "channel"): 0,
        ("gpu_repair_pending", "tpc"): 0,
        ("gpu_unrepairable_memory",): 0,
        ("gpu_recovery_action",): 0,
        ("gpu_recovery_action_info", "none"): 1,
    } == of_gpu(samples, 3)
    assert 8 == samples["gpus_expected",]


def test_failing_gpu_says_what_to_do():
    with case_node("degraded_node") as degraded:
        found = of_gpu(degraded.collect("health"), 0)

    assert 9 == found["gpu_ecc_errors_total", "uncorrected", "dram", "aggregate"]
    assert 6 == found["gpu_ecc_errors_total", "uncorrected", "sram", "aggregate"]
    assert (12, 8) == tuple(
        found["gpu_remapped_rows", cause] for cause in ("correctable", "uncorrectable")
    )
    assert (1, 1) == (found["gpu_row_remap_pending",], found["gpu_row_remap_failed",])
    assert {"max": 610, "high": 20, "partial": 8, "low": 1, "none": 1} == {
        key[1]: value for key, value in found.items() if key[0] == "gpu_row_remap_banks"
    }
    assert (1, 0) == tuple(found["gpu_repair_pending", unit] for unit in ("channel", "tpc"))
    assert 1 == found["gpu_unrepairable_memory",]
    assert 1 == found["gpu_recovery_action",]
    assert 1 == found["gpu_recovery_action_info", "gpu_reset"]


def test_older_driver_is_asked_by_calls():
    with case_node("degraded_node") as degraded:
        found = of_gpu(degraded.collect("health"), 1)

    assert {
        ("gpu_ecc_errors_total", "corrected", "all", "volatile"): 5,
        ("gpu_ecc_errors_total", "uncorrected", "all", "volatile"): 0,
        ("gpu_ecc_errors_total", "corrected", "all", "aggregate"): 6,
        ("gpu_ecc_errors_total", "uncorrected", "all", "aggregate"): 1,
        ("gpu_remapped_rows", "correctable"): 2,
        ("gpu_remapped_rows", "uncorrectable"): 1,
        ("gpu_row_remap_pending",): 1,
        ("gpu_row_remap_failed",): 0,
        ("gpu_recovery_action",): 9,
        ("gpu_recovery_action_info", "unknown"): 1,
    } == found


def test_older_gpu_retires_pages_and_counts_by_unit():
    with case_node("degraded_node") as degraded:
        found = of_gpu(degraded.collect("health"), 3)

    assert {"dram", "l1", "l2", "register_file", "texture", "cbu"} == {
        key[2] for key in found if key[0] == "gpu_ecc_errors_total"
    }
    assert 4 == found["gpu_ecc_errors_total", "corrected", "register_file", "aggregate"]
    assert ("gpu_ecc_errors_total", "corrected", "cbu", "volatile") not in found
    assert 3 == found["gpu_retired_pages", "multiple_single_bit"]
    assert 2 == found["gpu_retired_pages", "double_bit"]
    assert 1 == found["gpu_page_retirement_pending",]


def test_units_are_not_counted_beside_the_sram_they_are_part_of():
    scenario = scenario_of("h100_node")
    scenario["gpus"][0]["fields"] |= {"7": 1, "9": 1}
    with node(scenario) as h100:
        errors = only(h100.collect("health"), "gpu_ecc_errors_total")

    assert {"dram", "sram"} == {key[3] for key in errors}


def test_dram_errors_come_from_the_call_where_the_fields_are_missing():
    scenario = scenario_of("h100_node")
    fields = scenario["gpus"][2]["fields"]
    for number in ("11", "12", "22", "23"):
        del fields[number]
    with node(scenario) as h100:
        found = of_gpu(h100.collect("health"), 2)

    assert 12 == found["gpu_ecc_errors_total", "corrected", "dram", "aggregate"]


def test_values_for_root_are_left_out_without_root_and_not_asked_for_in_every_scrape():
    scenario = scenario_of("h100_node")
    for gpu in scenario["gpus"]:
        gpu["errors"] = {"nvmlDeviceGetSramEccErrorStatus": pynvml.NVML_ERROR_NO_PERMISSION}
    with node(scenario) as h100:
        collector = h100.collector("health")
        first, _ = collected(collector), collected(collector)
        asked = h100.nvml.calls["nvmlDeviceGetSramEccErrorStatus"]
        for gpu in scenario["gpus"]:
            gpu["errors"] = {}
        h100.clock.now += 601
        later = collected(collector)

    assert {} == only(first, "gpu_sram_ecc_threshold_exceeded")
    assert 8 == asked
    assert 8 == len(only(later, "gpu_sram_ecc_threshold_exceeded"))
    assert first.items() <= later.items()


def test_driver_without_any_of_it_gives_the_expected_count_alone():
    names = (
        "nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetSramEccErrorStatus nvmlDeviceGetRemappedRows "
        "nvmlDeviceGetRowRemapperHistogram nvmlDeviceGetRepairStatus nvmlDeviceGetFieldValues "
        "nvmlDeviceGetUnrepairableMemoryFlag_v1"
    )
    scenario = {**scenario_of("h100_node"), "missing_functions": names.split()}
    with node(scenario) as h100:
        samples = h100.collect("health")

    assert {("gpus_expected",): 8} == samples


def test_lost_gpu_takes_only_its_own_values_away_and_stays_expected():
    scenario = scenario_of("h100_node")
    with node(scenario) as h100:
        collector = h100.collector("health")
        before = collected(collector)
        scenario["gpus"][5]["lost"] = True
        after = collected(collector)

    assert {"5"} == {key[1] for key in before.keys() - after.keys()}
    assert 8 == after["gpus_expected",]


def test_gpu_that_vanishes_is_still_expected():
    scenario = scenario_of("h100_node")
    with node(scenario) as h100:
        collector = h100.collector("health")
        collected(collector)
        scenario["gpus"].pop()
        samples = collected(collector)

    assert 8 == samples["gpus_expected",]
    assert "7" not in {key[1] for key in samples if len(key) > 1}


def test_setting_wins_over_what_was_seen():
    with case_node("degraded_node") as degraded:
        samples = collected(degraded.collector("health", EIGHT))

    assert 8 == samples["gpus_expected",]


def test_node_that_should_have_gpus_and_has_no_driver_says_so():
    with case_node("cpu_only") as cpu_only:
        samples = collected(cpu_only.collector("health", EIGHT))
        with pytest.raises(NoData):
            cpu_only.collect("health")

    assert {("gpus_expected",): 8, ("gpus_configured",): 8} == samples


def test_all_gpus_that_vanish_are_still_expected():
    scenario = scenario_of("h100_node")
    with node(scenario) as h100:
        collector = h100.collector("health")
        collected(collector)
        scenario["gpus"].clear()

        assert {("gpus_expected",): 8} == collected(collector)


def test_fabric_state_and_conditions():
    scenario = scenario_of("h100_node")
    # Bandwidth degraded, routes fine, access timeout unknown, GPUs of two partitions, manager gone.
    mask = 1 | 2 << 2 | 2 << 4 | 4 << 8 | 2 << 14
    scenario["gpus"][0]["fabric"] = {"state": 3, "health_mask": mask}
    scenario["gpus"][1]["fabric"] = {"state": 1, "version": 2}
    with node(scenario) as h100:
        samples = h100.collect("health")

    assert {("0", UUID(0)): 3, ("1", UUID(1)): 1} == only(samples, "gpu_fabric_state")
    assert {
        "degraded_bandwidth": 1,
        "route_recovery": 0,
        "route_unhealthy": 0,
        "incorrect_configuration": 1,
        "manager_disconnected": 1,
    } == {key[2]: value for key, value in only(samples, "gpu_fabric_health").items()}


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_no_health_mask_raises(mask):
    assert set(fabric_health(mask)) <= {
        "degraded_bandwidth",
        "route_recovery",
        "route_unhealthy",
        "access_timeout_recovery",
        "incorrect_configuration",
        "manager_disconnected",
    }


def test_gpus_that_another_process_reads_are_expected_too():
    with case_node("h100_node") as h100:
        share_nvml(h100.sources, Nvml(excluded={0, 1}))
        samples = h100.collect("health")

    assert 8 == samples["gpus_expected",]
    assert ("gpu_recovery_action", "0", UUID(0)) not in samples
