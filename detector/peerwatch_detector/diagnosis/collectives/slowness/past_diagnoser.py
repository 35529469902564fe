"""Says of a single pipeline which stage has become slow, where no peer has the same work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from peerwatch_detector.diagnosis.by_rank import by_rank
from peerwatch_detector.diagnosis.collectives.slowness.own_past import (
    WINDOW_SECONDS,
    WORK,
    Growth,
    Pasts,
    is_alone,
    read_seconds,
)
from peerwatch_detector.diagnosis.collectives.slowness.stages import STAGES_QUERY, read_stages
from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.every import Every
from peerwatch_detector.diagnosis.verdict import Verdict

# Half of the window of the rates: more often, readings would be nearly the same samples.
_READING_SECONDS = 60.0
# The fewest that are not alone: one may hold a pause of the stage.
_LEAST_READINGS = 2
# Another checkpoint, another evaluation, another file of the data set have passed by then. Chosen:
# as long as the shortest past that it is compared with (five readings).
_LIKELY_SECONDS = 300.0
_SEGMENTS = "|".join(("step", "data", *WORK, "collective"))
_IN_PIPELINE = f"and on () (max({STAGES_QUERY}) > 0)"


class PastDiagnoser:
    """Compares each stage that is on one node only with what it took before.

    It is weaker evidence than a peer: the stage may have got other work. So it is undecided at
    first, and stays so where the stage loads its data more slowly.
    """

    name: ClassVar[str] = "past"
    queries: ClassVar[Mapping[str, str]] = {
        "stages": STAGES_QUERY,
        "spans": (
            "sum by (node, rank, segment) (rate(span_seconds_total{ {{- job -}} ,"
            f'segment=~"{_SEGMENTS}"}}[2m])) {_IN_PIPELINE}'
        ),
        "steps": (
            "sum by (node, rank) (rate(span_count_total{ {{- job -}} ,"
            f'segment="step"}}[2m])) {_IN_PIPELINE}'
        ),
    }

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self._pasts = Pasts()
        self._reading = Every(_READING_SECONDS)
        self._readings = 0
        self._since = 0.0
        self._found: Growth | None = None
        self._verdict: Verdict | None = None

    def diagnose(self, samples: Samples, now: float) -> Sequence[Verdict]:
        """Return what stands now; see ``Diagnoser``."""
        if self._reading.is_due(now):
            self._verdict = self._read(samples, now)
        return [] if self._verdict is None else [self._verdict]

    def _read(self, samples: Samples, now: float) -> Verdict | None:
        stages = read_stages(samples)
        reading = read_seconds(samples, stages)
        found = None if reading is None else self._pasts.add(reading)
        if reading is None or found is None or not is_alone(found.stage, tuple(reading)):
            self._found = None
            return None
        if self._found is None or self._found.stage != found.stage:
            self._readings, self._since = 0, now - WINDOW_SECONDS
        self._found = found
        self._readings += 1
        if self._readings < _LEAST_READINGS:
            return None
        nodes = {rank: labels.get("node", "") for rank, labels, _ in by_rank(samples["steps"])}
        return self._verdict_of(found, stages, nodes, now)

    def _verdict_of(
        self, found: Growth, stages: Mapping[int, int], nodes: Mapping[int, str], now: float
    ) -> Verdict:
        number, node = found.stage
        ranks = [rank for rank in stages if stages[rank] == number and nodes[rank] == node]
        rank = ranks[0] if len(ranks) == 1 else None
        who = f"rank {rank} on node {node}" if rank is not None else f"the ranks of node {node}"
        text = (
            f"{who}: stage {number} of the pipeline takes {found.now:.3g} s of its own for a "
            f"step, {found.now / found.before:.2g} times as long as before, mostly in "
            f"{found.segment}; the other stages take what they took. No other node has this stage "
            "to compare with"
        )
        likely = found.is_work and now - self._since >= _LIKELY_SECONDS
        if not likely:
            text += ": it may have got other work"
        return Verdict(
            self.job_id,
            node,
            rank,
            "compute_straggler",
            "unknown",
            "likely" if likely else "undecided",
            "inspect",
            text,
            tuple(sorted(other for other in stages if other not in ranks)),
            self._since,
        )
