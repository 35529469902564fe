"""In which steps the GPU times what a program names: in one of several where all cost too much."""

from __future__ import annotations

from collections import deque

# For so long the ring is to hold single spans; see docs/spans.md.
KEPT_SECONDS = 600
# One step of 64 at most goes untimed for long: 64 steps are seconds in most jobs.
MOST_STEPS = 64
# Rates of so many timed steps are looked at, by their median: a checkpoint is one long step.
_STEPS = 5
# It goes back to more steps only where they fit well, or it would go back and forth.
_ROOM = 0.8


class StepSampler:
    """Chooses the steps in which segments of a program's own are timed on the GPU.

    Only those that come in every step: of rarer ones some of the steps would give a wrong picture.

    Steps are chosen by number, by powers of two, so that all ranks of a job choose the same ones or
    some of them. A program whose steps are not seen has all its segments timed.

    Parameters
    ----------
    per_second
        How many spans a second there may be in the mean.

    Attributes
    ----------
    every
        One of so many steps is timed; each of its spans stands for as many.
    is_timed
        Whether the step under way is.
    seen
        Spans begun in it so far, counted by whoever asks.
    """

    __slots__ = ("_per_second", "_rates", "every", "is_timed", "seen")

    def __init__(self, per_second: float) -> None:
        self.every = 1
        self.is_timed = True
        self.seen = 0
        self._per_second = per_second
        self._rates: deque[float] = deque(maxlen=_STEPS)

    def step_ended(self, step: int, nanoseconds: int) -> None:
        """Choose whether the next step is timed.

        Parameters
        ----------
        step
            Its number.
        nanoseconds
            What the one that ended took.
        """
        if self.is_timed:
            self._rates.append(self.seen * 1e9 / max(nanoseconds, 1))
            self.seen = 0
        if step % self.every == 0:
            wanted = self._wanted()
            # The steps that the last timed one stands for have all ended, so that none is counted
            # twice; none is left out if the next to be timed comes at once.
            if step % wanted == 0:
                self.every = wanted
        self.is_timed = step % self.every == 0

    def _wanted(self) -> int:
        rate = sorted(self._rates)[len(self._rates) // 2] if self._rates else 0.0
        every = 1
        while every < MOST_STEPS and rate > every * self._per_second:
            every *= 2
        if every < self.every and rate > _ROOM * every * self._per_second:
            return min(2 * every, self.every)
        return every
