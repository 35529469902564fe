"""When to read next, and how often the process can afford to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NANOSECONDS = 1_000_000_000
# Statistics are of seconds: each needs a sample.
_LONGEST_SECONDS = 1.0
# Aim below the limit, and come back only well below it: no swinging. Chosen; the order counts.
_AIM, _COMFORT = 0.9, 0.7


def affordable_interval(interval: float, wished: float, ratio: float, limit: float) -> float:
    """Return the interval to go on with after a second's cost.

    Parameters
    ----------
    interval, wished
        Seconds between samples, as they were and as configured.
    ratio, limit
        CPU time per second, as it was and as allowed.

    Returns
    -------
    float
        Longer if the second cost too much, at most 1 s; shorter again, at most by half, if it
        cost much less than allowed; never shorter than wished for.
    """
    if ratio > limit:
        return max(wished, min(_LONGEST_SECONDS, interval * ratio / (_AIM * limit)))
    if interval > wished and ratio < _COMFORT * limit:
        return max(wished, interval * max(0.5, ratio / (_AIM * limit)))
    return interval


class IntervalController:
    """A clock of absolute deadlines: lateness never adds up, and what was missed is skipped.

    Parameters
    ----------
    wished_seconds
        Time between two samples, as configured.
    cpu_limit
        CPU time per second above which it is stretched.
    monotonic
        Nanoseconds that only rise.
    sleep
        Sleeps for seconds.
    cpu
        CPU seconds that the process has used.

    Attributes
    ----------
    interval_seconds
        Time between two samples as it is now.
    samples, late
        Deadlines met, and those that passed without a sample or with one more than half an
        interval after them.
    cpu_ratio
        CPU time per second in the last second.
    achieved_seconds
        Mean time between two samples in the last second.
    """

    def __init__(
        self,
        wished_seconds: float,
        cpu_limit: float,
        monotonic: Callable[[], int],
        sleep: Callable[[float], None],
        cpu: Callable[[], float],
    ) -> None:
        self._wished = wished_seconds
        self._limit = cpu_limit
        self._monotonic = monotonic
        self._sleep = sleep
        self._cpu = cpu
        self.interval_seconds = wished_seconds
        self.samples = self.late = 0
        self.cpu_ratio = 0.0
        self.achieved_seconds = wished_seconds
        self._assessed_at = self.deadline = monotonic()
        self._assessed_cpu = cpu()
        self._assessed_samples = 0

    @property
    def is_stretched(self) -> bool:
        """Whether samples are further apart than configured, to save CPU time."""
        return self.interval_seconds > self._wished

    @property
    def spare_seconds(self) -> float:
        """Time left until the next deadline; negative after it."""
        return (self.deadline - self._monotonic()) / NANOSECONDS

    def now(self) -> int:
        """Return the time (monotonic nanoseconds)."""
        return self._monotonic()

    def wait(self) -> int:
        """Sleep until the next deadline; return the time then (monotonic nanoseconds)."""
        now = self._monotonic()
        if now < self.deadline:
            self._sleep((self.deadline - now) / NANOSECONDS)
            now = self._monotonic()
        interval = int(self.interval_seconds * NANOSECONDS)
        behind = max(0, now - self.deadline)
        skipped = behind // interval
        self.late += skipped + (behind % interval > interval / 2)
        self.samples += 1
        self.deadline += (1 + skipped) * interval
        return now

    def assess(self, now: int) -> None:
        """Measure the time since the last call, and set the interval by its cost."""
        elapsed, cpu = (now - self._assessed_at) / NANOSECONDS, self._cpu()
        taken = self.samples - self._assessed_samples
        if elapsed <= 0 or not taken:
            return
        self.cpu_ratio = (cpu - self._assessed_cpu) / elapsed
        self.achieved_seconds = elapsed / taken
        self._assessed_at, self._assessed_cpu = now, cpu
        self._assessed_samples = self.samples
        self.interval_seconds = affordable_interval(
            self.interval_seconds, self._wished, self.cpu_ratio, self._limit
        )
