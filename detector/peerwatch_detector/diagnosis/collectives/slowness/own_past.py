"""What each stage of a pipeline takes for a step, against what the same stage took before.

A stage that runs on one node only has no peer with the same work. What is left to compare it with
is its own past, and the other stages' pasts: what all have in common (longer sequences, a further
kind of data) is not one node's.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from peerwatch_detector.diagnosis.by_rank import by_rank
from peerwatch_detector.diagnosis.diagnoser import Samples

# Without the growth the job would be 1.2 times as fast, the limit of Aegis and of Greyhound.
LEAST_SHARE = 1 - 1 / 1.2
# The stage that has grown did so by that limit, every other one by less than half as much.
_GROWN, _STEADY = 1.2, 1.1
# Rates over this window hold a mean of several steps; of fewer than ten, one more or less is over a
# tenth, as much as a steady stage may grow. Chosen: ten steps of up to 12 s each.
WINDOW_SECONDS = 120.0
_LEAST_STEPS = 10
# Readings of a minute each: the least that are a past, and the most that are kept of it. Chosen: a
# median that two odd readings do not move; half an hour, so that slow changes of the work count.
_LEAST_READINGS, _MOST_READINGS = 5, 30
WORK = ("forward", "backward", "optimizer")
_DATA, _WAITING, _STEP = "data", "collective", "step"

# A stage: of which pipeline position, on which node.
Stage = tuple[int, str]
Reading = Mapping[Stage, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Growth:
    """A stage that takes longer than before, while no other does.

    Parameters
    ----------
    stage
        Which, and on which node.
    now, before
        Seconds of its own per step.
    segment
        In which most of the growth is.
    is_work
        Whether most of it is computing, not loading data.
    """

    stage: Stage
    now: float
    before: float
    segment: str
    is_work: bool


@dataclass(slots=True)
class Pasts:
    """What the stages of one job took, reading after reading."""

    _readings: dict[Stage, deque[Mapping[str, float]]] = field(default_factory=dict)

    def add(self, reading: Reading) -> Growth | None:
        """Take in a reading and return the one stage that has grown; None if none or several have.

        A reading in which one has grown is not part of its past. Other stages than before are
        another job, which has no past yet.
        """
        if reading.keys() != self._readings.keys():
            self._readings = {stage: deque(maxlen=_MOST_READINGS) for stage in reading}
        found = self._growth(reading)
        if found is None:
            for stage, seconds in reading.items():
                self._readings[stage].append(seconds)
        return found

    def _growth(self, reading: Reading) -> Growth | None:
        if len(reading) < 2 or any(len(p) < _LEAST_READINGS for p in self._readings.values()):
            return None
        usual = {
            stage: {name: median(past[name] for past in pasts) for name in reading[stage]}
            for stage, pasts in self._readings.items()
        }
        ratios = {
            stage: _own(seconds) / _own(usual[stage])
            for stage, seconds in reading.items()
            if _own(usual[stage]) > 0
        }
        grown = [stage for stage, ratio in ratios.items() if ratio >= _STEADY]
        if len(ratios) < len(reading) or len(grown) != 1 or ratios[grown[0]] < _GROWN:
            return None
        (stage,) = grown
        now, before = reading[stage], usual[stage]
        more = _own(now) - _own(before)
        # Whoever waits longer as well may be waiting within its own segments.
        waits_more = now[_WAITING] - before[_WAITING] > more / 2
        if more < LEAST_SHARE * now[_STEP] or waits_more:
            return None
        by_segment = {name: now[name] - before[name] for name in (*WORK, _DATA)}
        most = max(by_segment, key=lambda name: by_segment[name])
        is_work = sum(by_segment[name] for name in WORK) > more / 2
        return Growth(stage, _own(now), _own(before), most, is_work)


def _own(seconds: Mapping[str, float]) -> float:
    return sum(seconds[name] for name in (*WORK, _DATA))


def read_seconds(samples: Samples, stages: Mapping[int, int]) -> Reading | None:
    """Return the seconds per step of each stage by segment; None where it cannot be compared.

    Parameters
    ----------
    samples
        ``spans``: seconds per second, by rank and segment; ``steps``: steps per second.
    stages
        Stage of each rank.

    Returns
    -------
    Mapping or None
        Means over the ranks of a stage on a node. None if a rank of the pipeline keeps no spans
        or makes too few steps, so that it is not known who else has grown, or if every stage is
        on several nodes, which are compared with one another.
    """
    steps = {rank: (labels.get("node", ""), v) for rank, labels, v in by_rank(samples["steps"])}
    if not stages or not stages.keys() <= steps.keys():
        return None
    if any(rate * WINDOW_SECONDS < _LEAST_STEPS for _, rate in steps.values()):
        return None
    found: dict[int, dict[str, float]] = {}
    for rank, labels, value in by_rank(samples["spans"]):
        if rank in stages and rank in steps:
            found.setdefault(rank, {})[labels.get("segment", "")] = value / steps[rank][1]
    members: dict[Stage, list[Mapping[str, float]]] = {}
    for rank, stage in stages.items():
        members.setdefault((stage, steps[rank][0]), []).append(found.get(rank, {}))
    if all(count > 1 for count in Counter(stage for stage, _ in members).values()):
        return None
    return {
        stage: {
            name: fmean(seconds.get(name, 0.0) for seconds in ranks)
            for name in (*WORK, _DATA, _WAITING, _STEP)
        }
        for stage, ranks in members.items()
    }


def is_alone(stage: Stage, stages: Sequence[Stage]) -> bool:
    """Return whether no other node has the same stage of the pipeline."""
    return [number for number, _ in stages].count(stage[0]) == 1
