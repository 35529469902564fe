"""What NVML knows of a GPU's memory errors and repairs: field values first, calls for the rest."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, TypeVar

import pynvml

from peerwatch_exporter.sources.gpu.readings import HealthReading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu

_T = TypeVar("_T")

# What gave nothing (another generation, an older driver, no root) is left in peace for a while: a
# refused call would be counted as an NVML error in every scrape. Chosen: drivers and rights change
# rarely.
_RETRY_SECONDS = 600.0

# Field ids of nvml.h, here and below.
_RETIRED = {"multiple_single_bit": 29, "double_bit": 30}
_RETIREMENT_PENDING = 31
_REMAPPED = {"correctable": 142, "uncorrectable": 143}
_REMAP_PENDING = 144
_REMAP_FAILED = 145
_RECOVERY_ACTION = 230

# In this order the field ids of each location follow.
_ECC_KINDS = (
    ("corrected", "volatile"),
    ("uncorrected", "volatile"),
    ("corrected", "aggregate"),
    ("uncorrected", "aggregate"),
)
# Field ids of nvml.h (NVML_FI_DEV_ECC_*) by location; the CBU corrects nothing.
_DRAM_FIELDS = (11, 12, 22, 23)
_UNIT_FIELDS = {
    "l1": (7, 8, 18, 19),
    "l2": (9, 10, 20, 21),
    "register_file": (13, 14, 24, 25),
    "texture": (15, 16, 26, 27),
    "cbu": (None, 17, None, 28),
}
# And of all locations together.
_TOTAL_FIELDS = (3, 4, 5, 6)
_SEVERITIES = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}
_SCOPES = {"volatile": pynvml.NVML_VOLATILE_ECC, "aggregate": pynvml.NVML_AGGREGATE_ECC}
# nvmlMemoryLocation_t of nvml.h.
_DRAM = 2
_SRAM = 7

_BANKS = ("max", "high", "partial", "low", "none")
_REPAIRS = ("channel", "tpc")

# By condition: place and width in the health mask, the value if all is well, values if not.
# 0 stands for "not supported" everywhere.
_FABRIC_CONDITIONS = {
    "degraded_bandwidth": (0, 0x3, 2, {1}),
    "route_recovery": (2, 0x3, 2, {1}),
    "route_unhealthy": (4, 0x3, 2, {1}),
    "access_timeout_recovery": (6, 0x3, 2, {1}),
    "incorrect_configuration": (8, 0xF, 1, set(range(2, 16))),
    "manager_disconnected": (14, 0x3, 1, {2}),
}

_FIELDS = tuple(
    (number, 0)
    for number in (
        *(*_TOTAL_FIELDS, *_DRAM_FIELDS),
        *(number for numbers in _UNIT_FIELDS.values() for number in numbers if number is not None),
        *(*_RETIRED.values(), _RETIREMENT_PENDING),
        *(*_REMAPPED.values(), _REMAP_PENDING, _REMAP_FAILED, _RECOVERY_ACTION),
    )
)


class HealthReader:
    """Reads the health of GPUs and remembers what each of them does not answer.

    Parameters
    ----------
    monotonic
        Clock for asking again.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._unsupported_until: dict[tuple[str, str], float] = {}

    def read(self, gpu: Gpu) -> HealthReading:
        """Return what a GPU says.

        Raises
        ------
        GpuLostError
            If the GPU is lost.
        """
        fields = {number: value for (number, _), value in gpu.fields(_FIELDS).items()}
        rows, pending, failed = self._remapping(gpu, fields)
        action = fields.get(_RECOVERY_ACTION)
        fabric = self._call(gpu, "fabric", lambda: _fabric(gpu))
        return HealthReading(
            ecc_errors=self._ecc_errors(gpu, fields),
            sram_threshold_exceeded=self._call(gpu, "sram_threshold", lambda: _sram_threshold(gpu)),
            remapped_rows=rows,
            row_remap_pending=pending,
            row_remap_failed=failed,
            row_remap_banks=self._call(gpu, "banks", lambda: _banks(gpu)) or {},
            retired_pages=_by_name(_RETIRED, fields),
            page_retirement_pending=_flag(fields.get(_RETIREMENT_PENDING)),
            repairs_pending=self._call(gpu, "repairs", lambda: _repairs(gpu)) or {},
            unrepairable_memory=_flag(
                self._call(
                    gpu,
                    "unrepairable",
                    lambda: gpu.call("nvmlDeviceGetUnrepairableMemoryFlag_v1"),
                )
            ),
            recovery_action=None if action is None else int(action),
            fabric_state=None if fabric is None else fabric[0],
            fabric_health={} if fabric is None else fabric_health(fabric[1]),
        )

    def _ecc_errors(
        self, gpu: Gpu, fields: Mapping[int, float]
    ) -> Mapping[tuple[str, str, str], float]:
        """Return the errors without counting any twice: by unit, or SRAM as a whole, or the sum."""
        errors: dict[tuple[str, str, str], float] = {}

        def add(location: str, numbers: tuple[int | None, ...]) -> None:
            for (severity, scope), number in zip(_ECC_KINDS, numbers, strict=True):
                if number is not None and number in fields:
                    errors[severity, location, scope] = fields[number]

        add("dram", _DRAM_FIELDS)
        if not errors:
            errors.update(self._counted(gpu, "dram", _DRAM))
        sram = self._counted(gpu, "sram", _SRAM)
        if sram:
            errors.update(sram)
        else:
            for location, numbers in _UNIT_FIELDS.items():
                add(location, numbers)
        if not errors:
            add("all", _TOTAL_FIELDS)
        return errors

    def _counted(
        self, gpu: Gpu, location: str, number: int
    ) -> Mapping[tuple[str, str, str], float]:
        def count() -> Mapping[tuple[str, str, str], float] | None:
            found = {}
            for severity, scope in _ECC_KINDS:
                value = gpu.call(
                    "nvmlDeviceGetMemoryErrorCounter", _SEVERITIES[severity], _SCOPES[scope], number
                )
                if value is not None:
                    found[severity, location, scope] = value
            return found or None

        return self._call(gpu, location, count) or {}

    def _remapping(
        self, gpu: Gpu, fields: Mapping[int, float]
    ) -> tuple[Mapping[str, float], bool | None, bool | None]:
        rows = _by_name(_REMAPPED, fields)
        if rows:
            return rows, _flag(fields.get(_REMAP_PENDING)), _flag(fields.get(_REMAP_FAILED))
        found = self._call(gpu, "rows", lambda: gpu.call("nvmlDeviceGetRemappedRows"))
        if found is None:
            return {}, None, None
        correctable, uncorrectable, pending, failed = found
        rows = {"correctable": correctable, "uncorrectable": uncorrectable}
        return rows, bool(pending), bool(failed)

    def _call(self, gpu: Gpu, what: str, call: Callable[[], _T | None]) -> _T | None:
        key = (gpu.identity.key, what)
        if self._monotonic() < self._unsupported_until.get(key, 0.0):
            return None
        answer = call()
        if answer is None:
            self._unsupported_until[key] = self._monotonic() + _RETRY_SECONDS
        return answer


