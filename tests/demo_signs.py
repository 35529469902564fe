"""How each scenario of the simulated node shows: a condition on two scrapes, one after the other.

An exposition is a mapping from (metric, label values in the catalogue's order) to the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from all_metrics import ALL_METRICS

Exposition = Mapping[tuple[str, ...], float]


def samples_of(text: str) -> Exposition:
    """Return the exposition that a text in Prometheus' format is."""
    return {
        (sample.name, *(sample.labels[name] for name in ALL_METRICS[sample.name].labels)): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def values(exposition: Exposition, metric: str, **labels: str) -> list[float]:
    """Return the values of a metric's series with these labels."""
    names = ALL_METRICS[metric].labels
    return [
        value
        for (name, *found), value in exposition.items()
        if name == metric and labels.items() <= dict(zip(names, found, strict=True)).items()
    ]


def highest(exposition: Exposition, metric: str, **labels: str) -> float:
    """Return the highest of these values, 0 if there is none."""
    return max(values(exposition, metric, **labels), default=0.0)


def grown(first: Exposition, second: Exposition, metric: str, **labels: str) -> float:
    """Return by how much the sum of these values is higher in the second exposition."""
    return sum(values(second, metric, **labels)) - sum(values(first, metric, **labels))


def _is_idle(first: Exposition, second: Exposition) -> bool:
    load = values(second, "gpu_utilization_ratio")
    return bool(load) and max(load) == 0 and not values(second, "host_job_info")


def _is_lost(first: Exposition, second: Exposition) -> bool:
    return (
        highest(second, "gpu_present", gpu="4") == 1
        and highest(second, "gpu_present", gpu="5") == 0
        and highest(second, "gpu_xid_errors_total", gpu="5", xid="79") == 1
    )


def _is_hung(first: Exposition, second: Exposition) -> bool:
    stuck = highest(second, "exporter_collector_stuck_seconds", gpu="3")
    return stuck > 0 and highest(second, "gpu_power_watts", gpu="4") > 0


def _is_downtrained(first: Exposition, second: Exposition) -> bool:
    return (
        highest(second, "gpu_pcie_link_generation", gpu="2") == 3
        and highest(second, "gpu_pcie_link_width_lanes", gpu="2") == 8
        and min(values(second, "pcie_link_speed_transfers_per_second", bdf="0000:45:00.0")) == 8e9
        and grown(first, second, "gpu_pcie_replays_total", gpu="2") > 50
        and grown(first, second, "pcie_aer_errors_total", type="BadTLP") > 50
    )


def _is_storm(first: Exposition, second: Exposition) -> bool:
    port = {"device": "mlx5_1", "direction": "transmit", "priority": "3"}
    frames = grown(first, second, "nic_pfc_pause_frames_total", **port)
    return frames > 10_000 and grown(first, second, "nic_pcie_stalled_seconds_total") > 0


def _is_hot(first: Exposition, second: Exposition) -> bool:
    throttled = {"gpu": "6", "reason": "hw_thermal"}
    return (
        highest(second, "gpu_clock_event_active", **throttled) == 1
        and grown(first, second, "gpu_throttle_seconds_total", **throttled) > 0
        and highest(second, "gpu_clock_hertz", gpu="6", domain="sm") < 1.3e9
    )


def _is_braked(first: Exposition, second: Exposition) -> bool:
    active = values(second, "gpu_clock_event_active", reason="hw_power_brake")
    return len(active) == 8 and min(active) == 1


def _has_link_errors(first: Exposition, second: Exposition) -> bool:
    link = {"gpu": "4", "link": "7"}
    return (
        highest(second, "nvlink_errors_total", **link, type="crc") > 0
        and values(second, "nvlink_up", **link) == [0]
        and highest(second, "gpu_fabric_health", gpu="4") == 1
        and highest(second, "nvswitch_sxid_errors_total", severity="fatal") == 1
        and highest(second, "gpu_xid_errors_total", gpu="4", xid="74") == 1
    )


def _has_memory_error(first: Exposition, second: Exposition) -> bool:
    uncorrected = {"gpu": "1", "severity": "uncorrected", "scope": "volatile"}
    return (
        highest(second, "gpu_row_remap_pending", gpu="1") == 1
        and highest(second, "gpu_ecc_errors_total", **uncorrected) == 1
        and highest(second, "gpu_xid_errors_total", gpu="1", xid="63") == 1
        and highest(second, "gpu_xid_errors_total", gpu="1", xid="94") == 1
    )


def _is_down(first: Exposition, second: Exposition) -> bool:
    return values(second, "nic_port_state", device="mlx5_3") == [1]


def _flaps(first: Exposition, second: Exposition) -> bool:
    return highest(second, "nic_link_downed_total", device="mlx5_6") >= 1


def _is_congested(first: Exposition, second: Exposition) -> bool:
    return grown(first, second, "nic_ecn_marked_packets_total") > 30_000


def _is_stuck(first: Exposition, second: Exposition) -> bool:
    return highest(second, "rank_process_state", rank="21", state="disk_sleep") == 1


def _waits(first: Exposition, second: Exposition) -> bool:
    load, work = values(second, "gpu_utilization_ratio"), values(second, "gpu_tensor_active_ratio")
    return bool(load and work) and min(load) > 0.9 and max(work) == 0


def _retransmits(first: Exposition, second: Exposition) -> bool:
    return grown(first, second, "host_tcp_retransmitted_segments_total") > 500


SIGNS: Mapping[str, Callable[[Exposition, Exposition], bool]] = {
    "idle": _is_idle,
    "lost_gpu": _is_lost,
    "hung_gpu": _is_hung,
    "pcie_downgrade": _is_downtrained,
    "pfc_storm": _is_storm,
    "thermal_throttle": _is_hot,
    "power_brake": _is_braked,
    "nvlink_errors": _has_link_errors,
    "ecc_error": _has_memory_error,
    "nic_down": _is_down,
    "nic_flap": _flaps,
    "ecn_congestion": _is_congested,
    "hung_rank": _is_stuck,
    "waiting": _waits,
    "slow_tcp": _retransmits,
}
