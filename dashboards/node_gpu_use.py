"""The node's panels about who uses its GPUs, and about the limits and modes they are set to."""

from __future__ import annotations

from parts import Panel, graph
from promql import highest


def panels(node: str) -> list[Panel]:
    """Return the graphs of the GPUs' users and settings.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    return [
        panel.span(6) for panel in (_processes(node), _video(node), _limits(node), _modes(node))
    ]


def _processes(node: str) -> Panel:
    return graph(
        "GPU memory by process",
        "Framebuffer memory of the processes that hold most. One that belongs to no job is left "
        "over from an earlier one.",
        "bytes",
        (
            highest(f"gpu_process_memory_bytes{{{node}}}", "gpu, pid, process"),
            "GPU {{gpu}} {{process}} {{pid}}",
        ),
    ).no_value("No process uses a GPU.")


def _video(node: str) -> Panel:
    return graph(
        "Video units",
        "Share of time in which video was decoded (data loaders) or encoded.",
        "percentunit",
        (f"max by (gpu) (gpu_decoder_utilization_ratio{{{node}}})", "GPU {{gpu}} decoder"),
        (f"max by (gpu) (gpu_encoder_utilization_ratio{{{node}}})", "GPU {{gpu}} encoder"),
    ).max(1)


def _limits(node: str) -> Panel:
    return graph(
        "Power limits",
        "The limit as it is set, the default, and what can be set at all: GPUs of one job should "
        "agree.",
        "watt",
        (f"max by (gpu, limit) (gpu_power_limit_range_watts{{{node}}})", "GPU {{gpu}} {{limit}}"),
    )


def _modes(node: str) -> Panel:
    return graph(
        "Modes",
        "1 while persistence mode, ECC or MIG is on; pending: after the next reset.",
        "short",
        (f"max by (gpu) (gpu_persistence_mode{{{node}}})", "GPU {{gpu}} persistence"),
        (f"max by (gpu, state) (gpu_ecc_mode{{{node}}})", "GPU {{gpu}} ECC {{state}}"),
        (f"max by (gpu, state) (gpu_mig_mode{{{node}}})", "GPU {{gpu}} MIG {{state}}"),
    )
