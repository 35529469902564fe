"""One GPU as NVML gives it: its values, in base units.

A value that the board, the driver or the permissions do not give is None; a lost GPU raises
``GpuLostError``, one that cannot be opened ``GpuUnreadableError``.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any

import pynvml

from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, GpuUnreadableError
from peerwatch_exporter.sources.gpu.nvml_field_values import FIELD
from peerwatch_exporter.sources.gpu.nvml_fields import (
    ENERGY,
    EVENT_BITS,
    FAST_FIELDS,
    FAST_FIELDS_AND_ENERGY,
    MEMORY_TEMPERATURE,
    POWER_INSTANT,
    STATE_FIELDS,
    THROTTLE_FIELDS,
)
from peerwatch_exporter.sources.gpu.readings import GpuReading, GpuState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_exporter.sources.gpu.nvml import Nvml

# nvml.h names no limit on the fields of one call; several small calls cannot hit one. Chosen: one
# call has all but NVLink's.
_FIELDS_PER_CALL = 128

# The board or the driver does not have the value, now or ever: not worth counting.
UNSUPPORTED = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        # A buffer of samples is empty: the GPU idles. No event waits to be taken.
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_TIMEOUT,
    }
)
# An older driver answers this for a field id that it has never heard of.
_FIELD_UNSUPPORTED = UNSUPPORTED | {pynvml.NVML_ERROR_INVALID_ARGUMENT}

_LONG = struct.Struct("=Q")
_VALUES = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: struct.Struct("=d"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: struct.Struct("=I"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: _LONG,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: _LONG,
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: struct.Struct("=q"),
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: struct.Struct("=i"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: struct.Struct("=H"),
}
# Looked up hundreds of times a second.
_SUCCESS = pynvml.NVML_SUCCESS
_READ_LONG = _LONG.unpack_from
_READ = {kind: form.unpack_from for kind, form in _VALUES.items()}
# Energy alone takes the driver milliseconds (2.3 on an H100), everything else microseconds. It is
# read at every fifth tick of a clock whose ticks may come a little early.
_ENERGY_TICKS = 5
_ENERGY_REST_SECONDS = _ENERGY_TICKS - 0.5
_CLOCKS = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
}


class Gpu:
    """One board as the driver lists it; reads it in base units.

    Parameters
    ----------
    identity
        Which board it is.
    handle
        NVML's handle, or None if the driver refused it because the GPU is lost.
    nvml
        The library this GPU belongs to.
    unreadable
        Why software keeps the GPU from being opened, in a word; None if it does not.

    Attributes
    ----------
    labels
        The values of the labels ``gpu`` and ``uuid``.
    unreadable
        As given.
    """

    def __init__(
        self,
        identity: GpuIdentity,
        handle: Any,  # noqa: ANN401
        nvml: Nvml,
        *,
        unreadable: str | None = None,
    ) -> None:
        self.identity = identity
        self.unreadable = unreadable
        self._handle = handle
        self._nvml = nvml
        self.labels = str(identity.index), identity.uuid
        self._clocks_max: Mapping[str, float] | None = None
        self._energy_joules: float | None = None
        self._energy_due = 0.0

    @property
    def address(self) -> int:
        """The address in NVML's handle, by which events name the GPU; 0 if it is lost."""
        return ctypes.cast(self._handle, ctypes.c_void_p).value or 0

    @property
    def answers(self) -> bool:
        """Whether the GPU could be opened and was not found to be lost."""
        return self._handle is not None

    def read(self) -> GpuReading:
        """Return what it does now; energy is up to 5 s old.

        Raises
        ------
        GpuLostError
            If the GPU is lost.
        """
        fields = self._fast_fields()
        utilization = self.call("nvmlDeviceGetUtilizationRates")
        total, used, reserved = self._memory()
        power = fields.get((POWER_INSTANT, 0))
        return GpuReading(
            utilization_ratio=None if utilization is None else utilization.gpu / 100,
            memory_utilization_ratio=None if utilization is None else utilization.memory / 100,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_reserved_bytes=reserved,
            power_watts=_scaled(
                self.call("nvmlDeviceGetPowerUsage") if power is None else power, 1e3
            ),
            has_instant_power=power is not None,
            energy_joules=self._energy_joules,
            sm_clock_hertz=self._clock("sm"),
        )

    def read_state(self) -> GpuState:
        """Return what holds it back, and what changes slowly.

        Raises
        ------
        GpuLostError
            If the GPU is lost.
        """
        if self._clocks_max is None:
            clocks = {name: self._clock(name, "nvmlDeviceGetMaxClockInfo") for name in _CLOCKS}
            self._clocks_max = _known(**clocks)
        fields = self.fields(STATE_FIELDS)
        state = self.call("nvmlDeviceGetPerformanceState")
        return GpuState(
            power_limit_watts=_scaled(self.call("nvmlDeviceGetEnforcedPowerLimit"), 1e3),
            performance_state=None if state == pynvml.NVML_PSTATE_UNKNOWN else state,
            temperatures_celsius=_known(
                core=self._core_temperature(), memory=fields.get((MEMORY_TEMPERATURE, 0))
            ),
            temperature_margin_celsius=self.call("nvmlDeviceGetMarginTemperature"),
            graphics_clock_hertz=self._clock("graphics"),
            memory_clock_hertz=self._clock("memory"),
            clocks_max_hertz=self._clocks_max,
            clock_events=self._clock_events(),
            throttle_seconds=_known(
                **{
                    reason: _scaled(fields.get((field, 0)), 1e9)
                    for reason, field in THROTTLE_FIELDS.items()
                }
            ),
        )

    def call(self, function: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401
        """Call a pynvml function of this GPU; None if the GPU or the driver lacks it."""
        if self._handle is not None:
            self._nvml.marker.at(self.identity.index)
            try:
                return self._nvml.call(function, self._handle, *arguments, **options)
            except GpuLostError:
                self._lose()
        if self.unreadable is not None:
            raise GpuUnreadableError(f"GPU {self.identity.index}: {self.unreadable}.")
        raise GpuLostError(f"GPU {self.identity.index} ({self.identity.uuid}) is lost.")

    def fields(self, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], float]:
        """Return those of the wanted (field id, scope) that the GPU answers."""
        values: dict[tuple[int, int], float] = {}
        for start in range(0, len(wanted), _FIELDS_PER_CALL):
            part = tuple(wanted[start : start + _FIELDS_PER_CALL])
            answer = self.call("nvmlDeviceGetFieldValues", part)
            if answer is None:
                continue
            for field, scope, _, _, kind, code, value in FIELD.iter_unpack(answer):
                if code == _SUCCESS:
                    values[field, scope] = _READ.get(kind, _READ_LONG)(value)[0]
                elif code == pynvml.NVML_ERROR_GPU_IS_LOST:
                    # The call as a whole succeeds on a lost GPU; only its fields say so.
                    self._lose()
                    raise GpuLostError(f"GPU {self.identity.index} is lost.")
                else:
                    self._nvml.handle_error(code, _FIELD_UNSUPPORTED)
        return values

    def _fast_fields(self) -> dict[tuple[int, int], float]:
        """Return the fast fields; takes the energy with them when it is due."""
        now = self._nvml.monotonic()
        if self._energy_joules is not None and now < self._energy_due:
            return self.fields(FAST_FIELDS)
        is_first = self._energy_joules is None
        fields = self.fields(FAST_FIELDS_AND_ENERGY)
        self._energy_joules = _scaled(fields.get((ENERGY, 0)), 1e3)
        # After the first time, when all are read, the GPUs take turns.
        turn = self.identity.index % _ENERGY_TICKS if is_first else 0
        self._energy_due = now + _ENERGY_REST_SECONDS - turn
        return fields

    def _lose(self) -> None:
        self._handle = None
        self._nvml.count_loss(self.identity)

    def _memory(self) -> tuple[int | None, int | None, int | None]:
        info = self.call("nvmlDeviceGetMemoryInfo", version=pynvml.nvmlMemory_v2)
        if info is not None:
            return info.total, info.used, info.reserved
        info = self.call("nvmlDeviceGetMemoryInfo")
        return (None, None, None) if info is None else (info.total, info.used, None)

    def _core_temperature(self) -> float | None:
        value = self.call("nvmlDeviceGetTemperatureV", pynvml.NVML_TEMPERATURE_GPU)
        if value is None:
            value = self.call("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)
        return None if value is None else float(value)

    def _clock(self, domain: str, function: str = "nvmlDeviceGetClockInfo") -> float | None:
        megahertz = self.call(function, _CLOCKS[domain])
        return None if megahertz is None else megahertz * 1e6

    def _clock_events(self) -> Mapping[str, bool]:
        mask = self.call("nvmlDeviceGetCurrentClocksEventReasons")
        if mask is None:
            mask = self.call("nvmlDeviceGetCurrentClocksThrottleReasons")
        if mask is None:
            return {}
        return {reason: bool(mask & bit) for reason, bit in EVENT_BITS.items()}


def _scaled(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def _known(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
