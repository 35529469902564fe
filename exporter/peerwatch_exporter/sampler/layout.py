"""What stands where in the shared memory: one ring for all counters that are read together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.catalog.sampled_counters import COUNTERS, Counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Counters of the kernel have 64 bits.
WORD_BYTES = 8
# Number of rows written, and the same once more with all bits turned.
HEADER_BYTES = 2 * WORD_BYTES
# 64 counters every millisecond for two minutes; the job lacks what is taken here.
MEMORY_LIMIT_BYTES = 64 * 1024 * 1024
# Rows are read while others are written, so the oldest second may go while it is copied.
_SPARE_SECONDS = 2.0


class MemoryLimitError(Exception):
    """The history asked for does not fit; nothing is sampled."""

    error_class = "sampler_memory_limit"


@dataclass(frozen=True, slots=True)
class SampledSeries:
    """One counter of one port; ``line_rate`` in the counter's unit, None if nothing bounds it."""

    counter: Counter
    device: str
    port: str
    line_rate: float | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Labels by which a person knows the series."""
        labels = {"device": self.device, "port": self.port}
        if self.counter.direction:
            labels["direction"] = self.counter.direction
        return labels


@dataclass(frozen=True, slots=True)
class SampledGroup:
    """Counters that are read together, and where their ring stands.

    Parameters
    ----------
    interval_seconds
        The shortest time between two readings.
    series
        The ring's columns, after the time.
    capacity
        Rows of the ring.
    offset
        Where it begins, in bytes.
    """

    interval_seconds: float
    series: tuple[SampledSeries, ...]
    capacity: int = 0
    offset: int = 0

    @property
    def size(self) -> int:
        """Bytes of the ring, header included."""
        return HEADER_BYTES + self.capacity * (1 + len(self.series)) * WORD_BYTES


@dataclass(frozen=True, slots=True)
class RingLayout:
    """All rings, one after the other."""

    groups: tuple[SampledGroup, ...]

    @property
    def size(self) -> int:
        """Bytes of all rings together."""
        return sum(group.size for group in self.groups)

    def to_data(self) -> list[Any]:
        """Return plain lists and numbers, for JSON."""
        return [
            [
                group.interval_seconds,
                group.capacity,
                group.offset,
                [[s.counter.name, s.device, s.port, s.line_rate] for s in group.series],
            ]
            for group in self.groups
        ]

    @classmethod
    def from_data(cls, data: Sequence[Any]) -> RingLayout:
        """Return the layout that ``to_data`` wrote."""
        return cls(
            tuple(
                SampledGroup(
                    interval,
                    tuple(SampledSeries(COUNTERS[name], *rest) for name, *rest in series),
                    capacity,
                    offset,
                )
                for interval, capacity, offset, series in data
            )
        )


def lay_out(
    groups: Iterable[SampledGroup], history_seconds: float, window_seconds: int
) -> RingLayout:
    """Give every group its place.

    Raises
    ------
    MemoryLimitError
        If rings and statistics would take more than 64 MiB.
    """
    placed: list[SampledGroup] = []
    offset = statistics = 0
    for group in groups:
        rate = 1 / group.interval_seconds
        capacity = math.ceil((history_seconds + _SPARE_SECONDS) * rate) + 1
        placed.append(replace(group, capacity=capacity, offset=offset))
        offset += placed[-1].size
        # The largest 1 % of a window could stand in any of its seconds.
        kept = rate * window_seconds / 100 * window_seconds
        statistics += math.ceil(kept * WORD_BYTES) * len(group.series)
    if offset + statistics > MEMORY_LIMIT_BYTES:
        series = sum(len(group.series) for group in placed)
        needed, limit = (offset + statistics) / 2**20, MEMORY_LIMIT_BYTES // 2**20
        raise MemoryLimitError(
            f"{history_seconds:g} s of history of {series} counters need {needed:.0f} MiB, "
            f"more than {limit} MiB: "
            "raise sampler.interval_milliseconds, lower sampler.history_seconds or "
            "sampler.window_seconds, or name fewer sampler.counters or sampler.devices."
        )
    return RingLayout(tuple(placed))
