"""The one timeline of an incident: evidence, deviations of metrics, alerts and actions in order."""

from __future__ import annotations

import math
from collections.abc import Iterator

from peerwatch_detector.units import metric_words, quantity
from peerwatch_detector.web.deviation import Curve
from peerwatch_detector.web.incident.gather import Incident
from peerwatch_detector.web.incident.record import event
from peerwatch_detector.web.root.timeline import TimelineRow
from peerwatch_detector.web.root.view import root_rows, zero_of

# The value that is told is that of so many seconds after a deviation began.
_TOLD_AFTER_SECONDS = 30.0


def incident_rows(found: Incident) -> tuple[TimelineRow, ...]:
    """Return everything that was observed and done, in order of time; without a time comes last."""
    of_root = () if found.root is None else root_rows(found.root)
    rows = [*of_root, *_findings(found, of_root), *_deviations(found), *found.facts.rows]
    known = sorted((row for row in rows if row.time is not None), key=lambda row: row.time or 0.0)
    return (*known, *(row for row in rows if row.time is None))


def incident_zero(found: Incident) -> float:
    """Return the Unix time from which the timeline counts: the first sign of the diagnosis."""
    if found.root is not None and found.root.root.causes:
        return zero_of(found.root)
    if found.facts.findings:
        return found.facts.findings[0].since
    return float(found.address.begun)


def _findings(found: Incident, told: tuple[TimelineRow, ...]) -> Iterator[TimelineRow]:
    """Yield the findings that the evidence of the root does not have, as of one that is over."""
    known = {(node, row.what) for row in told for node in row.nodes}
    for each in found.facts.findings:
        name = each.metric.replace("_", " ")
        if (each.node, name) not in known:
            yield event(each.since, "findings", name, each.node, text=each.summary, gpu=each.gpu)


def _deviations(found: Incident) -> Iterator[TimelineRow]:
    curves = {curve.metric: curve for curve in found.curves}
    for metric, since in found.deviating.items():
        curve = curves.get(metric)
        title = metric_words(metric) if curve is None else curve.title
        says = "deviates" if curve is None else _values(curve, since)
        gpu = "" if curve is None else curve.gpu
        yield event(since, "metrics", title, found.node, says=says, gpu=gpu)


def _values(curve: Curve, since: float) -> str:
    """Return the node's value and its peers', soon after a deviation began."""
    for time, value, median in zip(curve.times, curve.values, curve.median, strict=True):
        known = math.isfinite(value) and math.isfinite(median)
        if known and time >= since + _TOLD_AFTER_SECONDS:
            peers = quantity(median, curve.unit)
            return f"{quantity(value, curve.unit)}, peers {peers}"
    return "deviates"
