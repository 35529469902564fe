"""Every metric says what hardware it takes, in the words of one short list."""

import pytest

from each_case import each_case
from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import HARDWARE, needing
from peerwatch_exporter.collector import all_metrics

CATALOG = all_metrics()

ON_HARDWARE = (
    *("gpu_", "nvlink_", "nvswitch_", "nic_", "pcie_", "rank_"),
    *("fast_gpu_", "fast_nvlink_", "fast_rdma_", "fast_pfc_", "fast_ecn_", "fast_cnp_"),
)


@each_case("name", CATALOG)
def test_a_word_of_the_list_or_nothing(name: str) -> None:
    assert CATALOG[name].hardware in {"", *HARDWARE}


@each_case("name", [name for name in CATALOG if name.startswith(ON_HARDWARE)])
def test_what_not_every_node_has_says_so(name: str) -> None:
    assert CATALOG[name].hardware != ""


@each_case("name", [name for name in CATALOG if name.startswith("exporter_")])
def test_the_exporter_needs_nothing_to_speak_of_itself(name: str) -> None:
    assert CATALOG[name].hardware in {"", "NVIDIA driver"}


def test_every_word_of_the_list_is_used() -> None:
    assert set(HARDWARE) == {spec.hardware for spec in CATALOG.values()} - {""}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu_power_watts", "NVIDIA GPU"),
        ("gpu_energy_joules_total", "Volta"),
        ("gpu_remapped_rows", "Ampere"),
        ("gpu_retired_pages", "before Ampere"),
        ("gpu_tensor_active_ratio", "Hopper"),
        ("nvlink_errors_total", "NVLink"),
        ("nic_receive_bytes_total", "RDMA NIC"),
        ("nic_pfc_pause_frames_total", "NIC statistics"),
        ("nic_pcie_stalled_seconds_total", "mlx5"),
        ("nic_cnp_sent_total", "RoCE"),
        ("fast_gpu_power_watts", "NVIDIA GPU"),
        ("fast_gpu_tensor_active_ratio", "Hopper"),
        ("fast_cpu_usage_ratio", ""),
        ("pcie_aer_errors_total", "PCIe AER"),
        ("host_pressure_seconds_total", "Linux 4.20"),
        ("rank_steps_total", "heartbeat"),
        ("host_load1", ""),
    ],
)
def test_what_it_takes(name: str, expected: str) -> None:
    assert CATALOG[name].hardware == expected


def test_a_group_fills_in_what_its_members_leave_open() -> None:
    plain = MetricSpec("a_ratio", "gauge", "ratio", (), "A.", "a")
    newer = MetricSpec("b_ratio", "gauge", "ratio", (), "B.", "b", "Hopper")
    assert ["Volta", "Hopper"] == [spec.hardware for spec in needing("Volta", plain, newer)]
