"""How fast a job goes, in words."""

from __future__ import annotations

from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.units import number


def step_rate_text(step_rate: JobStepRate | None) -> str:
    """Return how fast the job goes, in words; empty = not known."""
    if step_rate is None:
        return ""
    share = f"{100 * step_rate.ratio:.0f} % of its usual step rate"
    if step_rate.usual >= 1:
        return f"{share} ({number(step_rate.usual)} steps per second)"
    return f"{share} (a step in {number(1 / step_rate.usual)} s)"
