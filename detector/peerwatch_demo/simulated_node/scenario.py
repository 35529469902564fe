"""The words a scenario is written in: what changes on the fake node from the onset on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from peerwatch_demo.job.activity import Activity
from peerwatch_demo.job.timeline import Phase, Timeline

ALL_GPUS = range(8)


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to one raw value.

    Parameters
    ----------
    to
        The value it takes; None: it keeps its own.
    at_once
        What is added to it at the onset.
    per_second
        What is added to it every second from then on.
    """

    to: int | None = None
    at_once: float = 0.0
    per_second: float = 0.0

    def apply(self, value: float, seconds: float) -> int:
        """Return a value as it stands some seconds after the onset."""
        base = value if self.to is None else self.to
        return int(base + self.at_once + self.per_second * seconds)


Changes = Mapping[str, Change]
Factors = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class GpuFault:
    """What is wrong with some GPUs.

    Parameters
    ----------
    gpus
        Their indexes.
    state
        ``lost``: every call says so. ``hung``: no call returns.
    factors
        Levels of signals (``job.activity.SIGNALS``) relative to the other GPUs.
    values
        Raw values by the names in ``boards.PLACES``.
    celsius
        Degrees on top of what the load explains.
    megahertz
        SM clock, where it is not the load's.
    reasons
        Clock event reasons and the share of time each is active, 0 to 1.
    pcie
        PCIe generation and width of the link, also of the bridge port above.
    """

    gpus: tuple[int, ...]
    state: Literal["works", "lost", "hung"] = "works"
    factors: Factors = field(default_factory=dict)
    values: Changes = field(default_factory=dict)
    celsius: float = 0.0
    megahertz: int | None = None
    reasons: Mapping[str, float] = field(default_factory=dict)
    pcie: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class NicFault:
    """What is wrong with some NICs.

    Parameters
    ----------
    nics
        Their numbers, as in ``mlx5_<number>``.
    down_seconds, every_seconds
        The link is down for so long in every period; both infinite: it stays down.
    counters
        Events per second by name: a file in ``counters`` or ``hw_counters``, or a statistic of
        the network driver.
    """

    nics: tuple[int, ...]
    down_seconds: float = 0.0
    every_seconds: float = float("inf")
    counters: Mapping[str, float] = field(default_factory=dict)

    def outages(self, seconds: float) -> tuple[int, bool]:
        """Return how often the link went down and whether it is, some seconds after the onset."""
        if seconds < 0 or not self.down_seconds:
            return 0, False
        number, rest = divmod(seconds, self.every_seconds)
        return int(number) + 1, rest < self.down_seconds


@dataclass(frozen=True, slots=True)
class Xid:
    """An XID of a GPU: a line of the kernel log, and mostly an event of NVML too."""

    after: float
    gpu: int
    code: int
    text: str
    has_event: bool = True


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the kernel log, once or again and again; ``{nic0}`` is the PCI address of NIC 0."""

    after: float
    text: str
    every: float | None = None
    level: int = 4


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a demonstration shows; everything begins at the onset.

    Parameters
    ----------
    summary
        One line for people who choose.
    phase, speed
        What the job does, as in ``job.timeline``.
    steady
        Whether it does so without steps, as in ``job.activity``.
    gpus, nics
        Faults of the hardware.
    host
        Events per second of the machine's own counters, by the names in ``machine.COUNTERS``.
    aer
        Correctable PCIe errors per second, by GPU index; the port above counts them too.
    stuck_rank
        Local rank whose main process sleeps for ever and writes no heartbeat.
    xids, log
        What the kernel logs.
    """

    summary: str
    phase: Phase = Phase.TRAIN
    speed: float = 1.0
    steady: bool = False
    gpus: tuple[GpuFault, ...] = ()
    nics: tuple[NicFault, ...] = ()
    host: Mapping[str, float] = field(default_factory=dict)
    aer: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    stuck_rank: int | None = None
    xids: tuple[Xid, ...] = ()
    log: tuple[LogLine, ...] = ()

    def activity(self, onset: float) -> Activity:
        """Return what the job does, with the change at a time (seconds after the start)."""
        timeline = Timeline()
        timeline.add(self.phase, onset)
        timeline.slow(self.speed, onset)
        return Activity(timeline, onset, steady=self.steady)

    def gpu(self, index: int) -> GpuFault:
        """Return what is wrong with a GPU; a fault without content if nothing is."""
        return next((fault for fault in self.gpus if index in fault.gpus), GpuFault((index,)))

    def nic(self, number: int) -> NicFault:
        """Return what is wrong with a NIC; a fault without content if nothing is."""
        return next((fault for fault in self.nics if number in fault.nics), NicFault((number,)))
