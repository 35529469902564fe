"""Readings of one GPU, in base units. A value the board or its driver lacks is None or absent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What a GPU does now: ratios, bytes, watts, joules and hertz."""

    utilization_ratio: float | None
    memory_utilization_ratio: float | None
    memory_total_bytes: float | None
    memory_used_bytes: float | None
    memory_reserved_bytes: float | None
    power_watts: float | None
    has_instant_power: bool
    energy_joules: float | None
    sm_clock_hertz: float | None


@dataclass(frozen=True, slots=True)
class GpuState:
    """What holds a GPU back, and what changes slowly: watts, celsius, hertz and seconds."""

    power_limit_watts: float | None
    performance_state: int | None
    temperatures_celsius: Mapping[str, float]
    temperature_margin_celsius: float | None
    graphics_clock_hertz: float | None
    memory_clock_hertz: float | None
    clocks_max_hertz: Mapping[str, float]
    clock_events: Mapping[str, bool]
    throttle_seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class NvlinkBytes:
    """Bytes over all NVLinks of a GPU together, without and with what the protocol adds."""

    transmit: float | None
    receive: float | None
    raw_transmit: float | None
    raw_receive: float | None


@dataclass(frozen=True, slots=True)
class LinkReading:
    """One NVLink of a GPU; the mappings hold what its generation counts.

    ``errors`` is by type, ``recoveries`` by result, ``error_ratios`` by kind, ``fec_symbols`` by
    bin.
    """

    link: int
    up: bool | None
    speed_bytes_per_second: float | None
    errors: Mapping[str, float]
    recoveries: Mapping[str, float]
    error_ratios: Mapping[str, float]
    fec_symbols: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class C2cLink:
    """One link between a GPU and the Grace CPU beside it."""

    link: int
    up: bool | None
    speed_bytes_per_second: float | None


@dataclass(frozen=True, slots=True)
class PcieBytes:
    """Bytes over the GPU's own PCIe link; both are raw and may wrap."""

    transmit: float | None
    receive: float | None


@dataclass(frozen=True, slots=True)
class PcieLink:
    """The GPU's own PCIe link; ``errors`` is by type."""

    generation: int | None
    generation_max: int | None
    width_lanes: int | None
    width_lanes_max: int | None
    replays: float | None
    errors: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HealthReading:
    """What a GPU reports about its memory, its repairs and what has to be done about it.

    ``ecc_errors`` is by (severity, location, scope).
    """

    ecc_errors: Mapping[tuple[str, str, str], float]
    sram_threshold_exceeded: bool | None
    remapped_rows: Mapping[str, float]
    row_remap_pending: bool | None
    row_remap_failed: bool | None
    row_remap_banks: Mapping[str, float]
    retired_pages: Mapping[str, float]
    page_retirement_pending: bool | None
    repairs_pending: Mapping[str, bool]
    unrepairable_memory: bool | None
    recovery_action: int | None
    fabric_state: int | None
    fabric_health: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class ActivityDetails:
    """Mean activity of a GPU's single units over some seconds."""

    ratios: Mapping[str, float]
    pipes: Mapping[str, float]
    pcie_bytes_per_second: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ActivityReading:
    """Mean activity of a GPU over a window; no window before the second sample."""

    ratios: Mapping[str, float]
    window_seconds: float | None
    details: ActivityDetails
