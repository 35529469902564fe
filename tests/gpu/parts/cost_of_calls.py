"""What each call of NVML costs on this driver."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import pynvml

from gpu.part import Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpu.part import Node

_TIMES = 50

CALLS: dict[str, Callable[[Any], object]] = {
    "nvmlDeviceGetUtilizationRates": pynvml.nvmlDeviceGetUtilizationRates,
    "nvmlDeviceGetMemoryInfo": pynvml.nvmlDeviceGetMemoryInfo,
    "nvmlDeviceGetPowerUsage": pynvml.nvmlDeviceGetPowerUsage,
    "nvmlDeviceGetTotalEnergyConsumption": pynvml.nvmlDeviceGetTotalEnergyConsumption,
    "nvmlDeviceGetClockInfo": lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM),
    "nvmlDeviceGetCurrentClocksEventReasons": pynvml.nvmlDeviceGetCurrentClocksEventReasons,
    "nvmlDeviceGetComputeRunningProcesses": pynvml.nvmlDeviceGetComputeRunningProcesses,
    "nvmlDeviceGetTotalEccErrors": lambda h: pynvml.nvmlDeviceGetTotalEccErrors(
        h, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    ),
    "nvmlDeviceGetRemappedRows": pynvml.nvmlDeviceGetRemappedRows,
    "nvmlDeviceGetPcieReplayCounter": pynvml.nvmlDeviceGetPcieReplayCounter,
}


def run(node: Node) -> Result:
    """Time each call on the first GPU, and what the exporter's collectors say of theirs."""
    result = Result("Cost of NVML's calls")
    rows = []
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        for name, call in CALLS.items():
            try:
                call(handle)
            except pynvml.NVMLError as error:
                rows.append((name, "-", "-", str(error)))
                continue
            took = []
            for _ in range(_TIMES):
                begun = time.perf_counter()
                call(handle)
                took.append((time.perf_counter() - begun) * 1e6)
            rows.append((name, f"{statistics.median(took):.0f}", f"{max(took):.0f}", ""))
    finally:
        pynvml.nvmlShutdown()
    result.lines.append(f"Microseconds of {_TIMES} calls in a row on GPU 0, after a first one.")
    result.table(("call", "median", "max", "refused"), rows)
    seconds = sorted(
        (labels["collector"], f"{value * 1000:.1f}")
        for name, labels, value in node.exporter.samples()
        if name == "exporter_collector_duration_seconds" and _is_gpu(labels["collector"])
    )
    result.lines += ["", "Milliseconds of the exporter's last run of each collector, all GPUs:"]
    result.table(("collector", "ms"), seconds)
    if not seconds:
        result.failures.append("The page has no exporter_collector_duration_seconds of a GPU.")
    return result


def _is_gpu(collector: str) -> bool:
    return collector.startswith(("gp", "nvlink", "health"))
