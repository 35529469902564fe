"""What a training job does, in a few words that are true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.detection.explanation.explain import JobProgress
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.units import number
from peerwatch_detector.web.ago import clock

Kind = Literal["stalled", "slowed", "waiting", "paused", "training", "running", "ended"]

# A job that has waited for so long stands: MegaScale alarms after tens of seconds. Until then it
# may be a checkpoint, or the rhythm of its steps.
_STALLED_SECONDS = 60.0
# GPUs rest for so long in the slowest checkpoints and evaluations. Collectives time out after it
# (NCCL, torch).
_LONGEST_REST_SECONDS = 600.0
# Slower than usual by a third, as the alert PeerwatchJobSlow has it.
_SLOWED_RATIO = 2 / 3


@dataclass(frozen=True, slots=True)
class StateView:
    """What a job does.

    Parameters
    ----------
    kind
        By which jobs are chosen and ordered.
    text
        For a person, such as "stalled since 12:03:10 UTC".
    level
        A class of the style sheet; empty where nothing is wrong.
    """

    kind: Kind
    text: str
    level: str = ""


def state_of(detection: Detection) -> StateView:
    """Return what a job does, by its newest samples."""
    if not detection.job.running:
        return StateView("ended", "ended")
    if detection.progress.waits_seconds is not None:
        return _waiting(detection.time, detection.progress.waits_seconds)
    if (detection.progress.still_seconds or 0.0) > _pause_seconds(detection.progress):
        return _still(detection.time, detection.progress)
    if detection.progress.activity == "rests":
        return StateView("paused", "paused: its GPUs rest, as in a checkpoint or an evaluation")
    if detection.step_rate is not None:
        return _with_step_rate(detection.step_rate)
    return _without_step_rate(detection.progress)


def _without_step_rate(progress: JobProgress) -> StateView:
    """Return what a job does whose steps nobody counts."""
    if progress.activity == "slowed":
        return StateView("slowed", f"slowed by {100 * (progress.loss or 0):.0f} %", "warn")
    if progress.activity == "trains":
        return StateView("training", "training")
    return StateView("running", "running, progress unknown")


def _pause_seconds(progress: JobProgress) -> float:
    """Return for how long hardware that stands still has a healthy reason."""
    return _LONGEST_REST_SECONDS if progress.activity == "rests" else _STALLED_SECONDS


def _still(time: float, progress: JobProgress) -> StateView:
    """Return what a job does that makes no steps that are known, and whose hardware stands still.

    It may evaluate on its CPUs or have no data: a person looks.
    """
    what = "GPUs idle" if progress.activity == "rests" else "GPUs busy without work"
    since = clock(time - (progress.still_seconds or 0.0))
    return StateView("stalled", f"no steps known: {what} since {since} UTC", "warn")


def _waiting(time: float, seconds: float) -> StateView:
    if seconds < _STALLED_SECONDS:
        return StateView("waiting", f"waits for its ranks, {seconds:.0f} s so far")
    return StateView("stalled", f"stalled since {clock(time - seconds)} UTC", "bad")


def _with_step_rate(step_rate: JobStepRate) -> StateView:
    if step_rate.ratio < _SLOWED_RATIO:
        share = f"slowed to {100 * step_rate.ratio:.0f} % of its usual step rate"
        return StateView("slowed", f"{share}, {_rate(step_rate)}", "warn")
    return StateView("training", f"training, {_rate(step_rate)}")


def _rate(step_rate: JobStepRate) -> str:
    """Return the present step rate, in steps per second or seconds per step."""
    present = step_rate.ratio * step_rate.usual
    if present <= 0:
        return "no step is finished"
    if present >= 1:
        return f"{number(present)} steps/s"
    return f"a step in {number(1 / present)} s"
