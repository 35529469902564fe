"""A fake NVML library in pure Python: the genuine pynvml wrappers run on top of it.

``pynvml.nvmlLib`` is replaced by an object whose functions write through ``byref(x)._obj``, so
pynvml's own structures, version checks and exceptions are exercised; only the driver is not real.
What it answers comes from a scenario, a plain dict or JSON file with NVML's own raw units:

    {
      "driver_version": "570.124.06",
      "missing_functions": ["nvmlDeviceGetMemoryInfo_v2"],  # an old driver
      "init_error": 9,                                      # nvmlInit fails with this code
      "gpus": [{
        "uuid": "GPU-...", "name": "...", "serial": "...", "vbios": "...",
        "pci_bus_id": "00000000:18:00.0",
        "utilization": 97, "memory_utilization": 41,        # percent
        "memory": {"total": 1, "used": 1, "reserved": 1},   # bytes
        "power": 1, "power_limit": 700000, "energy": 1,     # milliwatts, millijoules
        "temperature": 61, "performance_state": 0, "clock_event_reasons": 4,
        "clocks": {"graphics": 1980, "sm": 1980, "memory": 2619}, "clocks_max": {...},   # MHz
        "pcie": {"generation": 5, "width": 16, "generation_max": 5, "width_max": 16, "replays": 0},
        "nvlink_states": [1, 1],
        "fields": {"186": 1, "165": [1, 1], "138": {"all": 1}},   # by id; list or dict by scope
        "lost": false, "unsupported": ["nvmlDeviceGetSerial"],
        "errors": {"nvmlDeviceGetUtilizationRates": 999},         # function -> return code
        "delays": {"nvmlDeviceGetUtilizationRates": 0.5}          # function -> seconds
      }]
    }

Health and activity have keys of their own: see ``fake_nvml_health``.

The scenario may be changed while installed. A scenario that came from a file is read again when
the file was replaced, looked at once per ``nvmlDeviceGetCount`` (once per collection).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from pathlib import Path

_CLOCK_NAMES = {
    pynvml.NVML_CLOCK_GRAPHICS: "graphics",
    pynvml.NVML_CLOCK_SM: "sm",
    pynvml.NVML_CLOCK_MEM: "memory",
}
_ALL_LINKS = 0xFFFFFFFF
_FUNCTIONS: dict[str, Callable[..., int]] = {}
_F = Callable[..., int]


class _ReturnError(Exception):
    """Ends a fake function with an NVML return code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _library(name: str) -> Callable[[_F], _F]:
    """Register a function of the library that concerns no single GPU."""

    def add(function: _F) -> _F:
        _FUNCTIONS[name] = functools.partial(_run, name, function)
        return function

    return add


def _device(name: str) -> Callable[[_F], _F]:
    """Register a function whose first argument is a GPU's handle; it gets the GPU's dict."""

    def add(function: _F) -> _F:
        def call(fake: FakeNvml, handle: Any, *arguments: Any) -> int:
            index = ctypes.cast(handle, ctypes.c_void_p).value - 1
            return function(fake.gpu(index, name), *arguments)

        _FUNCTIONS[name] = functools.partial(_run, name, call)
        return function

    return add


def _run(name: str, function: _F, fake: FakeNvml, *arguments: Any) -> int:
    fake.calls[name] = fake.calls.get(name, 0) + 1
    if not fake.initialised and name != "nvmlInitWithFlags":
        return pynvml.NVML_ERROR_UNINITIALIZED
    try:
        return function(fake, *arguments) or pynvml.NVML_SUCCESS
    except _ReturnError as error:
        return error.code


def _value(gpu: dict[str, Any], *keys: str) -> Any:
    """Return a nested value of the scenario; a missing one is not supported by the board."""
    found: Any = gpu
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            raise _ReturnError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        found = found[key]
    return found


