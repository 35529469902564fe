"""How busy each part of a node is at any time of a job, as pure functions with exact totals.

A job repeats its step (compute, reduce gradients, fetch input) and now and then a checkpoint. A
signal such as ``network`` has a level in each of these phases; totals are exact integrals, so a
process that starts in the middle of the run sees the counters go on.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from peerwatch_demo.job.timeline import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peerwatch_demo.job.timeline import Stretch, Timeline

# A made-up job, as large ones are: steps of some seconds (computing, reducing, fetching input), and
# a checkpoint every ten minutes.
STEP_SECONDS = 5.0
_PART_SECONDS = (3.4, 1.3, 0.3)
_STEPS_PER_CHECKPOINT = 120
_CHECKPOINT_SECONDS = 12.0
CYCLE_SECONDS = _STEPS_PER_CHECKPOINT * STEP_SECONDS + _CHECKPOINT_SECONDS
# The job ran for this long when the simulation starts; its next checkpoint is far away.
_HISTORY_SECONDS = 20 * CYCLE_SECONDS + 20.0


@dataclass(frozen=True, slots=True)
class _Levels:
    """Levels of a signal from 0 to 1.

    ``step``: while it computes, reduces and fetches input; ``checkpoint``: while it writes one;
    ``wait``: in a collective that does not end; ``halt``: without a job.
    """

    step: tuple[float, float, float]
    checkpoint: float
    wait: float = 0.0
    halt: float = 0.0


_LEVELS: Mapping[str, _Levels] = {
    "busy": _Levels((1.0, 1.0, 0.35), 0.05, wait=1.0),
    "sm": _Levels((0.93, 0.7, 0.1), 0.0, wait=0.97),
    "occupancy": _Levels((0.34, 0.2, 0.03), 0.0, wait=0.06),
    "tensor": _Levels((0.54, 0.1, 0.02), 0.0),
    "dram": _Levels((0.46, 0.35, 0.1), 0.02, wait=0.01),
    "power": _Levels((0.9, 0.66, 0.32), 0.2, wait=0.4, halt=0.1),
    "nvlink": _Levels((0.6, 1.0, 0.02), 0.0),
    "network": _Levels((0.12, 1.0, 0.01), 0.02),
    "pcie": _Levels((0.3, 0.6, 1.0), 0.8, wait=0.01, halt=0.001),
    "cpu": _Levels((0.24, 0.2, 0.5), 0.3, wait=0.13, halt=0.01),
    "read": _Levels((0.1, 0.05, 1.0), 0.0, halt=0.001),
    "write": _Levels((0.002, 0.002, 0.002), 1.0, wait=0.001, halt=0.001),
}
SIGNALS = tuple(_LEVELS)


class Pattern:
    """Levels that follow one another and repeat.

    Parameters
    ----------
    pieces
        Duration in seconds and level of each piece.
    """

    def __init__(self, pieces: Sequence[tuple[float, float]]) -> None:
        self._levels = [level for _, level in pieces]
        self._starts = list(accumulate((seconds for seconds, _ in pieces), initial=0.0))
        areas = (seconds * level for seconds, level in pieces)
        self._sums = list(accumulate(areas, initial=0.0))

    def integral(self, time: float) -> float:
        """Return level times seconds from 0 until ``time``."""
        cycles, rest = divmod(time, self._starts[-1])
        piece = min(bisect_right(self._starts, rest), len(self._levels)) - 1
        part = self._levels[piece] * (rest - self._starts[piece])
        return cycles * self._sums[-1] + self._sums[piece] + part


def _patterns() -> dict[tuple[Phase, str], Pattern]:
    patterns: dict[tuple[Phase, str], Pattern] = {}
    for signal, levels in _LEVELS.items():
        step = list(zip(_PART_SECONDS, levels.step, strict=True))
        training = step * _STEPS_PER_CHECKPOINT + [(_CHECKPOINT_SECONDS, levels.checkpoint)]
        patterns[Phase.TRAIN, signal] = Pattern(training)
        patterns[Phase.STALL, signal] = Pattern([(1.0, levels.step[-1])])
        patterns[Phase.CHECKPOINT, signal] = Pattern([(1.0, levels.checkpoint)])
        patterns[Phase.WAIT, signal] = Pattern([(1.0, levels.wait)])
        patterns[Phase.HALT, signal] = Pattern([(1.0, levels.halt)])
    return patterns


_PATTERNS = _patterns()
_MEANS = {
    signal: Pattern([(1.0, _PATTERNS[Phase.TRAIN, signal].integral(CYCLE_SECONDS) / CYCLE_SECONDS)])
    for signal in SIGNALS
}


class Activity:
    """What the job asks of a node over time.

    Parameters
    ----------
    timeline
        What the job does when.
    onset
        Seconds after the start from which a faulty part has levels of its own.
    steady
        While it trains, every signal stands at its mean: for readers so slow that each would see
        another part of a step. What a step needs is then spread over as long as it takes.
    """

    def __init__(self, timeline: Timeline, onset: float = inf, *, steady: bool = False) -> None:
        self._stretches = timeline.stretches()
        self._onset = onset
        self._steady = steady

    def total(self, signal: str, time: float, factor: float = 1.0) -> float:
        """Return a signal's integral from the start until ``time``, in level times seconds.

        Parameters
        ----------
        signal
            One of ``SIGNALS``.
        time
            Seconds since the start; negative before it.
        factor
            The level from the onset on, relative to the job's.
        """
        total = 0.0
        for stretch, position, passed in self._until(time):
            pattern = self._pattern(stretch.phase, signal)
            speed = stretch.speed if stretch.phase is Phase.TRAIN else 1.0
            area = pattern.integral(position + passed * speed) - pattern.integral(position)
            weight = factor if stretch.begin >= self._onset else 1.0
            # A pattern that is stretched keeps its levels; without one they fall.
            total += weight * area / (1.0 if self._steady else speed)
        return total

    def mean(self, signal: str, time: float, seconds: float = 1.0, factor: float = 1.0) -> float:
        """Return a signal's mean level over the last seconds."""
        area = self.total(signal, time, factor) - self.total(signal, time - seconds, factor)
        return area / seconds

    def steps(self, time: float) -> tuple[int, float]:
        """Return how many steps the job has done, and when the last one ended (as ``time``)."""
        *_, (stretch, position, passed) = self._until(time)
        if stretch.phase is Phase.TRAIN:
            position += passed * stretch.speed
        cycles, rest = divmod(position, CYCLE_SECONDS)
        in_cycle = min(_STEPS_PER_CHECKPOINT, int(rest / STEP_SECONDS))
        ended = cycles * CYCLE_SECONDS + in_cycle * STEP_SECONDS
        return int(cycles) * _STEPS_PER_CHECKPOINT + in_cycle, self._time_of(ended)

    def _pattern(self, phase: Phase, signal: str) -> Pattern:
        is_flat = self._steady and phase is Phase.TRAIN
        return _MEANS[signal] if is_flat else _PATTERNS[phase, signal]

    def _until(self, time: float) -> Iterator[tuple[Stretch, float, float]]:
        """Yield the stretches until a time: each, the job's position at its begin, its seconds.

        The position is how long the job would have trained at its usual speed until there.
        """
        position, begin = _HISTORY_SECONDS, 0.0
        for stretch in self._stretches:
            passed = min(time, stretch.end) - begin
            yield stretch, position, passed
            if time <= stretch.end:
                return
            if stretch.phase is Phase.TRAIN:
                position += passed * stretch.speed
            begin = stretch.end

    def _time_of(self, position: float) -> float:
        """Return when the job was at a position."""
        time = 0.0
        for stretch, start, passed in self._until(inf):
            begin = 0.0 if stretch.begin == -inf else stretch.begin
            if stretch.phase is Phase.TRAIN:
                time = begin + (position - start) / stretch.speed
                if time <= begin + passed:
                    break
        return time
