"""The fake library's answers about health and activity; ``fake_nvml`` takes them up.

Keys of a GPU in the scenario, besides those that ``fake_nvml`` lists:

    "ecc": {"7": {"corrected": [1, 2], "uncorrected": [0, 0]}},   # location: volatile, aggregate
    "sram_threshold_exceeded": 0,
    "remapped_rows": [2, 1, 0, 0],        # correctable, uncorrectable, pending, failed
    "row_remap_banks": {"max": 638, "high": 1, "partial": 0, "low": 0, "none": 0},
    "repair": [0, 0],                     # channel, TPC
    "unrepairable_memory": 0,
    "gpm": {"2": 91.5}                    # percent by metric id; a board without it has no GPM
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pynvml

from fake_nvml import _device, _library, _value

if TYPE_CHECKING:
    from fake_nvml import FakeNvml

_SEVERITIES = ("corrected", "uncorrected")


@_device("nvmlDeviceGetMemoryErrorCounter")
def _memory_errors(gpu: dict[str, Any], kind: Any, scope: Any, location: Any, result: Any) -> int:
    counters = _value(gpu, "ecc", str(location.value), _SEVERITIES[kind.value])
    result._obj.value = counters[scope.value]
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetSramEccErrorStatus")
def _sram_status(gpu: dict[str, Any], status: Any) -> int:
    if status._obj.version != pynvml.nvmlEccSramErrorStatus_v1:
        return pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    status._obj.bThresholdExceeded = _value(gpu, "sram_threshold_exceeded")
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetRemappedRows")
def _remapped_rows(gpu: dict[str, Any], *results: Any) -> int:
    for result, count in zip(results, _value(gpu, "remapped_rows"), strict=True):
        result._obj.value = count
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetRowRemapperHistogram")
def _row_remap_banks(gpu: dict[str, Any], histogram: Any) -> int:
    for name, count in _value(gpu, "row_remap_banks").items():
        setattr(histogram._obj, name, count)
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetRepairStatus")
def _repair_status(gpu: dict[str, Any], status: Any) -> int:
    if status._obj.version != pynvml.nvmlRepairStatus_v1:
        return pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    status._obj.bChannelRepairPending, status._obj.bTpcRepairPending = _value(gpu, "repair")
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetUnrepairableMemoryFlag_v1")
def _unrepairable(gpu: dict[str, Any], status: Any) -> int:
    if status._obj.version != pynvml.nvmlUnrepairableMemory_v1:
        return pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    status._obj.unrepairableMemory = _value(gpu, "unrepairable_memory")
    return pynvml.NVML_SUCCESS


@_device("nvmlGpmQueryDeviceSupport")
def _gpm_support(gpu: dict[str, Any], support: Any) -> int:
    if support._obj.version != pynvml.NVML_GPM_SUPPORT_VERSION:
        return pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    support._obj.isSupportedDevice = int("gpm" in gpu)
    return pynvml.NVML_SUCCESS


@_library("nvmlGpmSampleAlloc")
def _gpm_alloc(fake: FakeNvml, sample: Any) -> int:
    # The sample is an opaque pointer; its address says which buffer it is.
    address = 1 + fake.calls["nvmlGpmSampleAlloc"]
    fake.gpm_samples[address] = None
    ctypes.cast(ctypes.byref(sample._obj), ctypes.POINTER(ctypes.c_void_p))[0] = address
    return pynvml.NVML_SUCCESS


@_library("nvmlGpmSampleFree")
def _gpm_free(fake: FakeNvml, sample: Any) -> int:
    if fake.gpm_samples.pop(_address(sample), "unknown") == "unknown":
        return pynvml.NVML_ERROR_INVALID_ARGUMENT
    return pynvml.NVML_SUCCESS


@_library("nvmlGpmSampleGet")
def _gpm_sample(fake: FakeNvml, handle: Any, sample: Any) -> int:
    index = _address(handle) - 1
    gpu = fake.gpu(index, "nvmlGpmSampleGet")
    if _address(sample) not in fake.gpm_samples:
        return pynvml.NVML_ERROR_INVALID_ARGUMENT
    taken = (index, fake.calls["nvmlGpmSampleGet"], dict(_value(gpu, "gpm")))
    fake.gpm_samples[_address(sample)] = taken
    return pynvml.NVML_SUCCESS


@_library("nvmlGpmMetricsGet")
def _gpm_metrics(fake: FakeNvml, request: Any) -> int:
    wanted = request._obj
    if wanted.version != pynvml.NVML_GPM_METRICS_GET_VERSION:
        return pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    older, newer = (
        fake.gpm_samples.get(_address(sample)) for sample in (wanted.sample1, wanted.sample2)
    )
    # Both samples taken, of the same GPU, in their order.
    if older is None or newer is None or older[0] != newer[0] or older[1] >= newer[1]:
        return pynvml.NVML_ERROR_INVALID_ARGUMENT
    for metric in wanted.metrics[: wanted.numMetrics]:
        value = newer[2].get(str(metric.metricId))
        metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if value is None else 0
        metric.value = 0.0 if value is None else value
    return pynvml.NVML_SUCCESS


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
