"""The exporter's exposition against NVML itself, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from gpu.part import Result, agreeing

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpu.part import Node, Sample

# Metric, labels, what NVML says of a handle in the metric's unit, and the part by which the two
# may differ since they are not asked at the same time; None of a value that may be anything
# between two readings.
Field = tuple[str, dict[str, str], "Callable[[Any], float]", float]
_MEGAHERTZ = 1e6


def _clock(kind: int) -> Callable[[Any], float]:
    return lambda handle: float(pynvml.nvmlDeviceGetMaxClockInfo(handle, kind)) * _MEGAHERTZ


def _memory_used(handle: Any) -> float:
    # As nvidia-smi counts it: the older structure adds what the driver reserves.
    return float(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)


FIELDS: tuple[Field, ...] = (
    ("gpu_memory_total_bytes", {}, lambda h: float(pynvml.nvmlDeviceGetMemoryInfo(h).total), 0.0),
    ("gpu_memory_used_bytes", {}, _memory_used, 0.25),
    (
        "gpu_power_limit_watts",
        {},
        lambda h: pynvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
        0.0,
    ),
    ("gpu_power_watts", {}, lambda h: pynvml.nvmlDeviceGetPowerUsage(h) / 1000, 0.5),
    (
        "gpu_energy_joules_total",
        {},
        lambda h: pynvml.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,
        # The exporter's is up to 6 s old: some kilojoules, of tens of them if the driver is new.
        0.25,
    ),
    (
        "gpu_temperature_celsius",
        {"sensor": "core"},
        lambda h: float(pynvml.nvmlDeviceGetTemperature(h, pynvml.NVML_TEMPERATURE_GPU)),
        0.2,
    ),
    ("gpu_clock_max_hertz", {"domain": "sm"}, _clock(pynvml.NVML_CLOCK_SM), 0.0),
    ("gpu_clock_max_hertz", {"domain": "memory"}, _clock(pynvml.NVML_CLOCK_MEM), 0.0),
)


def run(node: Node) -> Result:
    """Compare every field of every GPU."""
    return agreeing(lambda: _compare(node))


def _compare(node: Node) -> Result:
    result = Result("The exporter against NVML")
    samples = node.exporter.samples()
    rows = []
    pynvml.nvmlInit()
    try:
        count = pynvml.nvmlDeviceGetCount()
        for index in range(count):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            for name, labels, ask, tolerance in FIELDS:
                try:
                    expected = ask(handle)
                except pynvml.NVMLError as error:
                    rows.append(
                        (index, name, _plain(labels), "-", f"NVML: {error}", "not compared")
                    )
                    continue
                published = value(samples, name, index, labels)
                good = published is not None and (
                    abs(published - expected) <= tolerance * max(abs(expected), 1.0)
                )
                said = "none" if published is None else f"{published:g}"
                verdict = "same" if good else "**differs**"
                rows.append((index, name, _plain(labels), said, f"{expected:g}", verdict))
                if not good:
                    result.failures.append(
                        f"{name} of GPU {index} is {said}, but NVML says {expected:g}."
                    )
    finally:
        pynvml.nvmlShutdown()
    result.lines.append(
        f"{count} GPUs, {len(rows)} values. NVML is asked after the exposition was read."
    )
    result.table(("GPU", "metric", "labels", "exposition", "NVML", ""), rows)
    return result


def value(samples: list[Sample], name: str, gpu: int, labels: dict[str, str]) -> float | None:
    """Return the value of a GPU's series, or None."""
    wanted = {**labels, "gpu": str(gpu)}
    for found, has, number in samples:
        if found == name and wanted.items() <= has.items():
            return number
    return None


def _plain(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={word}" for key, word in labels.items())
