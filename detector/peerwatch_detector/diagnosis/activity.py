"""What ranks do of their own while others wait for them: they step, evaluate, save, load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from peerwatch_detector.diagnosis.by_rank import by_rank
from peerwatch_detector.diagnosis.diagnoser import Samples

# Segments that a rank goes through only while it works; garbage is collected by who hangs, too.
_WORK = ',segment=~"data|forward|backward|optimizer|checkpoint"'
# Bytes per second to or from storage from which on a rank saves or loads something large. Chosen: a
# rank's log is far below it, the slowest disk that can hold a checkpoint far above.
_STORAGE_RATE = 1e6
# Work goes on in bursts: a checkpoint is serialised and then written, an evaluation loads a shard
# and then computes. What was seen within so many seconds goes on; hangs last longer (30 s).
_BURSTS_WITHIN = 30.0


def activity_queries(gate: str) -> dict[str, str]:
    """Return the queries that ``read_activity`` takes the answers of.

    Parameters
    ----------
    gate
        PromQL that follows each, so that nothing is read of a job that gets on.
    """
    return {
        "written": f"rank_written_bytes_total{{ {{{{- job -}}}} }} {gate}",
        "loaded": f"rank_read_bytes_total{{ {{{{- job -}}}} }} {gate}",
        "spans": f"sum by (node, rank) (span_count_total{{ {{{{- job -}}}} {_WORK} }}) {gate}",
        "steps": f"rank_steps_total{{ {{{{- job -}}}} }} {gate}",
        "batches": f"rank_batches_total{{ {{{{- job -}}}} }} {gate}",
    }


@dataclass(frozen=True, slots=True)
class Activity:
    """What a rank has done, from its start: bytes of storage, spans of work, steps, batches."""

    storage_bytes: float = 0.0
    spans: float = 0.0
    steps: float = 0.0
    batches: float = 0.0


def read_activity(samples: Samples) -> dict[int, Activity]:
    """Return by rank what the answers to ``activity_queries`` say."""
    storage: dict[int, float] = {}
    for name in ("written", "loaded"):
        for rank, _, value in by_rank(samples.get(name, ())):
            storage[rank] = storage.get(rank, 0.0) + value
    spans = {rank: value for rank, _, value in by_rank(samples.get("spans", ()))}
    steps = {rank: value for rank, _, value in by_rank(samples.get("steps", ()))}
    batches = {rank: value for rank, _, value in by_rank(samples.get("batches", ()))}
    counts = (storage, spans, steps, batches)
    return {
        rank: Activity(*(each.get(rank, 0.0) for each in counts)) for rank in set().union(*counts)
    }


class Occupation:
    """Remembers what ranks did from one reading to the next."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, Activity]] = {}
        self._seen: dict[int, tuple[float, str]] = {}

    def update(self, activity: Mapping[int, Activity], read_at: Mapping[int, float]) -> None:
        """Take in the counts of each rank, and when they were read; equal times say nothing new."""
        for rank, counts in activity.items():
            time, before = read_at.get(rank), self._before.get(rank)
            if time is None:
                continue
            if before is not None and before[0] - time >= _BURSTS_WITHIN:
                # The clock was set back: what was seen lies in the future.
                self._seen.pop(rank, None)
            elif before is not None and time <= before[0]:
                continue
            self._before[rank] = (time, counts)
            known = before is not None and before[0] < time
            text = _describe(time - before[0], before[1], counts) if before and known else ""
            if text:
                self._seen[rank] = (time, text)

    def of(self, rank: int) -> str:
        """Return what a rank does, for a sentence; empty if nothing that is known."""
        seen, read = self._seen.get(rank), self._before.get(rank)
        if seen is None or read is None or read[0] - seen[0] >= _BURSTS_WITHIN:
            return ""
        return seen[1]

    def last_seen(self, ranks: Iterable[int]) -> float:
        """Return when one of these ranks was last seen to work (Unix time); 0 if never."""
        return max((self._seen[rank][0] for rank in ranks if rank in self._seen), default=0.0)


def _describe(seconds: float, before: Activity, after: Activity) -> str:
    rate = (after.storage_bytes - before.storage_bytes) / seconds
    if rate >= _STORAGE_RATE:
        return f"it moves {rate / 1e6:.0f} MB/s to or from storage"
    if after.spans > before.spans or (
        # In a step it takes one; between two readings may lie the one before the wait.
        after.batches > before.batches + 1 and after.steps == before.steps
    ):
        return "its own work goes on, as in an evaluation"
    if after.steps > before.steps:
        return "it goes on with its steps"
    return ""
