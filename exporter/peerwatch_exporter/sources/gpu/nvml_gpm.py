"""GPU performance monitoring (GPM): activity between two samples that are kept, without a sleep.

A sample is a buffer of the library that holds raw counters; two of them give the mean of the
time between. Every GPU has three buffers, which take turns: for what is compared every second, and
for details, which are the mean of 5 s.
"""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pynvml

from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError
from peerwatch_exporter.sources.gpu.readings import ActivityDetails, ActivityReading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from peerwatch_exporter.sources.gpu.nvml import Nvml
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu

# nvml.h asks for at least 100 ms between two samples.
_SHORTEST_WINDOW_SECONDS = 0.1

# Of the details, at a clock whose ticks may come a little early.
DETAILS_SECONDS = 5
_EARLY_SECONDS = 0.5

_RATIOS = {"graphics": 1, "tensor": 5}
_DETAILED_RATIOS = {"sm": 2, "sm_occupancy": 3, "dram": 10}
_PIPES = {"fp64": 11, "fp32": 12, "fp16": 13, "int": 4}
# In MiB/s, as seen from the GPU.
_PCIE_RATES = {"transmit": 20, "receive": 21}
_DETAILS = (*_DETAILED_RATIOS.values(), *_PIPES.values(), *_PCIE_RATES.values())
# nvmlGpmMetric_t: number, NVML's answer, value, and pointers to two names and a unit. An attribute
# of pynvml's structures takes as long as reading all of this.
_METRIC = struct.Struct("@IId3P")
_NO_DETAILS = ActivityDetails(ratios={}, pipes={}, pcie_bytes_per_second={})
_NOTHING = ActivityReading(ratios={}, window_seconds=None, details=_NO_DETAILS)


@dataclass(slots=True)
class _Sample:
    """A buffer of the library, and when it was filled (monotonic seconds)."""

    buffer: Any
    taken_at: float = 0.0


@dataclass(slots=True)
class _Board:
    """The samples of one GPU as the driver lists it now.

    Attributes
    ----------
    last, details_from
        Samples with which the next means begin.
    free
        Buffers that nobody needs.
    details_due
        When the details are computed again.
    """

    gpu: Gpu
    supported: bool | None = None
    last: _Sample | None = None
    details_from: _Sample | None = None
    free: list[_Sample] = field(default_factory=list)
    details_due: float = 0.0
    reading: ActivityReading = _NOTHING

    def samples(self) -> list[_Sample]:
        """Return all of its buffers."""
        used = [sample for sample in (self.last, self.details_from) if sample is not None]
        return [*self.free, *{id(sample): sample for sample in used}.values()]


class _Means:
    """Computes the means of some metrics between two samples.

    Parameters
    ----------
    nvml
        The library that owns the samples.
    numbers
        NVML's numbers of the metrics.
    """

    def __init__(self, nvml: Nvml, numbers: Sequence[int]) -> None:
        self._nvml = nvml
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(numbers)
        for index, number in enumerate(numbers):
            self._request.metrics[index].metricId = number
        # The same memory: where the library writes its answer.
        self._answer = (ctypes.c_char * (_METRIC.size * len(numbers))).from_buffer(
            self._request, pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
        )

    def between(self, older: _Sample, newer: _Sample) -> dict[int, float] | None:
        """Return the means by number; None if the library lacks the function."""
        self._request.sample1, self._request.sample2 = older.buffer, newer.buffer
        if self._nvml.call("nvmlGpmMetricsGet", self._request) is None:
            return None
        return {
            number: value
            for number, code, value, *_ in _METRIC.iter_unpack(self._answer)
            # The driver gives NaN where a unit was off for the whole window.
            if code == pynvml.NVML_SUCCESS and math.isfinite(value) and value >= 0
        }


class GpmSampler:
    """Takes samples of GPUs and keeps those with which the next means begin.

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
        self._means = _Means(nvml, tuple(_RATIOS.values()))
        self._detailed_means = _Means(nvml, _DETAILS)

    def read(self, gpu: Gpu) -> ActivityReading | None:
        """Return the activity since the last sample, or None if the board has no GPM.

        Within 100 ms of the last sample the last reading is returned again. The details are the
        same object until they are computed again, after 5 s.

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
        last, before = board.last, board.reading
        now = self._monotonic()
        if last is not None and now - last.taken_at < _SHORTEST_WINDOW_SECONDS:
            return
        board.reading = _NOTHING
        if not board.free:
            self._allocate(board)
        if not board.free or board.gpu.call("nvmlGpmSampleGet", board.free[-1].buffer) is None:
            return
        sample = board.free.pop()
        sample.taken_at = self._monotonic()
        if last is not None:
            details = self._details(board, sample, before.details)
            board.reading = self._reading(last, sample, details)
        if board.details_from is None:
            board.details_from = sample
        board.last = sample
        if last is not None and last is not board.details_from:
            board.free.append(last)

    def _allocate(self, board: _Board) -> None:
        buffer = self._nvml.call("nvmlGpmSampleAlloc")
        if buffer is not None:
            board.free.append(_Sample(buffer))

    def _reading(self, older: _Sample, newer: _Sample, details: ActivityDetails) -> ActivityReading:
        values = self._means.between(older, newer)
        if values is None:
            return _NOTHING
        window = newer.taken_at - older.taken_at
        return ActivityReading(_ratios(_RATIOS, values), window, details)

    def _details(self, board: _Board, newer: _Sample, before: ActivityDetails) -> ActivityDetails:
        """Return the details, anew if they are due: since they were last."""
        older = board.details_from
        due = newer.taken_at >= board.details_due or before is _NO_DETAILS
        if older is None or not due:
            return before
        if older is not board.last:
            board.free.append(older)
        board.details_from = newer
        board.details_due = newer.taken_at + DETAILS_SECONDS - _EARLY_SECONDS
        values = self._detailed_means.between(older, newer) or {}
        rates = _by_name(_PCIE_RATES, values)
        return ActivityDetails(
            ratios=_ratios(_DETAILED_RATIOS, values),
            pipes=_ratios(_PIPES, values),
            pcie_bytes_per_second={name: rate * 2**20 for name, rate in rates.items()},
        )

    def _forget(self, uuid: str) -> None:
        board = self._boards.pop(uuid, None)
        for sample in () if board is None else board.samples():
            self._nvml.call("nvmlGpmSampleFree", sample.buffer)


def _by_name(numbers: Mapping[str, int], values: Mapping[int, float]) -> dict[str, float]:
    return {name: values[number] for name, number in numbers.items() if number in values}


def _ratios(numbers: Mapping[str, int], values: Mapping[int, float]) -> dict[str, float]:
    """Return percentages as ratios; rounding above the whole is the whole."""
    return {name: min(1.0, value / 100) for name, value in _by_name(numbers, values).items()}
