"""Jobs as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from peerwatch_common.metrics.label_length import shortened
from peerwatch_detector.detection.explanation.explain import Explanation
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.web.state import state_of


def all_short(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Return the same with every text as the metrics have it, where it is too long."""
    if isinstance(value, dict):
        return {key: all_short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [all_short(item) for item in value]
    return shortened(value) if type(value) is str else value


def job_json(detection: Detection) -> dict[str, Any]:
    """Return what is known of a job, for programs."""
    return {
        "job_id": detection.job.job_id,
        "nodes": list(detection.job.nodes),
        "running": detection.job.running,
        "state": state_of(detection).kind,
        "comparable": detection.comparable,
        "not_compared": detection.not_compared or None,
        "evaluated_until": detection.time,
        "progress": None if detection.step_rate is None else asdict(detection.step_rate),
        "findings": [
            {
                "node": f.node,
                "gpu": f.gpu,
                "metric": f.metric,
                "method": f.method,
                "severity": f.severity,
                "score": f.score,
                "since": f.since,
                "raised": f.raised,
                "explanation": _explained(detection.explanations.get(f)),
            }
            for f in detection.findings
        ],
        "candidates": [
            {
                "node": s.node,
                "gpu": s.gpu,
                "metric": s.metric,
                "method": s.method,
                "continuity_seconds": s.seconds,
                "threshold_seconds": s.threshold,
                "normal_score": _known(detection.normal_scores.get(s.metric, {}).get(s.node)),
                "score": s.score,
                "since": s.since,
            }
            for s in detection.deviations
        ],
    }


def _explained(why: Explanation | None) -> dict[str, Any] | None:
    return None if why is None else asdict(why)


def _known(value: float | None) -> float | None:
    """Return a number that JSON can hold: NaN becomes null."""
    return value if value is not None and math.isfinite(value) else None
