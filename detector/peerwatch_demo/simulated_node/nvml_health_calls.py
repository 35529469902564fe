"""The fake library's answers about memory errors, repairs and GPM activity."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pynvml

from peerwatch_demo.simulated_node.nvml_registry import (
    address_of,
    device_function,
    library_function,
    store_address,
    value_of,
)

if TYPE_CHECKING:
    from peerwatch_demo.simulated_node.nvml_library import FakeNvml

_SEVERITIES = ("corrected", "uncorrected")
# nvmlGpmMetric_t: number, NVML's answer, value, and pointers to two names and a unit.
_METRIC = struct.Struct("@IId3P")
_INVALID = int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
_MISMATCH = int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)


@device_function("nvmlDeviceGetMemoryErrorCounter")
def _memory_errors(gpu: dict[str, Any], kind: Any, scope: Any, location: Any, result: Any) -> int:
    counters = value_of(gpu, "ecc", str(location.value), _SEVERITIES[kind.value])
    result._obj.value = counters[scope.value]
    return 0


@device_function("nvmlDeviceGetSramEccErrorStatus")
def _sram_status(gpu: dict[str, Any], status: Any) -> int:
    if status._obj.version != pynvml.nvmlEccSramErrorStatus_v1:
        return _MISMATCH
    status._obj.bThresholdExceeded = value_of(gpu, "sram_threshold_exceeded")
    return 0


@device_function("nvmlDeviceGetRemappedRows")
def _remapped_rows(gpu: dict[str, Any], *results: Any) -> int:
    for result, count in zip(results, value_of(gpu, "remapped_rows"), strict=True):
        result._obj.value = count
    return 0


@device_function("nvmlDeviceGetRowRemapperHistogram")
def _row_remap_banks(gpu: dict[str, Any], histogram: Any) -> int:
    for name, count in value_of(gpu, "row_remap_banks").items():
        setattr(histogram._obj, name, count)
    return 0


@device_function("nvmlDeviceGetRepairStatus")
def _repair_status(gpu: dict[str, Any], status: Any) -> int:
    if status._obj.version != pynvml.nvmlRepairStatus_v1:
        return _MISMATCH
    status._obj.bChannelRepairPending, status._obj.bTpcRepairPending = value_of(gpu, "repair")
    return 0


@device_function("nvmlDeviceGetUnrepairableMemoryFlag_v1")
def _unrepairable(gpu: dict[str, Any], status: Any) -> int:
    if status._obj.version != pynvml.nvmlUnrepairableMemory_v1:
        return _MISMATCH
    status._obj.unrepairableMemory = value_of(gpu, "unrepairable_memory")
    return 0


@device_function("nvmlGpmQueryDeviceSupport")
def _gpm_support(gpu: dict[str, Any], support: Any) -> int:
    if support._obj.version != pynvml.NVML_GPM_SUPPORT_VERSION:
        return _MISMATCH
    support._obj.isSupportedDevice = int("gpm" in gpu)
    return 0


@library_function("nvmlGpmSampleAlloc")
def _gpm_alloc(fake: FakeNvml, sample: Any) -> int:
    address = 1 + fake.calls["nvmlGpmSampleAlloc"]
    fake.gpm_samples[address] = None
    store_address(sample, address)
    return 0


@library_function("nvmlGpmSampleFree")
def _gpm_free(fake: FakeNvml, sample: Any) -> int:
    known = address_of(sample) in fake.gpm_samples
    fake.gpm_samples.pop(address_of(sample), None)
    return 0 if known else _INVALID


@library_function("nvmlGpmSampleGet")
def _gpm_sample(fake: FakeNvml, handle: Any, sample: Any) -> int:
    index = address_of(handle) - 1
    gpu = fake.gpu(index, "nvmlGpmSampleGet")
    if address_of(sample) not in fake.gpm_samples:
        return _INVALID
    taken = (index, fake.calls["nvmlGpmSampleGet"], dict(value_of(gpu, "gpm")))
    fake.gpm_samples[address_of(sample)] = taken
    return 0


@library_function("nvmlGpmMetricsGet")
def _gpm_metrics(fake: FakeNvml, request: Any) -> int:
    wanted = request._obj
    if wanted.version != pynvml.NVML_GPM_METRICS_GET_VERSION:
        return _MISMATCH
    older, newer = (
        fake.gpm_samples.get(address_of(sample)) for sample in (wanted.sample1, wanted.sample2)
    )
    # Both samples taken, of the same GPU, in their order.
    if older is None or newer is None or older[0] != newer[0] or older[1] >= newer[1]:
        return _INVALID
    at = pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
    for number in range(wanted.numMetrics):
        place = at + number * _METRIC.size
        metric, *_ = _METRIC.unpack_from(wanted, place)
        value = newer[2].get(str(metric))
        code = pynvml.NVML_ERROR_NOT_SUPPORTED if value is None else pynvml.NVML_SUCCESS
        _METRIC.pack_into(wanted, place, metric, code, value or 0.0, 0, 0, 0)
    return 0
