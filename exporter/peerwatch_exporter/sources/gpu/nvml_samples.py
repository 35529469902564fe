"""Samples that the driver takes by itself, some ten to a hundred times a second.

The driver keeps the last of them in a buffer per GPU; reading it wakes nothing. An idle GPU's
buffer runs dry, and under MIG there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu

_MICROSECONDS = 1_000_000
_VALUE_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


@dataclass(frozen=True, slots=True)
class SampledQuantity:
    """What a buffer holds: NVML's number of it, the metric, and raw counts per unit."""

    number: int
    metric: str
    divisor: float


# Milliwatts and percent.
QUANTITIES = (
    SampledQuantity(pynvml.NVML_TOTAL_POWER_SAMPLES, "gpu_burst_power_watts", 1000),
    SampledQuantity(pynvml.NVML_GPU_UTILIZATION_SAMPLES, "gpu_burst_utilization_ratio", 100),
)


class SampleReader:
    """Reads what is new in the buffers of GPUs."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], int] = {}

    def read(self, gpu: Gpu, quantity: SampledQuantity) -> list[tuple[float, float]] | None:
        """Return the samples since the last call, as (Unix time, value) in the order of time.

        Empty if there is no new one; None if the board or the driver has no such buffer, or not
        now.

        Raises
        ------
        GpuLostError
            If the GPU is lost.
        """
        key = (gpu.identity.key, quantity.number)
        newest = self._newest.get(key, 0)
        answer = gpu.call("nvmlDeviceGetSamples", quantity.number, newest)
        if answer is None:
            return None
        kind, raw = answer
        member = _VALUE_MEMBERS.get(kind)
        if member is None:
            return None
        # The driver hands out the buffer's empty places too, with no time or an older one.
        found = sorted(
            (int(sample.timeStamp), _value(sample, member, quantity))
            for sample in raw
            if sample.timeStamp > newest
        )
        if found:
            self._newest[key] = found[-1][0]
        return [(time / _MICROSECONDS, value) for time, value in found]


def _value(sample: Any, member: str, quantity: SampledQuantity) -> float:  # noqa: ANN401
    return float(getattr(sample.sampleValue, member)) / quantity.divisor