def _sram_threshold(gpu: Gpu) -> bool | None:
    make = getattr(pynvml, "c_nvmlEccSramErrorStatus_v1_t", None)
    if make is None:
        return None
    status = make()
    if gpu.call("nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status)) is None:
        return None
    return bool(status.bThresholdExceeded)


def _banks(gpu: Gpu) -> Mapping[str, float] | None:
    histogram = gpu.call("nvmlDeviceGetRowRemapperHistogram")
    return None if histogram is None else {name: getattr(histogram, name) for name in _BANKS}


def _repairs(gpu: Gpu) -> Mapping[str, bool] | None:
    pending = gpu.call("nvmlDeviceGetRepairStatus")
    return None if pending is None else dict(zip(_REPAIRS, map(bool, pending), strict=True))


def _fabric(gpu: Gpu) -> tuple[int, int] | None:
    """Return state and health mask of the GPU in its NVLink fabric."""
    for structure in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        make = getattr(pynvml, structure, None)
        if make is None:
            continue
        info = make()
        if gpu.call("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info)) is not None:
            return int(info.state), int(info.healthMask)
    return None


def fabric_health(mask: int) -> dict[str, bool]:
    """Return, by condition, whether it holds; what the driver does not report is left out."""
    conditions = {}
    for name, (shift, width, fine, bad) in _FABRIC_CONDITIONS.items():
        value = mask >> shift & width
        if value == fine or value in bad:
            conditions[name] = value != fine
    return conditions


def _by_name(numbers: Mapping[str, int], fields: Mapping[int, float]) -> Mapping[str, float]:
    return {name: fields[number] for name, number in numbers.items() if number in fields}


def _flag(value: float | None) -> bool | None:
    return None if value is None else bool(value)