class FakeNvml:
    """The library object; every attribute that pynvml looks up is one of the functions below.

    Parameters
    ----------
    scenario
        What the GPUs answer; may be changed at any time.

    Attributes
    ----------
    calls
        How often each function was called.
    gpm_samples
        GPM sample buffers that are allocated, by address: GPU, order and values of the sample.
    """

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.calls: dict[str, int] = {}
        self.gpm_samples: dict[int, tuple[int, int, dict[str, float]] | None] = {}
        self.initialised = False
        self._path: Path | None = None
        self._version: tuple[int, int] = (0, 0)
        self._pointers: dict[str, functools.partial[int]] = {}

    @classmethod
    def from_file(cls, path: Path) -> FakeNvml:
        """Return a library that follows a JSON file."""
        fake = cls({})
        fake.reload(path)
        return fake

    def reload(self, path: Path) -> bool:
        """Read the scenario from a file if it changed since; later changes are followed."""
        self._path = path
        status = path.stat()
        version = (status.st_mtime_ns, status.st_ino)
        if version == self._version:
            return False
        self.scenario = json.loads(path.read_text())
        self._version = version
        return True

    def follow(self) -> None:
        """Look whether the scenario's file, if any, was replaced."""
        if self._path is not None:
            self.reload(self._path)

    def gpu(self, index: int, function: str) -> dict[str, Any]:
        """Return a GPU's values, or end the call as its faults demand."""
        gpu: dict[str, Any] = self.scenario["gpus"][index]
        if delay := gpu.get("delays", {}).get(function):
            time.sleep(delay)
        if gpu.get("lost"):
            raise _ReturnError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if code := gpu.get("errors", {}).get(function):
            raise _ReturnError(code)
        if function in gpu.get("unsupported", ()):
            raise _ReturnError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return gpu

    def __getattr__(self, name: str) -> functools.partial[int]:
        if name not in _FUNCTIONS or name in self.scenario.get("missing_functions", ()):
            raise AttributeError(name)
        # A partial, because pynvml sets ``restype`` on some functions, and the same one each time.
        return self._pointers.setdefault(name, functools.partial(_FUNCTIONS[name], self))


@contextlib.contextmanager
def install(scenario: dict[str, Any] | FakeNvml | None) -> Iterator[FakeNvml]:
    """Put a fake library behind pynvml; afterwards pynvml is as it was.

    Parameters
    ----------
    scenario
        What the GPUs answer, a ready library, or None for a node without the NVML library.
    """
    fake = scenario if isinstance(scenario, FakeNvml) else FakeNvml(scenario or {"gpus": []})
    saved = (
        pynvml.nvmlLib,
        dict(pynvml._nvmlGetFunctionPointer_cache),
        pynvml._nvmlLib_refcount,
        pynvml.CDLL,
    )

    def no_library(name: str, *_: object) -> None:
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    try:
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlLib_refcount = 0
        pynvml.nvmlLib = None if scenario is None else fake
        pynvml.CDLL = no_library
        yield fake
    finally:
        pynvml.nvmlLib, cache, pynvml._nvmlLib_refcount, pynvml.CDLL = saved
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(cache)


@_library("nvmlInitWithFlags")
def _init(fake: FakeNvml, flags: int) -> int:
    fake.follow()
    if code := fake.scenario.get("init_error"):
        return code
    fake.initialised = True
    return pynvml.NVML_SUCCESS


@_library("nvmlShutdown")
def _shutdown(fake: FakeNvml) -> int:
    fake.initialised = False
    return pynvml.NVML_SUCCESS


@_library("nvmlSystemGetDriverVersion")
def _driver_version(fake: FakeNvml, buffer: Any, length: Any) -> int:
    buffer.value = fake.scenario["driver_version"].encode()
    return pynvml.NVML_SUCCESS


@_library("nvmlDeviceGetCount_v2")
def _count(fake: FakeNvml, count: Any) -> int:
    fake.follow()
    count._obj.value = len(fake.scenario["gpus"])
    return pynvml.NVML_SUCCESS


@_library("nvmlDeviceGetHandleByIndex_v2")
def _handle(fake: FakeNvml, index: Any, handle: Any) -> int:
    if index.value >= len(fake.scenario["gpus"]):
        return pynvml.NVML_ERROR_INVALID_ARGUMENT
    fake.gpu(index.value, "nvmlDeviceGetHandleByIndex_v2")
    # The handle is an opaque pointer; its address says which GPU it is.
    pointer = ctypes.cast(ctypes.byref(handle._obj), ctypes.POINTER(ctypes.c_void_p))
    pointer[0] = index.value + 1
    return pynvml.NVML_SUCCESS


