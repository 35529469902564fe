"""A fake NVML library in pure Python: the genuine pynvml wrappers run on top of it.

``pynvml.nvmlLib`` is replaced by an object whose functions write through ``byref(x)._obj``, so
pynvml's own structures, version checks and exceptions are exercised; only the driver is not real.
What it answers comes from a scenario, a plain dict or JSON file with NVML's own raw units:

    {
      "driver_version": "570.124.06", "cuda_version": 12080,
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
        "ecc": {"7": {"corrected": [1, 2], "uncorrected": [0, 0]}},  # volatile, aggregate
        "sram_threshold_exceeded": 0,
        "remapped_rows": [2, 1, 0, 0],        # correctable, uncorrectable, pending, failed
        "row_remap_banks": {"max": 638, "high": 1, "partial": 0, "low": 0, "none": 0},
        "repair": [0, 0],                     # channel, TPC
        "unrepairable_memory": 0,
        "gpm": {"2": 91.5},                   # percent by metric id; a board without it has no GPM
        "processes": [[4711, 70866960384]],   # pid, bytes of GPU memory (null: not available)
        "samples": {"0": [[1767300000000000, 612345]]},  # by kind: microseconds, value
        "fabric": {"state": 3, "status": 0, "health_mask": 0, "health_summary": 0, "version": 3},
        "event_types": 8, "margin_temperature": 32, "numa_node": 0, "minor": 0, "mig": [0, 0],
        "persistence": 1, "ecc_mode": [1, 1],               # now, after the next reset
        "temperature_limits": {"0": 92, "1": 89},           # by kind: Celsius
        "power_limits": {"min": 1, "max": 1, "default": 1, "management": 1},   # milliwatts
        "encoder": 0, "decoder": 0,                         # percent
        "compute_mode": 0, "application_clocks": {"0": 1980, "2": 2619},   # by domain: MHz
        "inforom": "G520.0200.00.05", "gsp_firmware": "570.124.06",
        "mig_instances": [{"address": 1001, "gpu_instance": 1, "compute_instance": 0, "uuid": "...",
                           "name": "... MIG 1g.10gb", "memory": {...}}],
        "lost": false, "unsupported": ["nvmlDeviceGetSerial"],
        "errors": {"nvmlDeviceGetUtilizationRates": 999},         # function -> return code
        "delays": {"nvmlDeviceGetUtilizationRates": 0.5}          # function -> seconds
      }]
    }

The scenario may be changed while installed. A scenario that came from a file is read again when
the file was replaced, looked at once per ``nvmlDeviceGetCount`` (once per collection). XID events
are raised with ``FakeNvml.raise_xid``.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import pynvml

# Each module registers the functions it answers.
from peerwatch_demo.simulated_node import (
    nvml_activity_calls,
    nvml_board_calls,
    nvml_health_calls,
    nvml_settings_calls,
)
from peerwatch_demo.simulated_node.nvml_registry import (
    FUNCTIONS,
    ReturnCode,
    library_function,
    store_address,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = [
    "FakeNvml",
    "install",
    "nvml_activity_calls",
    "nvml_board_calls",
    "nvml_health_calls",
    "nvml_settings_calls",
    "put_in_place",
]


class FakeNvml:
    """The library object; every attribute that pynvml looks up is a registered function.

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
    event_sets
        Event sets that were created, by address: the types of event registered for each GPU.
    """

    # What the driver's own sample buffer holds at most.
    sample_room = 120

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.calls: dict[str, int] = {}
        self.gpm_samples: dict[int, tuple[int, int, dict[str, float]] | None] = {}
        self.event_sets: dict[int, dict[int, int]] = {}
        self.initialised = False
        self._events: deque[tuple[int, int]] = deque()
        self._raised = threading.Condition()
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

    def board(self, index: int) -> dict[str, Any]:
        """Return a GPU's values."""
        gpus = self.scenario["gpus"]
        if index < len(gpus):
            board: dict[str, Any] = gpus[index]
            return board
        # An instance of a split GPU, which has a handle of its own.
        instances = (part for gpu in gpus for part in gpu.get("mig_instances", ()))
        return next(part for part in instances if part["address"] == index + 1)

    def gpu(self, index: int, function: str) -> dict[str, Any]:
        """Return a GPU's values, or end the call as its faults demand."""
        gpu = self.board(index)
        if delay := gpu.get("delays", {}).get(function):
            time.sleep(delay)
        if gpu.get("lost"):
            raise ReturnCode(pynvml.NVML_ERROR_GPU_IS_LOST)
        if code := gpu.get("errors", {}).get(function):
            raise ReturnCode(code)
        if function in gpu.get("unsupported", ()):
            raise ReturnCode(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return gpu

    def samples(self, gpu: dict[str, Any], kind: int, since: int) -> list[tuple[int, int]]:
        """Return (microseconds, value) of a GPU's sample buffer after a time, oldest first."""
        kept = gpu.get("samples", {}).get(str(kind), ())
        return [(timestamp, value) for timestamp, value in kept if timestamp > since]

    def raise_xid(self, index: int, code: int) -> None:
        """Let a GPU report an XID to whoever waits for events, once."""
        with self._raised:
            self._events.append((index, code))
            self._raised.notify_all()

    def next_event(self, registered: Mapping[int, int], timeout: float) -> tuple[int, int] | None:
        """Return GPU and XID of the oldest event of the registered GPUs, or None in time."""
        with self._raised:
            self._raised.wait_for(lambda: bool(self._events), timeout)
            wanted = next((event for event in self._events if event[0] in registered), None)
            if wanted is not None:
                self._events.remove(wanted)
            return wanted

    def __getattr__(self, name: str) -> functools.partial[int]:
        if name not in FUNCTIONS or name in self.scenario.get("missing_functions", ()):
            raise AttributeError(name)
        # A partial, because pynvml sets ``restype`` on some functions, and the same one each time.
        return self._pointers.setdefault(name, functools.partial(FUNCTIONS[name], self))


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

    try:
        put_in_place(None if scenario is None else fake)
        yield fake
    finally:
        pynvml.nvmlLib, cache, pynvml._nvmlLib_refcount, pynvml.CDLL = saved
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(cache)


def put_in_place(fake: FakeNvml | None) -> None:
    """Let pynvml call a fake library, or find none, for as long as this process lives."""
    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml._nvmlLib_refcount = 0
    pynvml.nvmlLib = fake
    pynvml.CDLL = _no_library


def _no_library(name: str, *_: object) -> None:
    raise OSError(f"{name}: cannot open shared object file: No such file or directory")


@library_function("nvmlInitWithFlags")
def _init(fake: FakeNvml, flags: int) -> int:
    fake.follow()
    code: int = fake.scenario.get("init_error") or 0
    fake.initialised = not code
    return code


@library_function("nvmlShutdown")
def _shutdown(fake: FakeNvml) -> int:
    fake.initialised = False
    return 0


@library_function("nvmlSystemGetDriverVersion")
def _driver_version(fake: FakeNvml, buffer: Any, length: Any) -> int:
    buffer.value = fake.scenario["driver_version"].encode()
    return 0


@library_function("nvmlDeviceGetCount_v2")
def _count(fake: FakeNvml, count: Any) -> int:
    fake.follow()
    count._obj.value = len(fake.scenario["gpus"])
    return 0


@library_function("nvmlDeviceGetHandleByIndex_v2")
def _handle(fake: FakeNvml, index: Any, handle: Any) -> int:
    if index.value >= len(fake.scenario["gpus"]):
        return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    fake.gpu(index.value, "nvmlDeviceGetHandleByIndex_v2")
    store_address(handle, index.value + 1)
    return 0
