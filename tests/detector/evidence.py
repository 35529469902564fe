"""Evidence against the nodes of a small job, and what it is good for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from detector.fakes import config_for, metric
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import Deviation
from peerwatch_detector.detection.methods.peerwatch.evidence import Evidence, assess
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.methods.peerwatch.phase import Phase

NOW, BEGAN = 10_000, 9_000.0
TRAINS, WAITS = Phase(known=True), Phase(known=True, waiting=True)
CONFIG = config_for(
    metric("work"),
    metric("other"),
    metric("busy", kind="load"),
    metric("pause", kind="network"),
    metric("marks", kind="network"),
    metric("notice", warns=True),
    metric("own", kind="own"),
    metric("memory", kind="memory"),
)
METRICS = {metric_config.name: metric_config for metric_config in CONFIG.detection_metrics()}


def evidence_of(name: str = "work", node: str = "a", **changes: Any) -> Evidence:
    values: dict[str, Any] = {
        "node": node,
        "gpu": "",
        "metric": METRICS[name],
        "rank": 1,
        "high": True,
        "since": BEGAN,
        "began": BEGAN,
        "seconds": 300.0,
        "quiet": 0.0,
        "strength": 2.0,
    }
    return Evidence(**(values | changes))


def sustained(
    *evidence: Evidence,
    phase: Phase = TRAINS,
    waiting_since: float | None = None,
    loss: float = math.nan,
    config: DetectorConfig = CONFIG,
) -> list[tuple[str, str]]:
    """Return node and metric of what may be named now."""
    deviations = weighed(
        *evidence, phase=phase, waiting_since=waiting_since, loss=lambda item: loss, config=config
    )
    return [(deviation.node, deviation.metric) for deviation in deviations if deviation.sustained]


def weighed(
    *evidence: Evidence,
    phase: Phase,
    waiting_since: float | None = None,
    loss: Callable[[Evidence], float],
    config: DetectorConfig = CONFIG,
) -> list[Deviation]:
    return assess(list(evidence), JobStep(NOW, NOW, phase, waiting_since), loss, config)


def without(**settings: Any) -> DetectorConfig:
    return CONFIG.model_copy(update={"peerwatch": CONFIG.peerwatch.model_copy(update=settings)})
