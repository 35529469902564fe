"""Activity by GPM: there on Hopper and later, between 0 and 1, and of every GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from gpu.part import PartSkippedError, Result, until

if TYPE_CHECKING:
    from gpu.part import Node

_METRICS = (
    "gpu_sm_active_ratio",
    "gpu_sm_occupancy_ratio",
    "gpu_tensor_active_ratio",
    "gpu_dram_active_ratio",
)


def run(node: Node) -> Result:
    """Read the page's activity metrics."""
    pynvml.nvmlInit()
    try:
        count = pynvml.nvmlDeviceGetCount()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        try:
            supported = bool(pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        except pynvml.NVMLError as error:
            raise PartSkippedError(f"GPM is not to be had: {error}") from error
    finally:
        pynvml.nvmlShutdown()
    if not supported:
        raise PartSkippedError("the GPU has no GPM: it is older than Hopper, or split by MIG")
    result = Result("Activity (GPM)")
    # There is nothing before the second sample.
    until(lambda: node.exporter.value(_METRICS[0]) is not None, f"a page with {_METRICS[0]}")
    rows = []
    samples = node.exporter.samples()
    for name in _METRICS:
        values = [value for found, _, value in samples if found == name]
        rows.append(
            (name, len(values), f"{min(values, default=0):.3f}", f"{max(values, default=0):.3f}")
        )
        if len(values) != count:
            result.failures.append(f"{name} has {len(values)} series for {count} GPUs.")
        if any(not 0 <= value <= 1 for value in values):
            result.failures.append(f"{name} is outside 0 to 1: {values}.")
    result.table(("metric", "GPUs", "least", "most"), rows)
    return result
