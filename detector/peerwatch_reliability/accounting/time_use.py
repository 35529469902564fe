"""What the time of an attempt went into: productive, lost, starting, saving, queued.

Where nobody measured when a job made progress and saved it, the times are bounds, and the source of
what was assumed stands beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerwatch_reliability.accounting.attempts import Attempt, Chain
    from peerwatch_reliability.records import State

# Chosen: what is only assumed may as well be half of that, or twice.
_ASSUMED_FACTOR = 2.0
_COMMENT = re.compile(r"(?:^|[\s;,])ckpt=(\d+(?:\.\d+)?)(?=$|[\s;,])")
# Ends after which what was not saved is lost. A user's own failure is no loss of the cluster's.
LOSING: frozenset[State] = frozenset({"preempted", "requeued", "node_fail"})

Source = Literal["measured", "stated", "assumed"]


class Span(NamedTuple):
    """A value, and the least and the most that it can be."""

    low: float
    expected: float
    high: float

    def __add__(self, other: object) -> Span:
        """Add value to value and bound to bound."""
        if not isinstance(other, Span):
            return NotImplemented
        return Span(self.low + other.low, self.expected + other.expected, self.high + other.high)


NOTHING = Span(0.0, 0.0, 0.0)


class Estimate(NamedTuple):
    """A duration in seconds, its bounds, and who says so."""

    span: Span
    source: Source


def stated(seconds: float, source: Source = "stated") -> Estimate:
    """Return a duration that is known."""
    return Estimate(Span(seconds, seconds, seconds), source)


def assumed(seconds: float) -> Estimate:
    """Return a duration that nobody has said or measured."""
    return Estimate(Span(seconds / _ASSUMED_FACTOR, seconds, seconds * _ASSUMED_FACTOR), "assumed")


def stated_checkpoint(comment: str) -> Estimate | None:
    """Return the checkpoint interval that a job's comment states in minutes, as ``ckpt=60``."""
    found = _COMMENT.search(comment)
    minutes = float(found[1]) if found else 0.0
    return stated(60 * minutes) if 0 < minutes <= 100_000 else None


class Progress(NamedTuple):
    """What was measured of an attempt; None: it was not.

    Parameters
    ----------
    first_step
        Unix time at which it first made progress.
    last_checkpoint
        Unix time of the last checkpoint that was complete.
    checkpoint_seconds
        The usual time between two.
    saving_seconds
        For which writing checkpoints halted it.
    """

    first_step: float | None = None
    last_checkpoint: float | None = None
    checkpoint_seconds: float | None = None
    saving_seconds: float | None = None


UNMEASURED = Progress()


@dataclass(frozen=True, slots=True)
class TimeUse:
    """The time of an attempt in seconds; all but ``queue`` are bounds.

    Parameters
    ----------
    queue
        Q.
    run
        R + U.
    restart
        Of U: until progress was made.
    lost
        Of U: progress that was made and not saved before an interruption.
    saving
        Of U: for which writing checkpoints halted it.
    interval, start_up
        What lost and restart were computed from.
    """

    queue: float
    run: float
    restart: Span
    lost: Span
    saving: float
    interval: Estimate
    start_up: Estimate

    @property
    def unproductive(self) -> Span:
        """U."""
        saving = Span(self.saving, self.saving, self.saving)
        total = self.restart + self.lost + saving
        return Span(*(min(self.run, each) for each in total))

    @property
    def productive(self) -> Span:
        """R."""
        unproductive = self.unproductive
        return Span(
            self.run - unproductive.high,
            self.run - unproductive.expected,
            self.run - unproductive.low,
        )


