"""Numbers of nvml.h behind the GPU values, under the names that our labels give them."""

from __future__ import annotations

import pynvml

EVENT_BITS = {
    "idle": 0x1,
    "application_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
# Counters in nanoseconds.
THROTTLE_FIELDS = {
    "sw_power_cap": 74,
    "thermal": 75,
    "sync_boost": 76,
    "board_limit": 77,
    "low_utilization": 78,
    "reliability": 79,
    "sw_thermal": 269,
    "hw_thermal": 270,
    "hw_power_brake": 271,
}
# Field ids of nvml.h, as those above.
MEMORY_TEMPERATURE = 82
ENERGY = 83
POWER_INSTANT = 186
FAST_FIELDS = ((POWER_INSTANT, 0),)
FAST_FIELDS_AND_ENERGY = (*FAST_FIELDS, (ENERGY, 0))
STATE_FIELDS = tuple((field, 0) for field in (MEMORY_TEMPERATURE, *THROTTLE_FIELDS.values()))


def error_names() -> dict[int, str]:
    """Return NVML's error codes by number, named as in nvml.h without the prefix."""
    prefix = "NVML_ERROR_"
    return {
        getattr(pynvml, name): name.removeprefix(prefix).lower()
        for name in dir(pynvml)
        if name.startswith(prefix)
    }
