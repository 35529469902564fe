"""All training jobs: what is wrong comes first, and a person finds any of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from peerwatch_common.metrics.label_length import shortened
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.jobs import Job
from peerwatch_detector.web.ago import ago
from peerwatch_detector.web.alerts import AlertView
from peerwatch_detector.web.state import StateView, state_of

# What a person may choose, in the order of the view, with what is said of it.
CHOICES = {
    "faulty": "with a faulty node",
    "alerting": "with a critical alert",
    "stalled": "stalled",
    "slowed": "slowed",
    "not-compared": "not compared",
    "training": "training",
    "ended": "ended",
}
# So many jobs of the list are shown at a time. Chosen: some screens, which a browser lays out at
# once.
_JOBS_AT_A_TIME = 100
# So many of a job's flagged nodes are named in its row: as many as fit in a line.
_NAMED = 4
# What comes first among jobs without a finding.
_URGENCY = ("stalled", "slowed", "waiting", "paused", "training", "running", "ended")


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One job of the list."""

    job_id: str
    nodes: int
    state: StateView
    not_compared: str
    flagged: tuple[Finding, ...]
    more_flagged: int
    alerts: tuple[AlertView, ...]
    summaries: tuple[str, ...]
    age: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What a visitor asks for.

    Parameters
    ----------
    text
        Part of the name of a job or of one of its nodes.
    choice
        One of ``CHOICES``; empty = all.
    part
        Which part of the list, from 1 on.
    """

    text: str = ""
    choice: str = ""
    part: int = 1

    @classmethod
    def of(cls, arguments: Mapping[str, str]) -> Asked:
        """Read an address; what is none of the choices is all."""
        choice, part = arguments.get("state", ""), arguments.get("page", "")
        digits = part.isascii() and part.isdigit() and len(part) < 6
        return cls(
            arguments.get("q", "").strip()[:200],
            choice if choice in CHOICES else "",
            max(1, int(part)) if digits else 1,
        )


@dataclass(frozen=True, slots=True)
class FleetView:
    """The list of jobs.

    Parameters
    ----------
    rows, shown
        Of this part, and the evaluated jobs that they are of.
    jobs, matching
        How many there are, and how many match what was asked.
    counts
        How many of all jobs each choice has, those without a job left out.
    part, parts
        From 1 on.
    findings
        Of all jobs.
    asked
        What was asked.
    """

    rows: tuple[FleetRow, ...]
    shown: tuple[Detection, ...]
    jobs: int
    matching: int
    counts: dict[str, int]
    part: int
    parts: int
    findings: int
    asked: Asked

    @property
    def places(self) -> str:
        """Which of the matching jobs are shown, such as "101 to 200"."""
        first = (self.part - 1) * _JOBS_AT_A_TIME
        return f"{first + 1} to {first + len(self.rows)}"


def fleet_view(
    detections: Sequence[Detection],
    asked: Asked,
    summaries: Callable[[str], tuple[str, ...]],
    now: float,
    alerts: Callable[[Job], tuple[AlertView, ...]] = lambda _: (),
) -> FleetView:
    """Return the jobs that a visitor asks for, what needs a person first.

    Parameters
    ----------
    detections
        The newest of every job.
    asked
        What to show.
    summaries
        By job id, what to do first, a sentence each.
    now
        Unix time.
    alerts
        A job's critical alerts, without its findings.
    """
    firing = {detection.job.job_id: alerts(detection.job) for detection in detections}
    states = {detection.job.job_id: state_of(detection) for detection in detections}

    def has(detection: Detection, choice: str) -> bool:
        if choice == "faulty":
            return bool(detection.findings)
        if choice == "alerting":
            return bool(firing[detection.job.job_id])
        if choice == "not-compared":
            return bool(detection.not_compared)
        return states[detection.job.job_id].kind == choice

    def urgency(detection: Detection) -> tuple[bool, bool, bool, bool, int, str]:
        job_id = detection.job.job_id
        return (
            not any(finding.severity == "critical" for finding in detection.findings),
            not detection.findings,
            not firing[job_id],
            not summaries(job_id),
            _URGENCY.index(states[job_id].kind),
            job_id,
        )

    counts = {each: sum(has(detection, each) for detection in detections) for each in CHOICES}
    found = [
        detection
        for detection in detections
        if (not asked.choice or has(detection, asked.choice)) and _named(detection, asked.text)
    ]
    found.sort(key=urgency)
    parts = max(1, math.ceil(len(found) / _JOBS_AT_A_TIME))
    part = min(asked.part, parts)
    shown = tuple(found[(part - 1) * _JOBS_AT_A_TIME : part * _JOBS_AT_A_TIME])
    return FleetView(
        tuple(_row(each, states, firing, summaries, now) for each in shown),
        shown,
        len(detections),
        len(found),
        {choice: count for choice, count in counts.items() if count},
        part,
        parts,
        sum(len(detection.findings) for detection in detections),
        asked,
    )


def _named(detection: Detection, text: str) -> bool:
    text = text.casefold()
    names = (detection.job.job_id, *detection.job.nodes) if text else ()
    return not text or any(text in name.casefold() for name in names)


def _row(
    detection: Detection,
    states: Mapping[str, StateView],
    firing: Mapping[str, tuple[AlertView, ...]],
    summaries: Callable[[str], tuple[str, ...]],
    now: float,
) -> FleetRow:
    return FleetRow(
        shortened(detection.job.job_id),
        len(detection.job.nodes),
        states[detection.job.job_id],
        detection.not_compared,
        detection.findings[:_NAMED],
        max(0, len(detection.findings) - _NAMED),
        firing[detection.job.job_id],
        summaries(detection.job.job_id),
        ago(now - detection.time),
    )