def time_use(
    attempt: Attempt,
    progress: Progress,
    loses: bool,
    assumed_checkpoint: Estimate,
    assumed_restart: Estimate,
) -> TimeUse:
    """Return what the time of an attempt went into.

    Parameters
    ----------
    attempt
        It.
    progress
        What was measured of it.
    loses
        Whether it was interrupted, so that what was not saved is lost.
    assumed_checkpoint, assumed_restart
        Where nothing is measured or stated.
    """
    run = attempt.run_seconds
    interval = _interval(attempt, progress, assumed_checkpoint)
    start_up = assumed_restart
    if progress.first_step is not None and attempt.start is not None:
        seconds = min(run, max(0.0, progress.first_step - attempt.start))
        start_up = stated(seconds, "measured")
    restart = Span(*(min(run, each) for each in start_up.span))
    lost = NOTHING
    if loses:
        lost = _lost(attempt, progress, interval.span, restart)
    saving = min(run, progress.saving_seconds or 0.0)
    return TimeUse(attempt.queue_seconds, run, restart, lost, saving, interval, start_up)


def _interval(attempt: Attempt, progress: Progress, otherwise: Estimate) -> Estimate:
    if progress.checkpoint_seconds:
        return stated(progress.checkpoint_seconds, "measured")
    return stated_checkpoint(attempt.row.comment) or otherwise


def _lost(attempt: Attempt, progress: Progress, interval: Span, restart: Span) -> Span:
    run = attempt.run_seconds
    if progress.last_checkpoint is not None:
        seconds = attempt.end - max(progress.last_checkpoint, attempt.end - run)
        return Span(*(3 * (min(run, max(0.0, seconds)),)))
    # Before the first checkpoint all is lost, afterwards half an interval in the mean.
    most, usual, least = (run - each for each in restart)
    return Span(
        max(0.0, least) if most < interval.low else 0.0,
        max(0.0, usual) if usual < interval.expected else interval.expected / 2,
        max(0.0, min(most, interval.high)),
    )


class Ettr(NamedTuple):
    """Effective training time ratio of something, and what it rests on.

    Parameters
    ----------
    ratio
        R / W; None: it had no time at all.
    wall, queue, run
        W, Q and R + U in seconds.
    weakest
        The weakest source of a checkpoint interval or restart time in it.
    """

    ratio: Span | None
    wall: float
    queue: float
    run: float
    weakest: Source


def ettr_of(uses: Iterable[TimeUse], weights: Iterable[float] | None = None) -> Ettr:
    """Return the measured ETTR of attempts; weighted, such as by GPUs, where weights are given."""
    found = list(uses)
    factors = [1.0] * len(found) if weights is None else list(weights)
    productive = NOTHING
    wall = queue = run = 0.0
    sources: set[Source] = set()
    for use, factor in zip(found, factors, strict=True):
        productive += Span(*(factor * each for each in use.productive))
        wall += factor * (use.queue + use.run)
        queue, run = queue + factor * use.queue, run + factor * use.run
        sources |= {use.start_up.source} if use.run > 0 else set()
        sources |= {use.interval.source} if use.lost.high > 0 else set()
    order: tuple[Source, ...] = ("assumed", "stated", "measured")
    weakest: Source = next((each for each in order if each in sources), "measured")
    ratio = Span(*(each / wall for each in productive)) if wall > 0 else None
    return Ettr(ratio, wall, queue, run, weakest)


Badput = Literal[
    "program_startup",
    "infrastructure_recovery_from_disruption",
    "unproductive_checkpoint_save_time",
    "wasted_progress_from_disruption",
]


def badput_of(chain: Chain, uses: Mapping[tuple[str, int], TimeUse]) -> dict[Badput, float]:
    """Return the GPU-seconds that were not productive, by why; they sum to U of the chain."""
    lost: dict[Badput, float] = {}

    def add(name: Badput, seconds: float) -> None:
        lost[name] = lost.get(name, 0.0) + seconds

    for number, attempt in enumerate(chain.attempts):
        use = uses.get(attempt.key)
        if use is None or use.run <= 0:
            continue
        gpus = attempt.row.gpus
        start: Badput = (
            "program_startup" if number == 0 else "infrastructure_recovery_from_disruption"
        )
        # What is lost and what is started overlap where an attempt ended early.
        left = use.unproductive.expected
        for name, seconds in (
            (start, use.restart.expected),
            ("unproductive_checkpoint_save_time", use.saving),
            ("wasted_progress_from_disruption", use.lost.expected),
        ):
            taken = min(left, seconds)
            left -= taken
            if taken:
                add(name, taken * gpus)
    return lost