def _text(function: str, key: str) -> None:
    @_device(function)
    def read(gpu: dict[str, Any], buffer: Any, length: Any) -> int:
        text = _value(gpu, key).encode()
        if len(text) >= length.value:
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        buffer.value = text
        return pynvml.NVML_SUCCESS


def _number(function: str, *keys: str) -> None:
    @_device(function)
    def read(gpu: dict[str, Any], result: Any) -> int:
        result._obj.value = _value(gpu, *keys)
        return pynvml.NVML_SUCCESS


def _clock(function: str, key: str) -> None:
    @_device(function)
    def read(gpu: dict[str, Any], domain: Any, result: Any) -> int:
        result._obj.value = _value(gpu, key, _CLOCK_NAMES.get(domain.value, ""))
        return pynvml.NVML_SUCCESS


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


@_device("nvmlDeviceGetPciInfo_v3")
def _pci_info(gpu: dict[str, Any], info: Any) -> int:
    address = _value(gpu, "pci_bus_id")
    domain, bus, device = address.partition(".")[0].split(":")
    info._obj.domain, info._obj.bus, info._obj.device = (int(x, 16) for x in (domain, bus, device))
    info._obj.busId = address
    info._obj.busIdLegacy = f"{domain[-4:]}:{bus}:{device}.0"
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetUtilizationRates")
def _utilization(gpu: dict[str, Any], rates: Any) -> int:
    rates._obj.gpu = _value(gpu, "utilization")
    rates._obj.memory = gpu.get("memory_utilization", 0)
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetMemoryInfo")
def _memory(gpu: dict[str, Any], info: Any) -> int:
    memory = _value(gpu, "memory")
    # The first version of the call counts the reserved part as used.
    info._obj.total = memory["total"]
    info._obj.used = memory["used"] + memory.get("reserved", 0)
    info._obj.free = info._obj.total - info._obj.used
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetMemoryInfo_v2")
def _memory_v2(gpu: dict[str, Any], info: Any) -> int:
    if info._obj.version != pynvml.nvmlMemory_v2:
        return pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    memory = _value(gpu, "memory")
    info._obj.total, info._obj.used = memory["total"], memory["used"]
    info._obj.reserved = memory.get("reserved", 0)
    info._obj.free = memory["total"] - memory["used"] - info._obj.reserved
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetTemperature")
def _temperature(gpu: dict[str, Any], sensor: Any, result: Any) -> int:
    result._obj.value = _value(gpu, "temperature")
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetTemperatureV")
def _temperature_v(gpu: dict[str, Any], result: Any) -> int:
    if result._obj.version != pynvml.nvmlTemperature_v1:
        return pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    result._obj.temperature = _value(gpu, "temperature")
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetNvLinkState")
def _link_state(gpu: dict[str, Any], link: int, result: Any) -> int:
    states = _value(gpu, "nvlink_states")
    if link >= len(states):
        return pynvml.NVML_ERROR_INVALID_ARGUMENT
    result._obj.value = states[link]
    return pynvml.NVML_SUCCESS


@_device("nvmlDeviceGetFieldValues")
def _field_values(gpu: dict[str, Any], count: Any, values: Any) -> int:
    fields = gpu.get("fields", {})
    for value in values._obj[: count.value]:
        found = fields.get(str(value.fieldId))
        if isinstance(found, list):
            found = found[value.scopeId] if value.scopeId < len(found) else None
        elif isinstance(found, dict):
            scope = "all" if value.scopeId == _ALL_LINKS else str(value.scopeId)
            found = found.get(scope)
        if found is None:
            value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
        elif found == "lost":
            value.nvmlReturn = pynvml.NVML_ERROR_GPU_IS_LOST
        else:
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            value.value.ullVal = found
    return pynvml.NVML_SUCCESS


# Registers its functions; it needs the decorators above.
import fake_nvml_health  # noqa: E402, F401
