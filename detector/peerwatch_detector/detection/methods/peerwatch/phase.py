"""What a job does at one step, and by which metric that is told."""

from __future__ import annotations

from dataclasses import dataclass

# The present level is the median of so many seconds at least.
PRESENT_SECONDS = 12


@dataclass(frozen=True, slots=True)
class Phase:
    """What the job does at one step.

    Parameters
    ----------
    known
        Whether anything tells of its progress.
    idle
        The GPUs are not busy: a checkpoint, or the job was halted.
    waiting
        The GPUs are busy without progress.
    ended
        The GPUs are idle, and their memory is given back: the job's processes are gone.
    noticed_seconds
        How long after it began a wait is certain; half of the time that is averaged, and a step.
    counted
        Only the job's own counters tell of it: nothing says what the hardware does meanwhile.
    step_seconds
        For how long no step has been finished; 0 where nothing counts them.
    pause_seconds
        How long a pause between two steps is ordinary for the job; known while it waits.
    """

    known: bool = False
    idle: bool = False
    waiting: bool = False
    noticed_seconds: float = PRESENT_SECONDS
    counted: bool = False
    step_seconds: float = 0.0
    pause_seconds: float = 0.0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Which metric tells of the progress at a step, its usual level, and whether any ever did."""

    metric: str | None
    usual: float
    known: bool
