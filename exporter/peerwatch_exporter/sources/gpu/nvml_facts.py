"""What the driver process reports besides metrics: boards, who uses them, and XID events."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pynvml

from peerwatch_exporter.sources.gpu.facts import XidEvent
from peerwatch_exporter.sources.gpu.nvml_access import DriverReloadedError, GpuLostError, NvmlError

if TYPE_CHECKING:
    from collections.abc import Collection

    from peerwatch_exporter.sources.gpu.facts import GpuFacts
    from peerwatch_exporter.sources.gpu.nvml import Nvml
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.host.access import HostAccess

# Starting a job takes longer; the mapping of jobs need not be faster.
_PROCESSES_SECONDS = 5.0
# A burst longer than this is counted as it comes, second by second: chosen, a fault makes some.
_MAX_EVENTS = 256
# More processes on one GPU are no training.
_MAX_PROCESSES = 1024


class EventReader:
    """Takes the XID events of NVML, without ever waiting for one.

    NVML reports what happens after the registration, and not every code (62, 79, 119 and 120 are
    missing at times): the kernel log has them all, but not everybody may read it.

    Parameters
    ----------
    nvml
        The library.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._registered: dict[int, Gpu] = {}
        self._buses: dict[int, str] = {}

    def read(self, gpus: Collection[Gpu], now: float) -> list[XidEvent]:
        """Return the events since the last call, as received at ``now`` (Unix time)."""
        self._nvml.marker.at(-1)
        if self._set is None:
            self._set = self._nvml.call("nvmlEventSetCreate")
            if self._set is None:
                return []
        for gpu in gpus:
            if self._registered.get(gpu.identity.index) is not gpu and gpu.answers:
                self._register(gpu)
        self._nvml.marker.at(-1)
        events = []
        for _ in range(_MAX_EVENTS):
            event = self._next()
            if event is None:
                break
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                bus = self._buses.get(_address(event.device), "")
                events.append(XidEvent(bus, int(event.eventData), now))
        return events

    def _register(self, gpu: Gpu) -> None:
        # Refused or not, it is asked once: some boards have no events.
        self._registered[gpu.identity.index] = gpu
        kinds = pynvml.nvmlEventTypeXidCriticalError
        try:
            gpu.call("nvmlDeviceRegisterEvents", kinds, self._set)
        except GpuLostError:
            return
        self._buses[gpu.address] = gpu.identity.pci_bus_id

    def _next(self) -> Any:  # noqa: ANN401 - pynvml's structure
        # Nothing happened, which NVML calls a timeout, is no failed call.
        return self._nvml.call("nvmlEventSetWait_v2", self._set, 0)


class FactsReader:
    """Reads the facts and hands them over together with what collectors left there.

    Parameters
    ----------
    nvml
        The library.
    host
        For its clocks.
    facts
        Where collectors of this process leave facts of their own.
    """

    def __init__(self, nvml: Nvml, host: HostAccess, facts: GpuFacts) -> None:
        self._nvml = nvml
        self._host = host
        self._facts = facts
        self._events = EventReader(nvml)
        self._processes_at: float | None = None

    def read(self) -> tuple[Any, ...]:
        """Return everything new as plain values, for ``GpuFacts.take_in``.

        Raises
        ------
        DriverReloadedError
            If the driver is another one than before.
        """
        facts = self._facts
        try:
            gpus = self._nvml.gpus()
            facts.add_events(self._events.read(gpus, self._host.clock()))
            now = self._host.monotonic()
            if self._processes_at is None or now - self._processes_at >= _PROCESSES_SECONDS:
                self._processes_at = now
                facts.update_processes({gpu.identity.index: _processes(gpu) for gpu in gpus})
        except DriverReloadedError:
            raise
        except NvmlError:
            # The collectors say so; facts may miss a turn.
            pass
        facts.update_boards(self._nvml.seen())
        return facts.drain()


def _processes(gpu: Gpu) -> tuple[int, ...]:
    try:
        found = gpu.call("nvmlDeviceGetComputeRunningProcesses") or ()
    except GpuLostError:
        return ()
    return tuple(sorted({int(process.pid) for process in found[:_MAX_PROCESSES]}))


def _address(pointer: Any) -> int:  # noqa: ANN401 - pynvml's opaque pointer
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
