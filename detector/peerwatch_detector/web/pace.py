"""How fast a job goes, in words."""

from __future__ import annotations

from peerwatch_detector.detection.job_pace import JobPace
from peerwatch_detector.units import number


def pace_text(pace: JobPace | None) -> str:
    """Return how fast the job goes, in words; empty = not known."""
    if pace is None:
        return ""
    share = f"{100 * pace.ratio:.0f} % of its usual pace"
    if pace.usual >= 1:
        return f"{share} ({number(pace.usual)} steps per second)"
    return f"{share} (a step in {number(1 / pace.usual)} s)"
