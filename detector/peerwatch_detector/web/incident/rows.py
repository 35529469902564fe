"""The one timeline of an incident: evidence, deviations of metrics, alerts and actions in order."""

from __future__ import annotations

from collections.abc import Iterator

from peerwatch_detector.config.titles import finding_words, metric_title
from peerwatch_detector.web.incident.differences import UNTOLD, difference
from peerwatch_detector.web.incident.gather import Incident
from peerwatch_detector.web.incident.record import event
from peerwatch_detector.web.root.timeline import TimelineRow
from peerwatch_detector.web.root.view import root_rows, zero_of


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
        name = finding_words(each.metric)
        if (each.node, name) not in known:
            yield event(each.since, "findings", name, each.node, text=each.summary, gpu=each.gpu)


def _deviations(found: Incident) -> Iterator[TimelineRow]:
    curves = {curve.metric: curve for curve in found.curves}
    for metric, since in found.deviating.items():
        curve = curves.get(metric)
        title = metric_title(metric) if curve is None else curve.title
        says = UNTOLD if curve is None else difference(curve, since) or UNTOLD
        gpu = "" if curve is None else curve.gpu
        yield event(since, "metrics", title, found.node, says=says, gpu=gpu)
