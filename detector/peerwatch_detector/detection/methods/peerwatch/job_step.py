"""What the job does at one evaluated step, and what that says about later ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.methods.peerwatch.phase import Choice, Phase
from peerwatch_detector.detection.methods.peerwatch.progress import ProgressTracker
from peerwatch_detector.detection.time_grid import elapsed

# A wait is believed once it is so many times as long as it takes to be noticed.
_NOTICED_TWICE = 2
_NO_CHOICES: Mapping[str, Choice] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class JobStep:
    """A job at one step.

    Parameters
    ----------
    time
        Unix time.
    clock
        The same without the time in which the job was idle.
    phase
        What the job does.
    waiting_since
        On the clock; None while it does not wait.
    restarted
        Whether its processes have ended, and it has made no progress since.
    resumed
        Whether this is the first progress of processes that were started anew.
    starting
        Whether it was halted for long, or its processes were started anew, and it has made no
        progress since.
    idle_seconds, halted_seconds
        How long it was idle in all, and since it last made progress.
    hung_seconds
        While its GPUs are idle: how long it had waited when they became so, 0 if it did not, or
        only after another rest.
    worked_at, work_began
        Unix times: when it last made progress, and since when it had, without a pause.
    choices
        Which metrics tell of its progress; see ``ProgressTracker``.
    """

    time: float = 0.0
    clock: float = 0.0
    phase: Phase = field(default_factory=Phase)
    waiting_since: float | None = None
    restarted: bool = False
    resumed: bool = False
    starting: bool = False
    idle_seconds: float = 0.0
    halted_seconds: float = 0.0
    hung_seconds: float = 0.0
    worked_at: float = -np.inf
    work_began: float = -np.inf
    choices: Mapping[str, Choice] = field(default_factory=lambda: _NO_CHOICES)

    @property
    def waits_seconds(self) -> float | None:
        """How long the job has waited; None if it does not."""
        return None if self.waiting_since is None else elapsed(self.waiting_since, self.clock)

    @property
    def stands_still_seconds(self) -> float:
        """How long the job has made no progress: it waits, or rests, or rests after a wait."""
        waits = self.waits_seconds or 0.0
        if not self.phase.idle:
            return waits
        # Where a rest begins it may be taken for a wait, which has begun before it was noticed.
        return self.halted_seconds + max(0.0, waits - self.phase.noticed_seconds)

    def waits_long(self, patience_seconds: float) -> bool:
        """Whether the job has waited longer than healthy reasons explain."""
        waits = self.waits_seconds
        return waits is not None and waits >= patience_seconds

    def ended_after(self, seconds: float) -> bool:
        """Whether the job's processes are gone after it had hung for at least so long."""
        return self.phase.ended and self.hung_seconds >= seconds


def _hung_seconds(before: JobStep) -> float:
    """Return how long a job had hung that is idle at the next step."""
    waits, noticed = before.waits_seconds, before.phase.noticed_seconds
    # Where it rested before, it may be its last checkpoint that it waited for. And a job that works
    # until it ends may seem to wait for as long as a wait takes to be noticed.
    if waits is None or before.halted_seconds > 0 or waits < _NOTICED_TWICE * noticed:
        return 0.0
    return waits


def next_step(
    before: JobStep, time: float, progress: ProgressTracker, config: DetectorConfig
) -> JobStep:
    """Return the job at the step that follows.

    Parameters
    ----------
    before
        The step before it.
    time
        Unix time of the step.
    progress
        The job's.
    config
        Settings.
    """
    phase = progress.phase(time) if config.peerwatch.progress else Phase()
    idle, halted, worked_at = before.idle_seconds, before.halted_seconds, before.worked_at
    restarts = config.peerwatch.restarts
    hung, restarted = 0.0, before.restarted or phase.ended
    work_began = before.work_began
    if phase.idle:
        hung = before.hung_seconds if before.phase.idle else _hung_seconds(before)
        idle = round(idle + config.evaluation_seconds, 3)
        halted = round(halted + config.evaluation_seconds, 3)
    elif not phase.waiting:
        halted, restarted = 0.0, False
        worked_at = elapsed(phase.step_seconds, time) if phase.known else -np.inf
        if before.phase.idle or before.phase.waiting:
            work_began = time
    clock = elapsed(idle, time)
    waiting_since = before.waiting_since if phase.waiting else None
    if restarts and restarted and before.phase.idle and not phase.idle:
        # Those that waited before are gone.
        waiting_since = None
    if phase.waiting and waiting_since is None:
        waiting_since = elapsed(phase.noticed_seconds, clock)
    return JobStep(
        time,
        clock,
        phase,
        waiting_since,
        restarted=restarted,
        resumed=restarts and before.restarted and not restarted,
        starting=halted >= config.peerwatch.patience_seconds or (restarts and restarted),
        idle_seconds=idle,
        halted_seconds=halted,
        hung_seconds=hung,
        worked_at=worked_at,
        work_began=work_began,
        choices=progress.choices(),
    )
