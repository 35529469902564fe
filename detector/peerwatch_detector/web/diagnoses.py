"""What the job itself says, as the web UI and the JSON show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peerwatch_detector.diagnosis.verdict import Verdict
from peerwatch_detector.service.metrics import Snapshot
from peerwatch_detector.web.ago import date


@dataclass(frozen=True, slots=True)
class DiagnosisView:
    """A verdict as the web UI shows it."""

    summary: str
    node: str
    rank: str
    class_name: str
    domain: str
    confidence: str
    action: str
    since: str


def diagnosis_views(snapshot: Snapshot, job_id: str) -> list[DiagnosisView]:
    """Return the verdicts about a job that stand, the most direct first."""
    return [
        DiagnosisView(
            verdict.summary,
            verdict.node,
            "" if verdict.rank is None else str(verdict.rank),
            verdict.class_name,
            verdict.domain,
            verdict.confidence,
            verdict.action,
            date(verdict.start_time),
        )
        for verdict in _of_job(snapshot, job_id)
    ]


def diagnoses_json(snapshot: Snapshot, job_id: str) -> list[dict[str, Any]]:
    """Return the verdicts about a job that stand, for programs."""
    return [
        {
            "node": verdict.node,
            "rank": verdict.rank,
            "class": verdict.class_name,
            "domain": verdict.domain,
            "confidence": verdict.confidence,
            "action": verdict.action,
            "summary": verdict.summary,
            "victims": list(verdict.victims),
            "since": verdict.start_time,
        }
        for verdict in _of_job(snapshot, job_id)
    ]


def _of_job(snapshot: Snapshot, job_id: str) -> list[Verdict]:
    known = snapshot.diagnoses.verdicts if snapshot.diagnoses else ()
    return [verdict for verdict in known if verdict.job_id == job_id]
