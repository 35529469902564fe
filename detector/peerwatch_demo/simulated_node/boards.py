"""What a GPU of the fake node answers at a time, in NVML's own raw units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerwatch_demo.job.timeline import Phase
from peerwatch_demo.simulated_node.node_plan import LINKS, SLOTS
from peerwatch_demo.simulated_node.noise import noise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_demo.simulated_node.scenario import Change, GpuFault, Scenario

_REASONS = {
    "sw_power_cap": (0x4, "74"),
    "hw_slowdown": (0x8, None),
    "sw_thermal": (0x20, "269"),
    "hw_thermal": (0x40, "270"),
    "hw_power_brake": (0x80, "271"),
}
# nvmlClocksEventReasonGpuIdle of nvml.h.
_IDLE = 0x1

# Where a scenario's value stands in a board's answers. "/" in a scenario's name adds the link.
PLACES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "pcie_replays": (("fields", "94"), ("pcie", "replays")),
    "pcie_recoveries": (("fields", "169"),),
    "pcie_correctable": (("fields", "173"),),
    "pcie_bad_tlp": (("fields", "176"),),
    "thermal_violation": (("fields", "75"),),
    "board_limit": (("fields", "77"),),
    "nvlink_replay": (("fields", "161"),),
    "nvlink_recovery": (("fields", "162"),),
    "nvlink_crc": (("fields", "163"),),
    "nvlink_state": (("fields", "165"), ("nvlink_states",)),
    "fabric_health": (("fabric", "health_mask"),),
    "ecc_corrected_volatile": (("fields", "3"),),
    "ecc_uncorrected_volatile": (("fields", "4"),),
    "ecc_uncorrected_aggregate": (("fields", "6"),),
    "ecc_dram_corrected_volatile": (("fields", "11"), ("ecc", "2", "corrected", "0")),
    "ecc_dram_uncorrected_volatile": (("fields", "12"), ("ecc", "2", "uncorrected", "0")),
    "ecc_dram_uncorrected_aggregate": (("fields", "23"), ("ecc", "2", "uncorrected", "1")),
    "remapped_uncorrectable": (("fields", "143"), ("remapped_rows", "1")),
    "remap_pending": (("fields", "144"), ("remapped_rows", "2")),
    "recovery_action": (("fields", "230"),),
    "repair_channel": (("repair", "0"),),
}

# As an H100 SXM has: 700 W, and from idle to that 30 to 73 degrees; the traffic of its links is
# made up.
_POWER_WATTS = 700.0
_IDLE_CELSIUS = 30.0
_CELSIUS_PER_WATT = 0.062
_COOLING_SECONDS = 45.0
_NVLINK_BYTES = 210e9
_PCIE_BYTES = 14e9
# Two bits for each condition, four for the configuration; these say that all is well.
_HEALTHY_FABRIC = 0b01_01_0001_10_10_10_10
_GPM_SIGNALS = {"1": "busy", "2": "sm", "3": "occupancy", "5": "tensor", "10": "dram"}
_SAMPLE_MICROSECONDS = {0: 20_000, 1: 166_667, 5: 166_667}


class Board:
    """One GPU over time; every answer is a pure function of the seed, the GPU and the time.

    Parameters
    ----------
    index
        Which GPU.
    scenario
        What happens on the node.
    seed
        Decides the differences between boards and the noise.
    onset
        When the scenario's change begins, in seconds after the start.
    """

    def __init__(self, index: int, scenario: Scenario, seed: int, onset: float) -> None:
        self._index = index
        self._fault: GpuFault = scenario.gpu(index)
        self._seed = seed
        self._onset = onset
        self._activity = scenario.activity(onset)
        self._job_ends = scenario.phase is Phase.HALT
        # Boards of one kind differ: this one draws a little more power and gets a little warmer.
        self._power_factor = 1 + 0.03 * noise(seed, "power", index)
        self._warmth = 2.5 * noise(seed, "warmth", index)
        self._age = 4e6 * (1 + 0.01 * noise(seed, "age", index))

    def state(self, seconds: float) -> str:
        """Return whether the GPU ``works``, is ``lost`` or ``hung``."""
        return self._fault.state if seconds >= self._onset else "works"

    def answers(self, seconds: float) -> dict[str, Any]:
        """Return all values at a time, in the form of ``nvml_library``'s scenarios."""
        board = self._identity() | self._load(seconds) | self._health()
        board["fields"] = self._fields(seconds, board)
        board["energy"] = board["fields"]["83"]
        if seconds >= self._onset:
            for name, change in self._fault.values.items():
                for place in PLACES[name.partition("/")[0]]:
                    _apply(board, name, place, change, self._since(seconds))
        return board

    def samples(self, kind: int, since: int, start: float, seconds: float) -> list[tuple[int, int]]:
        """Return (Unix microseconds, value) of the driver's sample buffer, newest last.

        Parameters
        ----------
        kind
            NVML's sampling type: power, utilisation or clock; others have no samples.
        since
            Samples after this time only (microseconds).
        start
            Unix time of the demonstration's start.
        seconds
            Now, in seconds after the start.
        """
        period = _SAMPLE_MICROSECONDS.get(kind)
        if period is None:
            return []
        now = int((start + seconds) * 1e6)
        oldest = max(since + 1, now - 119 * period)
        times = range(-(-oldest // period) * period, now + 1, period)
        width = period / 1e6
        return [(time, self._sample(kind, time / 1e6 - start, width)) for time in times]

    def _sample(self, kind: int, seconds: float, width: float) -> int:
        if kind == 0:
            return int(self._watts(seconds, width) * 1000)
        if kind == 1:
            return round(100 * self._mean("busy", seconds, width))
        return self._clock(seconds)

    def _has_job(self, seconds: float) -> bool:
        return not self._job_ends or seconds < self._onset

    def _since(self, seconds: float) -> float:
        return seconds - self._onset

    def _total(self, signal: str, seconds: float) -> float:
        return self._activity.total(signal, seconds, self._fault.factors.get(signal, 1.0))

    def _mean(self, signal: str, seconds: float, width: float = 1.0) -> float:
        return self._activity.mean(signal, seconds, width, self._fault.factors.get(signal, 1.0))

    def _noise(self, name: str, seconds: float) -> float:
        return noise(self._seed, name, self._index, int(seconds))

    def _watts(self, seconds: float, width: float = 1.0) -> float:
        watts = self._mean("power", seconds, width) * _POWER_WATTS * self._power_factor
        return min(_POWER_WATTS, watts) + 6 * self._noise("watts", seconds)

    def _celsius(self, seconds: float) -> float:
        recent = self._mean("power", seconds, _COOLING_SECONDS) * _POWER_WATTS
        celsius = _IDLE_CELSIUS + recent * _CELSIUS_PER_WATT + self._warmth
        if seconds >= self._onset:
            # A failing cooler shows within a minute.
            celsius += self._fault.celsius * min(1.0, self._since(seconds) / 20)
        return celsius

    def _clock(self, seconds: float) -> int:
        if not self._has_job(seconds):
            return 345
        if self._fault.megahertz is not None and seconds >= self._onset:
            return int(self._fault.megahertz + 15 * self._noise("clock", seconds))
        return 1980 if self._noise("clock", seconds) < 0.8 else 1965

    def _reasons(self, seconds: float) -> int:
        if not self._has_job(seconds):
            return _IDLE
        if seconds < self._onset:
            return 0
        # What is active most of the time is shown as active.
        shares = self._fault.reasons.items()
        return sum(_REASONS[reason][0] for reason, share in shares if share >= 0.2)

    def _identity(self) -> dict[str, Any]:
        slot = SLOTS[self._index]
        return {
            "uuid": slot.uuid,
            "name": "NVIDIA H100 80GB HBM3",
            "serial": f"16533230001{20 + self._index}",
            "vbios": "96.00.89.00.01",
            "pci_bus_id": f"0000{slot.gpu.upper()}",
            "minor": self._index,
            "mig": [0, 0],
            "persistence": 1,
            "ecc_mode": [1, 1],
            "temperature_limits": {"0": 92, "1": 89, "2": 105, "3": 87},
            "power_limits": {
                "min": 200_000,
                "max": 700_000,
                "default": 700_000,
                "management": 700_000,
            },
            "encoder": 0,
            "decoder": 0,
        }

    def _load(self, seconds: float) -> dict[str, Any]:
        has_job = self._has_job(seconds)
        used = 70_866_960_384 + self._index * 2**20 if has_job else 512 * 2**20
        clock = self._clock(seconds)
        celsius = int(self._celsius(seconds))
        generation, width = (5, 16)
        if self._fault.pcie is not None and seconds >= self._onset:
            generation, width = self._fault.pcie
        return {
            "utilization": round(100 * self._mean("busy", seconds)),
            "memory_utilization": round(100 * self._mean("dram", seconds)),
            "memory": {"total": 85_520_809_984, "used": used, "reserved": 546_766_848},
            "power": int(self._watts(seconds) * 1000),
            "power_limit": int(_POWER_WATTS * 1000),
            "temperature": celsius,
            "margin_temperature": 87 - celsius,
            "performance_state": 0,
            "clock_event_reasons": self._reasons(seconds),
            "clocks": {"graphics": clock, "sm": clock, "memory": 2619},
            "clocks_max": {"graphics": 1980, "sm": 1980, "memory": 2619},
            "pcie": {
                "generation": generation,
                "width": width,
                "generation_max": 5,
                "width_max": 16,
                "replays": 0,
            },
            "gpm": self._profiling(seconds),
            "processes": [[SLOTS[self._index].pid, used]] if has_job else [],
        }

    def _profiling(self, seconds: float) -> dict[str, float]:
        ratios = {number: self._mean(name, seconds) for number, name in _GPM_SIGNALS.items()}
        tensor = ratios["5"]
        pipes = {
            "4": 0.12 * tensor,
            "7": tensor,
            "11": 0.0,
            "12": 0.09 * tensor,
            "13": 0.03 * tensor,
        }
        mebibytes = _PCIE_BYTES * self._mean("pcie", seconds) / 2**20
        links = _NVLINK_BYTES * self._mean("nvlink", seconds) / 2**20
        rates = {"20": 0.8 * mebibytes, "21": mebibytes, "60": links, "61": links}
        shaken = 1 + 0.01 * self._noise("activity", seconds)
        percents = (ratios | pipes).items()
        return rates | {number: min(100.0, 100 * ratio * shaken) for number, ratio in percents}

    def _health(self) -> dict[str, Any]:
        return {
            "nvlink_states": [1] * LINKS,
            "ecc": {
                "2": {"corrected": [0, 10 + self._index], "uncorrected": [0, 0]},
                "7": {"corrected": [0, 2], "uncorrected": [0, 0]},
            },
            "sram_threshold_exceeded": 0,
            "remapped_rows": [0, 0, 0, 0],
            "row_remap_banks": {"max": 640, "high": 0, "partial": 0, "low": 0, "none": 0},
            "repair": [0, 0],
            "unrepairable_memory": 0,
            "fabric": {
                "state": 3,
                "status": 0,
                "health_mask": _HEALTHY_FABRIC,
                "health_summary": 1,
            },
        }

    def _fields(self, seconds: float, board: dict[str, Any]) -> dict[str, Any]:
        joules = self._total("power", seconds) * _POWER_WATTS * self._power_factor + 300 * self._age
        nvlink = self._total("nvlink", seconds) * _NVLINK_BYTES + 1e9 * self._age
        pcie = self._total("pcie", seconds) * _PCIE_BYTES + 1e8 * self._age
        return {
            **dict.fromkeys(
                ("4", "6", "12", "23", "75", "76", "77", "78", "79", "94", "95", "169"), 0
            ),
            **dict.fromkeys(("142", "143", "144", "145", "230", "269", "270", "271"), 0),
            **dict.fromkeys((str(number) for number in range(173, 184)), 0),
            **{number: [0] * LINKS for number in ("161", "162", "163")},
            "3": 0,
            "5": 10 + self._index,
            "11": 0,
            "22": 10 + self._index,
            "74": int(2e5 * self._age),
            "82": board["temperature"] + 11,
            "83": int(joules * 1000),
            "91": LINKS,
            "138": _links(nvlink * 0.98),
            "139": _links(nvlink),
            "140": _links(nvlink * 1.12),
            "141": _links(nvlink * 1.14),
            "164": [26_562] * LINKS,
            "165": [1] * LINKS,
            "166": [4] * LINKS,
            "185": board["power"],
            "186": int(self._watts(seconds, 0.1) * 1000),
            "197": int(pcie * 0.8),
            "198": int(pcie),
            **self._throttled(seconds),
        }

    def _throttled(self, seconds: float) -> dict[str, int]:
        since = max(0.0, self._since(seconds))
        return {
            field: int(share * since * 1e9)
            for reason, share in self._fault.reasons.items()
            if (field := _REASONS[reason][1]) is not None
        }


def _links(total_bytes: float) -> dict[str, int]:
    """Return a counter in KiB for each link and for all of them."""
    share = int(total_bytes / LINKS / 1024)
    return {"all": share * LINKS} | {str(link): share for link in range(LINKS)}


def _apply(
    board: dict[str, Any], name: str, place: tuple[str, ...], change: Change, seconds: float
) -> None:
    link = name.partition("/")[2]
    *keys, last = (*place, link) if link else place
    target: Any = board
    for key in keys:
        target = target[key]
    where: Any = int(last) if isinstance(target, list) else last
    target[where] = change.apply(target[where], seconds)
