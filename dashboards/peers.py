"""The row that draws one node against the others of its job: a panel per detection metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from parts import GREY, Panel, fixed, graph, properties

PRESET = (
    Path(__file__).resolve().parents[1]
    / "detector/peerwatch_detector/config/presets/peerwatch.yaml"
)

UNITS = {
    "seconds": "s",
    "bytes": "bytes",
    "bytes per second": "binBps",
    "packets per second": "pps",
    "frames per second": "pps",
    "segments per second": "pps",
    "ratio": "percentunit",
    "watts": "watt",
    "hertz": "hertz",
}

# Title and what a difference usually means; a detection metric without an entry does not build.
MEANINGS = {
    "heartbeat_age": ("Heartbeat age", "Rises first on the node whose rank hangs."),
    "pfc_tx_rate": (
        "PFC pause frames sent",
        "A node that keeps stopping its senders drains its NIC too slowly: look at its PCIe, its "
        "memory and the NIC's buffers.",
    ),
    "tcp_retransmissions": (
        "TCP retransmissions",
        "A node that repeats what others do not has a lossy link, port or driver.",
    ),
    "tcp_send_queue": (
        "TCP send queue",
        "Bytes the node's sockets cannot get rid of: its own sending is slow, or its receiver is.",
    ),
    "ecn_rate": ("ECN-marked packets", "Congestion on the way to this node."),
    "cnp_rate": ("Congestion notifications sent", "This node asks its senders to slow down."),
    "cpu_usage": (
        "CPU usage",
        "Higher: something else runs there. Lower: its rank waits or has stopped.",
    ),
    "gpu_duty_cycle": ("GPU utilisation", "Lower on the GPU that does not work along."),
    "gpu_power": ("GPU power", "Lower: idle or capped. Higher: another load."),
    "gpu_tensor_activity": (
        "GPU tensor core activity",
        "Lower: the GPU waits or is slow. The nearest to how fast it trains.",
    ),
    "gpu_graphics_activity": (
        "GPU graphics engine activity",
        "Lower: nothing to do. High everywhere while tensor cores rest: the ranks wait.",
    ),
    "gpu_sm_clock": ("GPU SM clock", "Lower: throttled by heat, power or a broken power supply."),
    "nvlink_bandwidth": ("NVLink throughput", "Lower: a link is down, slow or repeats."),
    "pcie_bandwidth": ("PCIe throughput", "Lower: the link runs at reduced width or speed."),
    "tcp_rdma_throughput": (
        "RDMA throughput",
        "Lower: the port is slow, or the node does not send.",
    ),
    "network_throughput": (
        "Network throughput",
        "Of all interfaces but loopback. Lower: the node does not send, or cannot.",
    ),
    "memory_usage": ("Memory usage", "Higher: a leak, or a stranger on the node."),
    "gpu_memory_used": (
        "GPU memory usage",
        "Different from its peers: another process, or a rank that restarted.",
    ),
}

_LOWEST, _MEDIAN, _HIGHEST = "peers, lowest", "peers, median", "peers, highest"


def panels(job: str) -> list[Panel]:
    """Return a panel for every detection metric of the preset, in its order.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    preset = yaml.safe_load(PRESET.read_text())
    return [_panel(metric, job) for metric in preset["metrics"]]


def _panel(metric: dict[str, Any], job: str) -> Panel:
    """Return the peers as a grey band with their median, and the chosen node on top of it.

    The band costs three series however many nodes the job has; a line per node would stop the
    browser at a few hundred.
    """
    title, meaning = MEANINGS[metric["name"]]
    others = f'{metric["recorded"]}{{{job}, node!="$node"}}'
    chosen = f'{metric["recorded"]}{{{job}, node="$node"}}'
    per_gpu = metric["scope"] == "gpu"
    kept, legend = ("node, gpu", "{{node}} GPU {{gpu}}") if per_gpu else ("node", "{{node}}")
    edge = {"color": fixed(GREY), "custom.lineWidth": 0}
    line: dict[str, Any] = {"custom.lineWidth": 2}
    if not per_gpu:  # eight GPUs need eight colours
        line["color"] = fixed("orange")
    panel = (
        graph(
            title,
            f"The chosen node against the band of all others of the job. {meaning}",
            UNITS[metric["unit"]],
            (f"min({others})", _LOWEST),
            (f"quantile(0.5, {others})", _MEDIAN),
            (f"max({others})", _HIGHEST),
            (f"max by ({kept}) ({chosen})", legend),
            table_legend=False,
        )
        .span(8)
        .override_by_query("A", properties(edge))
        .override_by_query(
            "B",
            properties(
                {
                    "color": fixed(GREY),
                    "custom.lineStyle": {"fill": "dash", "dash": [6, 4]},
                }
            ),
        )
        .override_by_query(
            "C", properties({**edge, "custom.fillBelowTo": _LOWEST, "custom.fillOpacity": 20})
        )
        .override_by_query("D", properties(line))
    )
    return panel.max(1) if metric["unit"] == "ratio" else panel
