"""The rhythm of a training job: what every part of a node does at any time, as pure functions.

A job repeats its step (compute, reduce gradients, fetch input) and now and then a checkpoint. A
signal such as ``network`` has a level in each of these phases; totals are exact integrals, so a
process that starts in the middle of the run sees the counters go on.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Mode = Literal["trains", "waits", "idles"]

STEP_SECONDS = 5.0
_PHASE_SECONDS = (3.4, 1.3, 0.3)
_STEPS_PER_CHECKPOINT = 120
_CHECKPOINT_SECONDS = 12.0
CYCLE_SECONDS = _STEPS_PER_CHECKPOINT * STEP_SECONDS + _CHECKPOINT_SECONDS
# The job ran for this long when the exporter starts; its next checkpoint is far away.
_HISTORY_SECONDS = 20 * CYCLE_SECONDS + 20.0

# Levels from 0 to 1 while it computes, reduces, fetches input, writes a checkpoint; then while
# it waits in a collective that does not end; then without a job.
_LEVELS: Mapping[str, tuple[float, float, float, float, float, float]] = {
    "busy": (1.0, 1.0, 0.35, 0.05, 1.0, 0.0),
    "sm": (0.93, 0.7, 0.1, 0.0, 0.97, 0.0),
    "occupancy": (0.34, 0.2, 0.03, 0.0, 0.06, 0.0),
    "tensor": (0.54, 0.1, 0.02, 0.0, 0.0, 0.0),
    "dram": (0.46, 0.35, 0.1, 0.02, 0.01, 0.0),
    "power": (0.9, 0.66, 0.32, 0.2, 0.4, 0.1),
    "nvlink": (0.6, 1.0, 0.02, 0.0, 0.0, 0.0),
    "network": (0.12, 1.0, 0.01, 0.02, 0.0, 0.0),
    "pcie": (0.3, 0.6, 1.0, 0.8, 0.01, 0.001),
    "cpu": (0.24, 0.2, 0.5, 0.3, 0.13, 0.01),
    "read": (0.1, 0.05, 1.0, 0.0, 0.0, 0.001),
    "write": (0.002, 0.002, 0.002, 1.0, 0.001, 0.001),
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


def _patterns() -> dict[tuple[Mode, str], Pattern]:
    patterns: dict[tuple[Mode, str], Pattern] = {}
    for signal, levels in _LEVELS.items():
        step = list(zip(_PHASE_SECONDS, levels[:3], strict=True))
        training = step * _STEPS_PER_CHECKPOINT + [(_CHECKPOINT_SECONDS, levels[3])]
        patterns["trains", signal] = Pattern(training)
        patterns["waits", signal] = Pattern([(1.0, levels[4])])
        patterns["idles", signal] = Pattern([(1.0, levels[5])])
    return patterns


_PATTERNS = _patterns()
_MEANS = {
    signal: Pattern([(1.0, _PATTERNS["trains", signal].integral(CYCLE_SECONDS) / CYCLE_SECONDS)])
    for signal in SIGNALS
}


@dataclass(frozen=True, slots=True)
class Course:
    """What the job does: it trains, and from the onset on it does something else.

    Parameters
    ----------
    onset
        Seconds after the start at which the scenario's change begins.
    mode
        What the job does from then on.
    speed
        Steps per second from then on, relative to before; only where it trains.
    steady
        While it trains, every signal stands at its mean: for readers so slow that each would see
        another part of a step. What a step needs is then spread over as long as it takes.
    """

    onset: float
    mode: Mode = "trains"
    speed: float = 1.0
    steady: bool = False

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
        before = _MEANS[signal] if self.steady else _PATTERNS["trains", signal]
        first = before.integral(_HISTORY_SECONDS)
        total = before.integral(_HISTORY_SECONDS + min(time, self.onset)) - first
        if time <= self.onset:
            return total
        after = before if self.mode == "trains" else _PATTERNS[self.mode, signal]
        begin = _HISTORY_SECONDS + self.onset
        speed = self.speed if self.mode == "trains" else 1.0
        area = after.integral(begin + (time - self.onset) * speed) - after.integral(begin)
        # A pattern that is stretched keeps its levels; without one they fall.
        return total + factor * area / (1.0 if self.steady else speed)

    def mean(self, signal: str, time: float, seconds: float = 1.0, factor: float = 1.0) -> float:
        """Return a signal's mean level over the last seconds."""
        area = self.total(signal, time, factor) - self.total(signal, time - seconds, factor)
        return area / seconds

    def steps(self, time: float) -> tuple[int, float]:
        """Return how many steps the job has done, and when the last one ended (as ``time``)."""
        position = _HISTORY_SECONDS + min(time, self.onset)
        if self.mode == "trains" and time > self.onset:
            position += (time - self.onset) * self.speed
        cycles, rest = divmod(position, CYCLE_SECONDS)
        in_cycle = min(_STEPS_PER_CHECKPOINT, int(rest / STEP_SECONDS))
        ended = cycles * CYCLE_SECONDS + in_cycle * STEP_SECONDS - _HISTORY_SECONDS
        if ended > self.onset:
            ended = self.onset + (ended - self.onset) / self.speed
        return int(cycles) * _STEPS_PER_CHECKPOINT + in_cycle, ended


def noise(seed: int, *key: object) -> float:
    """Return a number from -1 to 1 that only the arguments decide, in every process alike."""
    text = f"{seed}/{'/'.join(map(str, key))}"
    return zlib.crc32(text.encode()) / 2**31 - 1
