"""The top row of the node dashboard: whether all of its parts are there, and what was found."""

from __future__ import annotations

import alerts
import device_errors
import diagnoses
import findings
from parts import GREEN, RED, YELLOW, Panel, count, levels, name, number, states, value_map
from promql import CLUSTER, MEMBERSHIP
from xid import latest, latest_of_switches, timeline


def panels(node: str) -> list[Panel]:
    """Return the panels that say whether the node is well.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    seen = f"exporter_build_info{{{node}}}"
    # Also what fires about a job on it without naming a node.
    on_it = f'{MEMBERSHIP}{{{node}, job_id!=""}}'
    firing = alerts.about(node)
    firing += f' or ALERTS{{{CLUSTER}, node="", $}} and on (cluster, job_id) {on_it}'
    return [
        *alerts.counts(firing, seen),
        _score(node).span(3),
        _job(node).span(4),
        *device_errors.counts(node, seen),
        _age(node).span(2),
        *_missing(node),
        *_resources(node),
        alerts.firing(firing),
        findings.table(node),
        diagnoses.table(node),
        _parts(node).height(14).span(24),
        timeline(node).height(6),
        _throttled(node).height(6),
        latest(node).height(6),
        latest_of_switches(node).height(5),
    ]


def _score(node: str) -> Panel:
    return (
        number(
            "Fault score",
            "Evidence that this node is unlike its peers, the highest of its jobs; at 100 % a "
            "finding stands.",
            "percentunit",
            f"max(peerwatch_fault_score{{{node}}})",
        )
        .decimals(0)
        .no_value("no job")
        .thresholds(levels(GREEN, (0.5, YELLOW), (1, RED)))
        .span(3)
    )


def _job(node: str) -> Panel:
    member = f'{MEMBERSHIP}{{{node}, job_id!=""}}'
    return (
        name(
            "Training job on it",
            "The job whose processes run here, or ran until minutes ago, and the age of the last "
            "step that a rank of it here finished.",
            "s",
            "topk(1, time() - max by (job_id) "
            f"(rank_last_step_timestamp_seconds{{{node}}} and on (job_id) {member})"
            f" or max by (job_id) (0 * {member}))",
            "{{job_id}}",
        )
        .no_value("none")
        .thresholds(levels(GREEN, (60, YELLOW), (600, RED)))
        .span(4)
    )


def _age(node: str) -> Panel:
    return (
        number(
            "Age of values",
            "Age of what the exporter last read; the last scrape is part of it. No data: the node "
            "is gone, or its exporter.",
            "s",
            f"time() - max(exporter_snapshot_timestamp_seconds{{{node}}})",
        )
        .decimals(0)
        .thresholds(levels(GREEN, (30, YELLOW), (120, RED)))
    )


def _missing(node: str) -> list[Panel]:
    """Return the counts of parts that are not as they should be; none is green."""
    seen = f"exporter_build_info{{{node}}}"
    ports = f"min by (device, port) (nic_port_state{{{node}}}) < 4"
    narrow = (
        f"max by (gpu) (gpu_pcie_link_width_lanes{{{node}}})"
        f" < max by (gpu) (gpu_pcie_link_width_lanes_max{{{node}}})"
    )
    slow = (
        f"max by (gpu) (gpu_pcie_link_generation{{{node}}})"
        f" < max by (gpu) (gpu_pcie_link_generation_max{{{node}}})"
    )
    return [
        count(
            "GPUs lost",
            "GPUs the node should have and the driver does not list or cannot reach.",
            "clamp_min("
            f"max(gpus_expected{{{node}}}) - (max(gpus_visible{{{node}}}) or vector(0)), 0)",
            seen,
        ).span(3),
        count(
            "NVLinks down",
            "Links of all GPUs that are not active.",
            f"count(min by (gpu, link) (nvlink_up{{{node}}}) == 0)",
            seen,
        ).span(3),
        count(
            "GPUs on slow PCIe",
            "GPUs whose link has fewer lanes or a lower generation than GPU and slot allow. A GPU "
            "that rests lowers its generation by itself: compare under load.",
            f"count({narrow} or {slow})",
            seen,
            YELLOW,
        ).span(3),
        count("NIC ports down", "RDMA ports that are not active.", f"count({ports})", seen).span(3),
        number(
            "Up for",
            "Time since the machine was started.",
            "s",
            f"time() - max(host_boot_time_seconds{{{node}}})",
        )
        .decimals(1)
        .span(3),
    ]


def _resources(node: str) -> list[Panel]:
    """Return power, the fullest filesystem and the clock, each as one number."""
    space = (
        f"1 - max by (mountpoint) (host_filesystem_available_bytes{{{node}}})"
        f" / max by (mountpoint) (host_filesystem_size_bytes{{{node}}} > 0)"
    )
    return [
        number(
            "Power of its GPUs",
            "Drawn by all boards together.",
            "watt",
            f"sum(max by (gpu) (gpu_power_watts{{{node}}}))",
        )
        .decimals(1)
        .span(3),
        number(
            "Fullest filesystem",
            "Share of the space that is taken, of the local filesystem that has the least left.",
            "percentunit",
            f"max({space})",
        )
        .decimals(0)
        .thresholds(levels(GREEN, (0.9, YELLOW), (0.97, RED)))
        .span(3),
        number(
            "Clock offset",
            "How far the clock is from right, as its time service sees it.",
            "s",
            f"max(abs(host_clock_offset_seconds{{{node}}}))",
        )
        .thresholds(levels(GREEN, (0.1, YELLOW), (1, RED)))
        .span(3),
    ]


def _parts(node: str) -> Panel:
    """Return one row for each GPU, its NVLinks, its PCIe link, and each port."""
    return states(
        "Parts that work",
        "Green while a GPU answers, all of its NVLinks are active, every PCIe device is on the "
        "bus, and a port is active. A gap: the exporter did not answer.",
        value_map(("0", "down", RED), ("1", "works", GREEN)),
        (f"min by (gpu) (gpu_present{{{node}}})", "GPU {{gpu}}"),
        (f"min by (gpu) (nvlink_up{{{node}}})", "GPU {{gpu}} NVLinks"),
        (f"min by (device) (nic_port_state{{{node}}}) >= bool 4", "{{device}}"),
        (
            f"min by (kind) (pcie_device_present{{{node}}} * on (bdf) group_left (kind)"
            f" max by (bdf, kind) (pcie_device_info{{{node}}}))",
            "PCIe: every {{kind}}",
        ),
    )


def _throttled(node: str) -> Panel:
    harmful = f'{node}, reason=~"hw_.*|sw_thermal"'
    return states(
        "Clocks held down by heat or power",
        "Yellow while hardware or heat holds a GPU's clocks down; reasons that are part of normal "
        "work are left out.",
        value_map(("0", "free", GREEN), ("1", "held down", YELLOW)),
        (f"max by (reason) (gpu_clock_event_active{{{harmful}}})", "{{reason}}"),
    )
