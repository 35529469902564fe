"""How late ranks are, from the mean arrival at blocks of collectives that exporters publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from peerwatch_detector.diagnosis.by_rank import by_rank
from peerwatch_detector.diagnosis.diagnoser import Samples

# Seconds that the ranks of a group may be apart for many reasons; what is closer is not read.
# Chosen: above the jitter of a busy host's scheduler; a sixth of any step over 120 ms is more.
SPREAD_SECONDS = 0.020
_WIDE = (
    "and on (group) (max by (group) (collective_block_arrival_timestamp_seconds{ {{- job -}} })"
    " - min by (group) (collective_block_arrival_timestamp_seconds{ {{- job -}} })"
    f" > {SPREAD_SECONDS})"
)
_LAUNCHED = "collective_launched_total{ {{- job -}} }"
QUERIES: Mapping[str, str] = {
    "block": f"collective_block_sequence{{ {{{{- job -}}}} }} {_WIDE}",
    "size": f"collective_block_collectives{{ {{{{- job -}}}} }} {_WIDE}",
    "arrival": f"collective_block_arrival_timestamp_seconds{{ {{{{- job -}}}} }} {_WIDE}",
    "rate": f"max by (group) (sum by (group, rank) (rate({_LAUNCHED}[1m]))) {_WIDE}",
    "clock": "rank_clock_offset_seconds{ {{- job -}} }",
}

# Process groups come and go while a job runs; of so many the last block is remembered. Chosen: as
# many groups as a large job has at a time, in a few hundred kilobytes.
_MOST_REMEMBERED = 1024

# The first blocks of a group hold compilation and the filling of caches. Chosen: half a minute, as
# blocks have 15 s or more.
_WARM_UP_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a group's collectives, as all of its ranks saw it.

    Parameters
    ----------
    group
        Name of the group.
    end
        Sequence number after the last collective.
    interval
        Seconds between two collectives of the group.
    duration
        Of the block, in seconds.
    lateness
        By rank, seconds after the others on average.
    """

    group: str
    end: int
    interval: float
    duration: float
    lateness: Mapping[int, float]

    @property
    def shares(self) -> dict[int, float]:
        """By rank, for which share of its time the group waits for it, 0 to 1."""
        # Nobody can be later than the next collective: a clock is wrong.
        if max(self.lateness.values()) > self.interval:
            return {}
        return {rank: seconds / self.interval for rank, seconds in self.lateness.items()}


@dataclass(frozen=True, slots=True)
class _Arrival:
    """One rank's mean arrival at a block: where the block ends, its length, Unix time, node."""

    end: int
    length: int
    time: float
    node: str


class Blocks:
    """Remembers which blocks it has returned."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def update(self, samples: Samples) -> list[Block]:
        """Return the blocks that all ranks of a group have finished since the last time.

        Clocks of different hosts are compared only where their offsets are known.
        """
        offsets = {rank: value for rank, _, value in by_rank(samples.get("clock", ()))}
        rates = {
            series.labels.get("group", ""): float(series.values[-1])
            for series in samples.get("rate", ())
        }
        found = []
        for group, arrivals in sorted(_arrivals(samples).items()):
            block = _block(group, arrivals, offsets, rates.get(group, 0.0))
            if block is not None and self._last.get(group) != block.end:
                self._last.pop(group, None)
                self._last[group] = block.end
                found.append(block)
        while len(self._last) > max(_MOST_REMEMBERED, len(found)):
            del self._last[next(iter(self._last))]
        return found


def _block(
    group: str, arrivals: Mapping[int, _Arrival], offsets: Mapping[int, float], rate: float
) -> Block | None:
    """Return the block that all ranks are at; None where they cannot be compared."""
    first = next(iter(arrivals.values()))
    same = {(arrival.end, arrival.length) for arrival in arrivals.values()}
    if len(arrivals) < 2 or len(same) > 1 or rate <= 0:
        return None
    if first.end <= _WARM_UP_BLOCKS * first.length:
        return None
    hosts = {arrival.node for arrival in arrivals.values()}
    if len(hosts) > 1 and any(rank not in offsets for rank in arrivals):
        return None
    times = {
        rank: arrival.time - (offsets[rank] if len(hosts) > 1 else 0.0)
        for rank, arrival in arrivals.items()
    }
    return Block(group, first.end, 1 / rate, first.length / rate, _lateness(times))


def _lateness(times: Mapping[int, float]) -> dict[int, float]:
    """Return how long after the others each rank arrived; of two or three, after the first."""
    usual = median(times.values()) if len(times) > 3 else min(times.values())
    return {rank: max(0.0, time - usual) for rank, time in times.items()}


def _arrivals(samples: Samples) -> dict[str, dict[int, _Arrival]]:
    tables = {
        name: {
            (labels.get("group", ""), rank): (value, labels.get("node", ""))
            for rank, labels, value in by_rank(samples.get(name, ()))
        }
        for name in ("block", "size", "arrival")
    }
    found: dict[str, dict[int, _Arrival]] = {}
    for (group, rank), (time, node) in sorted(tables["arrival"].items()):
        end, length = tables["block"].get((group, rank)), tables["size"].get((group, rank))
        if end is not None and length is not None and length[0] > 0:
            arrival = _Arrival(int(end[0]), int(length[0]), time, node)
            found.setdefault(group, {})[rank] = arrival
    return found
