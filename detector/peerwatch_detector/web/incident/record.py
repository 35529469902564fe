"""What is known of an incident as plain data, from series or from the running detector."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.web.root.timeline import TimelineRow

# Of a job with an incident so many alerts and actions are shown at most: a timeline of 60 rows has
# room for no more (root/view.py), the JSON for some.
_MOST_EVENTS = 100


@dataclass(frozen=True, slots=True)
class PastFinding:
    """A finding that stood during the incident; ``until`` is when it was last seen (Unix time)."""

    node: str
    gpu: str
    metric: str
    method: str
    severity: str
    since: float
    until: float
    summary: str
    family: str


@dataclass(frozen=True, slots=True)
class Said:
    """A diagnosis as it was published; ``root`` of what the job failed of."""

    node: str
    class_name: str
    summary: str
    until: float
    root: bool
    action: str
    confidence: str
    domain: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What stood against a job within a stretch of time, and what was done.

    Parameters
    ----------
    findings
        Those that began first come first.
    said
        Diagnoses, the root's first.
    rows
        Alerts and actions of the responder, as rows of the timeline.
    alerts
        Names of the alerts that fired.
    nodes
        How many the job had; 0 = not known.
    slowest
        Its slowest step rate as a share of the usual one; None = not known.
    missing
        What could not be read, and why.
    """

    findings: tuple[PastFinding, ...] = ()
    said: tuple[Said, ...] = ()
    rows: tuple[TimelineRow, ...] = ()
    alerts: tuple[str, ...] = ()
    nodes: int = 0
    slowest: float | None = None
    missing: tuple[str, ...] = ()

    @property
    def seen(self) -> list[float]:
        """Unix times at which each finding and diagnosis was last seen."""
        return [each.until for each in self.findings] + [each.until for each in self.said]

    @property
    def last(self) -> float | None:
        """Unix time at which a root was last said, else at which anything last stood."""
        roots = [each.until for each in self.said if each.root]
        others = self.seen
        return max(roots, default=max(others, default=None))


Labels = Mapping[str, str]


def facts_of(answers: Answers) -> Facts:
    """Return what the answers to ``queries.facts`` say."""
    missing = tuple(
        dict.fromkeys(str(each) for each in answers.values() if isinstance(each, ReadError))
    )
    nodes = next((value for _, value in rows_of(answers, "nodes")), 0.0)
    return Facts(
        tuple(sorted(_findings(answers), key=lambda each: (each.since, each.node))),
        tuple(sorted(_said(answers), key=lambda each: (not each.root, -each.until, each.node))),
        tuple(sorted(_events(answers), key=lambda row: row.time or 0.0))[:_MOST_EVENTS],
        tuple(sorted({labels.get("alertname", "") for labels, _ in rows_of(answers, "alerts")})),
        int(nodes),
        next((value for _, value in rows_of(answers, "step_rate")), None),
        missing,
    )


def rows_of(answers: Answers, name: str) -> Iterator[tuple[Labels, float]]:
    """Yield labels and value of every series of an answer; nothing if there is none."""
    found = answers.get(name, [])
    if isinstance(found, ReadError):
        return
    for series in found:
        value = float(series.values[-1]) if len(series.values) else math.nan
        if math.isfinite(value):
            yield series.labels, value


def _findings(answers: Answers) -> Iterator[PastFinding]:
    of = ("node", "gpu", "metric", "method")

    def key(labels: Labels) -> tuple[str, ...]:
        return tuple(labels.get(name, "") for name in of)

    until = {key(labels): value for labels, value in rows_of(answers, "until")}
    why = {key(labels): labels for labels, _ in rows_of(answers, "why")}
    for labels, since in rows_of(answers, "since"):
        told = why.get(key(labels), {})
        yield PastFinding(
            labels.get("node", ""),
            labels.get("gpu", ""),
            labels.get("metric", ""),
            labels.get("method", ""),
            labels.get("severity", ""),
            since,
            until.get(key(labels), since),
            told.get("summary", ""),
            told.get("family", ""),
        )


def _said(answers: Answers) -> Iterator[Said]:
    character = {
        (labels.get("node", ""), labels.get("class", "")): labels
        for labels, _ in rows_of(answers, "actions")
    }
    for name in ("roots", "verdicts"):
        for labels, until in rows_of(answers, name):
            node, class_name = labels.get("node", ""), labels.get("class", "")
            known = character.get((node, class_name), {})
            yield Said(
                node,
                class_name,
                labels.get("summary", ""),
                until,
                name == "roots",
                known.get("action", ""),
                known.get("confidence", ""),
                known.get("domain", ""),
            )


def _events(answers: Answers) -> Iterator[TimelineRow]:
    for labels, time in rows_of(answers, "alerts"):
        text = {"critical": "a page", "warning": "a ticket"}.get(labels.get("severity", ""), "")
        yield event(time, "alerts", labels.get("alertname", ""), labels.get("node", ""), says=text)
    for labels, time in rows_of(answers, "responding"):
        yield event(time, "responder", "a response began", labels.get("node", ""))
    dry_run = [labels for labels, _ in rows_of(answers, "dry_run")]
    for labels, time in rows_of(answers, "responded"):
        yield event(
            time,
            "responder",
            f"response: {labels.get('result', '')}",
            labels.get("node", ""),
            says="a dry run, nothing was done" if labels in dry_run else "",
            text=labels.get("summary", ""),
        )


def event(
    time: float, source: str, what: str, node: str, *, says: str = "", text: str = "", gpu: str = ""
) -> TimelineRow:
    """Return something that happened once, as a row of the timeline."""
    nodes, gpus = _some([node]), _some([gpu])
    return TimelineRow(time, time, source, what, says, "", nodes, (), gpus, (), (), 1, text)


def _some(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(value for value in values if value)
