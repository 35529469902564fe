"""What each call of NVML costs on this driver, and the exporter as a whole."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pynvml

from gpu.part import Result
from peerwatch_exporter.sources.gpu.nvml_fields import FAST_FIELDS_AND_ENERGY, STATE_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpu.part import Node

_TIMES = 50
# Long enough for the kernel's clock ticks of 10 ms.
_WATCHED_SECONDS = 15.0

CALLS: dict[str, Callable[[Any], object]] = {
    "nvmlDeviceGetUtilizationRates": pynvml.nvmlDeviceGetUtilizationRates,
    "nvmlDeviceGetMemoryInfo": pynvml.nvmlDeviceGetMemoryInfo,
    "nvmlDeviceGetMemoryInfo_v2": lambda h: pynvml.nvmlDeviceGetMemoryInfo(
        h, version=pynvml.nvmlMemory_v2
    ),
    "nvmlDeviceGetPerformanceState": pynvml.nvmlDeviceGetPerformanceState,
    "nvmlDeviceGetMarginTemperature": pynvml.nvmlDeviceGetMarginTemperature,
    **{
        f"nvmlDeviceGetFieldValues {field}": (
            lambda h, field=field: pynvml.nvmlDeviceGetFieldValues(h, [field])
        )
        for field in (*FAST_FIELDS_AND_ENERGY, *STATE_FIELDS)
    },
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
    result.lines += ["", f"CPU of the exporter, over {_WATCHED_SECONDS:g} s:"]
    result.table(("process", "ms per second"), _cpu(node))
    if not seconds:
        result.failures.append("The page has no exporter_collector_duration_seconds of a GPU.")
    return result


def _cpu(node: Node) -> list[tuple[str, str]]:
    processes = {node.exporter.pid: "main"}
    processes |= dict.fromkeys(node.exporter.children(), "calls NVML")
    before = {pid: _ticks(pid) for pid in processes}
    time.sleep(_WATCHED_SECONDS)
    per_second = 1000 / os.sysconf("SC_CLK_TCK") / _WATCHED_SECONDS
    return [
        (what, f"{(_ticks(pid) - before[pid]) * per_second:.1f}") for pid, what in processes.items()
    ]


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _is_gpu(collector: str) -> bool:
    return collector.startswith(("gp", "nvlink", "health"))
