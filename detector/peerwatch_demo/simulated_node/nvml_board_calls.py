"""The fake library's answers about a board: identity, load, power, clocks, links and fields."""

from __future__ import annotations

import struct
from typing import Any

import pynvml

from peerwatch_demo.simulated_node.nvml_registry import device_function, value_of

_CLOCK_NAMES = {
    pynvml.NVML_CLOCK_GRAPHICS: "graphics",
    pynvml.NVML_CLOCK_SM: "sm",
    pynvml.NVML_CLOCK_MEM: "memory",
}
# Of nvml.h: a scopeId that means all links together.
_ALL_LINKS = 0xFFFFFFFF
# nvmlFieldValue_t: field and scope, and then time, latency, kind of value, code and value.
_REQUEST = struct.Struct("=II")
_ANSWER = struct.Struct("=qqIIQ")
_FIELD_BYTES = _REQUEST.size + _ANSWER.size
_LARGEST_VALUE = 2**64 - 1


def _text(function: str, key: str) -> None:
    @device_function(function)
    def read(gpu: dict[str, Any], buffer: Any, length: Any) -> int:
        text = value_of(gpu, key).encode()
        if len(text) >= length.value:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        buffer.value = text
        return 0


def _number(function: str, *keys: str) -> None:
    @device_function(function)
    def read(gpu: dict[str, Any], result: Any) -> int:
        result._obj.value = value_of(gpu, *keys)
        return 0


def _clock(function: str, key: str) -> None:
    @device_function(function)
    def read(gpu: dict[str, Any], domain: Any, result: Any) -> int:
        result._obj.value = value_of(gpu, key, _CLOCK_NAMES.get(domain.value, ""))
        return 0


_text("nvmlDeviceGetUUID", "uuid")
_text("nvmlDeviceGetName", "name")
_text("nvmlDeviceGetSerial", "serial")
_text("nvmlDeviceGetVbiosVersion", "vbios")
_number("nvmlDeviceGetPowerUsage", "power")
_number("nvmlDeviceGetEnforcedPowerLimit", "power_limit")
_number("nvmlDeviceGetTotalEnergyConsumption", "energy")
_number("nvmlDeviceGetPerformanceState", "performance_state")
_number("nvmlDeviceGetCurrentClocksEventReasons", "clock_event_reasons")
_number("nvmlDeviceGetCurrentClocksThrottleReasons", "clock_event_reasons")
_number("nvmlDeviceGetCurrPcieLinkGeneration", "pcie", "generation")
_number("nvmlDeviceGetMaxPcieLinkGeneration", "pcie", "generation_max")
_number("nvmlDeviceGetCurrPcieLinkWidth", "pcie", "width")
_number("nvmlDeviceGetMaxPcieLinkWidth", "pcie", "width_max")
_number("nvmlDeviceGetPcieReplayCounter", "pcie", "replays")
_clock("nvmlDeviceGetClockInfo", "clocks")
_clock("nvmlDeviceGetMaxClockInfo", "clocks_max")


@device_function("nvmlDeviceGetPciInfo_v3")
def _pci_info(gpu: dict[str, Any], info: Any) -> int:
    address = value_of(gpu, "pci_bus_id")
    domain, bus, device = address.partition(".")[0].split(":")
    info._obj.domain, info._obj.bus, info._obj.device = (int(x, 16) for x in (domain, bus, device))
    info._obj.busId = address
    info._obj.busIdLegacy = f"{domain[-4:]}:{bus}:{device}.0"
    return 0


@device_function("nvmlDeviceGetUtilizationRates")
def _utilization(gpu: dict[str, Any], rates: Any) -> int:
    rates._obj.gpu = value_of(gpu, "utilization")
    rates._obj.memory = gpu.get("memory_utilization", 0)
    return 0


@device_function("nvmlDeviceGetMemoryInfo")
def _memory(gpu: dict[str, Any], info: Any) -> int:
    memory = value_of(gpu, "memory")
    # The first version of the call counts the reserved part as used.
    info._obj.total = memory["total"]
    info._obj.used = memory["used"] + memory.get("reserved", 0)
    info._obj.free = info._obj.total - info._obj.used
    return 0


@device_function("nvmlDeviceGetMemoryInfo_v2")
def _memory_v2(gpu: dict[str, Any], info: Any) -> int:
    if info._obj.version != pynvml.nvmlMemory_v2:
        return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    memory = value_of(gpu, "memory")
    info._obj.total, info._obj.used = memory["total"], memory["used"]
    info._obj.reserved = memory.get("reserved", 0)
    info._obj.free = memory["total"] - memory["used"] - info._obj.reserved
    return 0


@device_function("nvmlDeviceGetTemperature")
def _temperature(gpu: dict[str, Any], sensor: Any, result: Any) -> int:
    result._obj.value = value_of(gpu, "temperature")
    return 0


@device_function("nvmlDeviceGetTemperatureV")
def _temperature_v(gpu: dict[str, Any], result: Any) -> int:
    if result._obj.version != pynvml.nvmlTemperature_v1:
        return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    result._obj.temperature = value_of(gpu, "temperature")
    return 0


@device_function("nvmlDeviceGetNvLinkState")
def _link_state(gpu: dict[str, Any], link: int, result: Any) -> int:
    states = value_of(gpu, "nvlink_states")
    if link >= len(states):
        return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    result._obj.value = states[link]
    return 0


@device_function("nvmlDeviceGetFieldValues")
def _field_values(gpu: dict[str, Any], count: Any, values: Any) -> int:
    fields = gpu.get("fields", {})
    for number in range(count.value):
        at = number * _FIELD_BYTES
        field, scope = _REQUEST.unpack_from(values._obj, at)
        found = fields.get(str(field))
        if isinstance(found, list):
            found = found[scope] if scope < len(found) else None
        elif isinstance(found, dict):
            found = found.get("all" if scope == _ALL_LINKS else str(scope))
        kind, code, value = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, pynvml.NVML_SUCCESS, 0
        if found is None:
            code = pynvml.NVML_ERROR_NOT_SUPPORTED
        elif found == "lost":
            code = pynvml.NVML_ERROR_GPU_IS_LOST
        else:
            value = found & _LARGEST_VALUE
        _ANSWER.pack_into(values._obj, at + _REQUEST.size, 0, 0, kind, code, value)
    return 0
