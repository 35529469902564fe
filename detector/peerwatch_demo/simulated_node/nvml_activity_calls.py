"""The fake library's answers about events, processes, sample buffers and the NVLink fabric."""

from __future__ import annotations

import ctypes
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

# Of nvml.h: nvmlEventTypeXidCriticalError, and what a count is that a board does not know.
_XID_EVENTS = 0x8
_NOT_AVAILABLE = 2**64 - 1
_INVALID = int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
_TOO_SMALL = int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
_MISMATCH = int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
_NOT_FOUND = int(pynvml.NVML_ERROR_NOT_FOUND)


@library_function("nvmlEventSetCreate")
def _event_set(fake: FakeNvml, event_set: Any) -> int:
    address = fake.calls["nvmlEventSetCreate"]
    fake.event_sets[address] = {}
    store_address(event_set, address)
    return 0


@library_function("nvmlEventSetFree")
def _free_event_set(fake: FakeNvml, event_set: Any) -> int:
    return _INVALID if fake.event_sets.pop(address_of(event_set), None) is None else 0


@device_function("nvmlDeviceGetSupportedEventTypes")
def _event_types(gpu: dict[str, Any], types: Any) -> int:
    types._obj.value = gpu.get("event_types", _XID_EVENTS)
    return 0


@library_function("nvmlDeviceRegisterEvents")
def _register_events(fake: FakeNvml, handle: Any, mask: Any, event_set: Any) -> int:
    index = address_of(handle) - 1
    gpu = fake.gpu(index, "nvmlDeviceRegisterEvents")
    registered = fake.event_sets.get(address_of(event_set))
    if registered is None:
        return _INVALID
    if mask.value & ~gpu.get("event_types", _XID_EVENTS):
        return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
    registered[index] = mask.value
    return 0


@library_function("nvmlEventSetWait_v2")
def _wait(fake: FakeNvml, event_set: Any, data: Any, timeout: Any) -> int:
    registered = fake.event_sets.get(address_of(event_set))
    if registered is None:
        return _INVALID
    event = fake.next_event(registered, timeout.value / 1000)
    if event is None:
        return int(pynvml.NVML_ERROR_TIMEOUT)
    index, code = event
    data._obj.device = ctypes.cast(ctypes.c_void_p(index + 1), pynvml.c_nvmlDevice_t)
    data._obj.eventType = _XID_EVENTS
    data._obj.eventData = code
    data._obj.gpuInstanceId = data._obj.computeInstanceId = 0xFFFFFFFF
    return 0


def _running_processes(gpu: dict[str, Any], count: Any, infos: Any) -> int:
    processes = value_of(gpu, "processes")
    room = count._obj.value
    count._obj.value = len(processes)
    if len(processes) > room:
        return _TOO_SMALL
    for info, (pid, used_bytes) in zip(infos or (), processes, strict=False):
        info.pid = pid
        info.usedGpuMemory = _NOT_AVAILABLE if used_bytes is None else used_bytes
        info.gpuInstanceId = info.computeInstanceId = 0xFFFFFFFF
    return 0


for _version in ("", "_v2", "_v3"):
    device_function(f"nvmlDeviceGetComputeRunningProcesses{_version}")(_running_processes)


@library_function("nvmlDeviceGetSamples")
def _samples(
    fake: FakeNvml, handle: Any, kind: Any, since: Any, value_type: Any, count: Any, samples: Any
) -> int:
    gpu = fake.gpu(address_of(handle) - 1, "nvmlDeviceGetSamples")
    found = fake.samples(gpu, kind.value, since.value)
    if not found:
        return _NOT_FOUND
    value_type._obj.value = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    # Without a buffer the answer is how many the driver's own one can hold.
    if samples is None:
        count._obj.value = max(fake.sample_room, len(found))
        return 0
    newest = found[-count._obj.value :]
    count._obj.value = len(newest)
    for place, (timestamp, value) in zip(samples, newest, strict=False):
        place.timeStamp = timestamp
        place.sampleValue.uiVal = value
    return 0


@device_function("nvmlDeviceGetGpuFabricInfoV")
def _fabric(gpu: dict[str, Any], info: Any) -> int:
    fabric = value_of(gpu, "fabric")
    known = (pynvml.nvmlGpuFabricInfo_v2, pynvml.nvmlGpuFabricInfo_v3)
    if info._obj.version not in known[: fabric.get("version", 3) - 1]:
        return _MISMATCH
    info._obj.status = fabric.get("status", 0)
    info._obj.cliqueId = fabric.get("clique", 0)
    info._obj.state = fabric["state"]
    info._obj.healthMask = fabric.get("health_mask", 0)
    if info._obj.version == pynvml.nvmlGpuFabricInfo_v3:
        info._obj.healthSummary = fabric.get("health_summary", 0)
    return 0


@device_function("nvmlDeviceGetMarginTemperature")
def _margin(gpu: dict[str, Any], info: Any) -> int:
    info._obj.marginTemperature = value_of(gpu, "margin_temperature")
    return 0


@device_function("nvmlDeviceGetNumaNodeId")
def _numa_node(gpu: dict[str, Any], node: Any) -> int:
    node._obj.value = value_of(gpu, "numa_node")
    return 0


@device_function("nvmlDeviceGetMinorNumber")
def _minor(gpu: dict[str, Any], number: Any) -> int:
    number._obj.value = value_of(gpu, "minor")
    return 0


@device_function("nvmlDeviceGetMigMode")
def _mig(gpu: dict[str, Any], current: Any, pending: Any) -> int:
    current._obj.value, pending._obj.value = value_of(gpu, "mig")
    return 0


@device_function("nvmlDeviceGetPersistenceMode")
def _persistence(gpu: dict[str, Any], mode: Any) -> int:
    mode._obj.value = value_of(gpu, "persistence")
    return 0
