"""GPU performance monitoring (GPM): activity between two samples that are kept, without a sleep.

A sample is a buffer of the library that holds raw counters; two of them give the mean of the
time between. Every GPU has two buffers, which take turns.
"""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pynvml

from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError
from peerwatch_exporter.sources.gpu.readings import ActivityReading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from peerwatch_exporter.sources.gpu.nvml import Nvml
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu

# nvml.h asks for at least 100 ms between two samples.
_SHORTEST_WINDOW_SECONDS = 0.1

_RATIOS = {"graphics": 1, "sm": 2, "sm_occupancy": 3, "tensor": 5, "dram": 10}
_PIPES = {"fp64": 11, "fp32": 12, "fp16": 13, "int": 4}
# In MiB/s, as seen from the GPU.
_PCIE_RATES = {"transmit": 20, "receive": 21}
_METRICS = (*_RATIOS.values(), *_PIPES.values(), *_PCIE_RATES.values())
# nvmlGpmMetric_t: number, NVML's answer, value, and pointers to two names and a unit. An attribute
# of pynvml's structures takes as long as reading all of this.
_METRIC = struct.Struct("@IId3P")
_NOTHING = ActivityReading(ratios={}, pipes={}, pcie_bytes_per_second={}, window_seconds=None)


@dataclass(slots=True)
class _Board:
    """The samples of one GPU as the driver lists it now."""

    gpu: Gpu
    supported: bool | None = None
    kept: Any = None
    kept_at: float = 0.0
    spare: Any = None
    reading: ActivityReading = _NOTHING


class GpmSampler:
    """Takes samples of GPUs and keeps the last one of each.

    Parameters
    ----------
    nvml
        The library that owns the samples.
    monotonic
        Clock for the window between two samples.
    """

    def __init__(self, nvml: Nvml, monotonic: Callable[[], float]) -> None:
        self._nvml = nvml
        self._monotonic = monotonic
        self._boards: dict[str, _Board] = {}
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(_METRICS)
        for index, metric in enumerate(_METRICS):
            self._request.metrics[index].metricId = metric
        # The same memory: where the library writes its answer.
        self._answer = (ctypes.c_char * (_METRIC.size * len(_METRICS))).from_buffer(
            self._request, pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
        )

    def read(self, gpu: Gpu) -> ActivityReading | None:
        """Return the activity since the last sample, or None if the board has no GPM.

        Within 100 ms of the last sample the last reading is returned again.

        Raises
        ------
        GpuLostError
            If the GPU is lost; its samples are freed.
        """
        board = self._board(gpu)
        try:
            if board.supported is None:
                support = gpu.call("nvmlGpmQueryDeviceSupport")
                board.supported = None if support is None else bool(support.isSupportedDevice)
            if not board.supported:
                return None
            self._sample(board)
        except GpuLostError:
            self._forget(gpu.identity.key)
            raise
        return board.reading

    def keep_only(self, uuids: Collection[str]) -> None:
        """Free the samples of GPUs that the driver no longer lists."""
        for uuid in self._boards.keys() - set(uuids):
            self._forget(uuid)

    def _board(self, gpu: Gpu) -> _Board:
        board = self._boards.get(gpu.identity.key)
        if board is None or board.gpu is not gpu:
            # The driver was reloaded or the GPU came back: older counters are of another life.
            self._forget(gpu.identity.key)
            board = self._boards[gpu.identity.key] = _Board(gpu)
        return board

    def _sample(self, board: _Board) -> None:
        if board.kept is not None and self._monotonic() - board.kept_at < _SHORTEST_WINDOW_SECONDS:
            return
        board.reading = _NOTHING
        if board.spare is None:
            board.spare = self._nvml.call("nvmlGpmSampleAlloc")
        if board.spare is None or board.gpu.call("nvmlGpmSampleGet", board.spare) is None:
            return
        taken_at = self._monotonic()
        if board.kept is not None:
            board.reading = self._mean(board.kept, board.spare, taken_at - board.kept_at)
        board.kept, board.spare = board.spare, board.kept
        board.kept_at = taken_at

    def _mean(self, older: object, newer: object, seconds: float) -> ActivityReading:
        self._request.sample1, self._request.sample2 = older, newer
        if self._nvml.call("nvmlGpmMetricsGet", self._request) is None:
            return _NOTHING
        values = {
            number: value
            for number, code, value, *_ in _METRIC.iter_unpack(self._answer)
            # The driver gives NaN where a unit was off for the whole window.
            if code == pynvml.NVML_SUCCESS and math.isfinite(value) and value >= 0
        }
        rates = _by_name(_PCIE_RATES, values)
        return ActivityReading(
            ratios=_ratios(_RATIOS, values),
            pipes=_ratios(_PIPES, values),
            pcie_bytes_per_second={name: rate * 2**20 for name, rate in rates.items()},
            window_seconds=seconds,
        )

    def _forget(self, uuid: str) -> None:
        board = self._boards.pop(uuid, None)
        if board is None:
            return
        for sample in (board.kept, board.spare):
            if sample is not None:
                self._nvml.call("nvmlGpmSampleFree", sample)


def _by_name(numbers: Mapping[str, int], values: Mapping[int, float]) -> dict[str, float]:
    return {name: values[number] for name, number in numbers.items() if number in values}


def _ratios(numbers: Mapping[str, int], values: Mapping[int, float]) -> dict[str, float]:
    """Return percentages as ratios; rounding above the whole is the whole."""
    return {name: min(1.0, value / 100) for name, value in _by_name(numbers, values).items()}
