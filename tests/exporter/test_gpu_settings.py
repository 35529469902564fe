"""Limits, modes and users of GPUs: collectors gpu_settings and gpu_use on the fake library."""

from __future__ import annotations

import pytest

from hardware_cases import node, only
from peerwatch_exporter.errors import NoData

GPU = ("0", "GPU-a")


def scenario(**board) -> dict:
    return {
        "driver_version": "570.124.06",
        "gpus": [{"uuid": "GPU-a", "name": "A", "pci_bus_id": "00000000:19:00.0", **board}],
    }


def collect(name: str, **board) -> dict:
    with node(scenario(**board)) as host:
        return host.collect(name)


def test_limits_and_modes_are_in_base_units():
    samples = collect(
        "gpu_settings",
        temperature_limits={"0": 92, "1": 89},
        power_limits={"min": 200_000, "max": 700_000, "default": 700_000, "management": 650_000},
        persistence=0,
        ecc_mode=[1, 0],
        mig=[0, 1],
    )

    assert {(*GPU, "shutdown"): 92, (*GPU, "slowdown"): 89} == only(
        samples, "gpu_temperature_limit_celsius"
    )
    assert {
        (*GPU, "min"): 200,
        (*GPU, "max"): 700,
        (*GPU, "default"): 700,
        (*GPU, "management"): 650,
    } == only(samples, "gpu_power_limit_range_watts")
    assert {GPU: 0} == only(samples, "gpu_persistence_mode")
    assert {(*GPU, "current"): 1, (*GPU, "pending"): 0} == only(samples, "gpu_ecc_mode")
    assert {(*GPU, "current"): 0, (*GPU, "pending"): 1} == only(samples, "gpu_mig_mode")


@pytest.mark.parametrize("name", ["gpu_settings", "gpu_use"])
def test_a_board_that_has_none_of_it_is_no_failure(name):
    published = {key: value for key, value in collect(name).items() if key[0] != "node_config_info"}

    assert {} == published


@pytest.mark.parametrize("name", ["gpu_settings", "gpu_use"])
def test_without_a_gpu_that_answers_there_is_no_data(name):
    with pytest.raises(NoData):
        collect(name, lost=True)


def test_a_limit_of_zero_degrees_is_none():
    samples = collect("gpu_settings", temperature_limits={"0": 92, "2": 0})

    assert {(*GPU, "shutdown"): 92} == only(samples, "gpu_temperature_limit_celsius")


def test_memory_by_process_is_bounded_and_loses_nothing():
    held = [[100 + n, (n + 1) * 1000] for n in range(20)] + [[7, None]]
    found = only(collect("gpu_use", processes=held), "gpu_process_memory_bytes")

    assert 17 == len(found)
    assert 1000 + 2000 + 3000 + 4000 == found[(*GPU, "", "others")]
    assert 20_000 == found[(*GPU, "119", "")]
    assert sum(size for _, size in held if size) == sum(found.values())


def test_a_process_has_the_name_that_the_kernel_shows(tmp_path):
    (tmp_path / "proc/42").mkdir(parents=True)
    (tmp_path / "proc/42/comm").write_text("python\n")
    with node(scenario(processes=[[42, 5]]), root=tmp_path) as host:
        found = only(host.collect("gpu_use"), "gpu_process_memory_bytes")

    assert {(*GPU, "42", "python"): 5} == found


def test_video_units_are_ratios():
    samples = collect("gpu_use", encoder=3, decoder=50)

    assert {GPU: 0.03} == only(samples, "gpu_encoder_utilization_ratio")
    assert {GPU: 0.5} == only(samples, "gpu_decoder_utilization_ratio")


PART = {
    "address": 1001,
    "gpu_instance": 2,
    "compute_instance": 0,
    "uuid": "MIG-b",
    "name": "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
    "memory": {"total": 40, "used": 7},
}


def test_instances_of_a_split_gpu_have_their_profile_and_memory():
    samples = collect("gpu_use", mig=[1, 1], mig_instances=[PART])

    assert {(*GPU, "2", "0", "MIG-b", "3g.40gb"): 1} == only(samples, "gpu_mig_instance_info")
    assert {(*GPU, "2", "0"): 40} == only(samples, "gpu_mig_memory_total_bytes")
    assert {(*GPU, "2", "0"): 7} == only(samples, "gpu_mig_memory_used_bytes")


def test_a_gpu_that_is_whole_is_not_asked_for_instances():
    with node(scenario(mig=[0, 1], mig_instances=[PART])) as host:
        assert {} == only(host.collect("gpu_use"), "gpu_mig_instance_info")
        assert "nvmlDeviceGetMigDeviceHandleByIndex" not in host.nvml.calls
