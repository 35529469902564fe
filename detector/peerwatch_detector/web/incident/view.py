"""An incident as the web UI shows it: in words and pictures, made once for all who look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from peerwatch_common.metrics.label_length import shortened
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.config.titles import metric_title
from peerwatch_detector.detection.findings import EVIDENCE
from peerwatch_detector.diagnosis.meanings import meaning_named
from peerwatch_detector.web.ago import date
from peerwatch_detector.web.deviation import Curve, deviation_svg
from peerwatch_detector.web.incident import queries
from peerwatch_detector.web.incident.gather import Incident
from peerwatch_detector.web.incident.heat import heat_svg
from peerwatch_detector.web.incident.links import links_of, prometheus_graph
from peerwatch_detector.web.incident.rows import incident_rows, incident_zero
from peerwatch_detector.web.incident.waits import WaitView, waits_svg
from peerwatch_detector.web.root.diagram import Diagram, draw
from peerwatch_detector.web.root.view import (
    AS_ITS_FINDING,
    MOST_ROWS,
    CauseView,
    RootView,
    RowView,
    root_view,
    row_view,
    shown_rows,
)

_NOTHING = "Nothing stood against this job at that time."
# Verdicts say in detail what a root says in short; so many are listed. Chosen: a screen's half.
_MOST_SAID = 6


@dataclass(frozen=True, slots=True)
class Multiple:
    """The picture of one metric, with the Unix time from which it deviates in words."""

    title: str
    since: str
    picture: Markup


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL of something that is shown; ``link`` opens it in Prometheus, empty if nothing does."""

    title: str
    text: str
    link: str


@dataclass(frozen=True, slots=True)
class IncidentView:
    """An incident in words and pictures.

    Parameters
    ----------
    job_id, when, node, nodes
        Its address, whom it is about, and who else is named.
    headline, steps
        What happened, in one sentence, and what to do, each a sentence.
    state, level
        Whether it stands, in words, and the class of the style sheet.
    facts
        (name, text) pairs below the headline.
    begun, zero
        When it began, and from when the times of the timeline count, in words.
    causes
        The diagnoses with what speaks for and against them.
    rows, left_out, diagram
        The timeline; so many rows are not shown; the same as a picture.
    affected, others
        Pictures of the metrics that deviate, and of the rest.
    heat, heat_note, waits, wait_rows
        The other pictures, and what they say.
    links, queries
        Where else to look.
    missing
        What could not be read or weighed.
    open
        Whether it may change.
    """

    job_id: str
    when: str
    node: str
    nodes: tuple[str, ...]
    headline: str
    steps: tuple[str, ...]
    state: str
    level: str
    facts: tuple[tuple[str, str], ...]
    begun: str
    zero: str
    causes: tuple[CauseView, ...]
    rows: tuple[RowView, ...]
    left_out: int
    diagram: Diagram | None
    affected: tuple[Multiple, ...]
    others: tuple[Multiple, ...]
    heat: Markup | None
    heat_note: str
    waits: Markup | None
    wait_rows: tuple[WaitView, ...]
    links: tuple[tuple[str, str], ...]
    queries: tuple[Query, ...]
    missing: tuple[str, ...]
    open: bool


def incident_view(
    found: Incident, config: DetectorConfig, metrics: Sequence[MetricConfig], now: float
) -> IncidentView:
    """Return an incident in words and pictures.

    Parameters
    ----------
    found
        What is known of it.
    config, metrics
        The detector's settings, and what it compares.
    now
        Unix time.
    """
    named = frozenset(each.node for each in found.facts.findings)
    root = None if found.root is None else root_view(found.root, named)
    rows, zero = incident_rows(found), incident_zero(found)
    shown = shown_rows(rows, MOST_ROWS)
    affected, others = _multiples(found)
    state, level = _state(found, now)
    return IncidentView(
        shortened(found.address.job_id),
        found.address.when,
        found.node,
        found.nodes,
        _headline(found, root, metrics),
        tuple(_steps(found, root)),
        state,
        level,
        tuple(_facts(found, metrics)),
        date(float(found.address.begun)),
        date(zero),
        () if root is None else root.causes,
        tuple(row_view(row, zero) for row in shown),
        len(rows) - len(shown),
        draw(shown, zero),
        affected,
        others,
        None if found.heat is None else Markup(heat_svg(found.heat, _since(found))),  # noqa: S704 - escaped there
        _heat_note(found),
        Markup(waits_svg(found.waits)) if found.waits else None,  # noqa: S704 - escaped there
        found.waits,
        tuple(links_of(found, config)),
        tuple(_queries(found, config, metrics)),
        (*found.missing, *(() if root is None else root.missing)),
        found.open,
    )


def _since(found: Incident) -> float | None:
    return None if found.main is None else found.main.since


def _headline(found: Incident, root: RootView | None, metrics: Sequence[MetricConfig]) -> str:
    """Return in one sentence what happened: by the root, else by the first finding."""
    if root is not None and root.causes:
        return root.causes[0].summary
    published = [each.summary for each in found.facts.said if each.root and each.summary]
    told = [each.summary for each in found.facts.findings if each.summary]
    found_by = [
        f"{each.node} differs in {metric_title(each.metric, metrics)}"
        for each in found.facts.findings
    ]
    said = [each.summary for each in found.facts.said]
    return next(iter((*published, *told, *found_by, *said)), _NOTHING)


def _steps(found: Incident, root: RootView | None) -> list[str]:
    """Return what to do, the first first."""
    steps = []
    for cause in () if root is None else root.causes:
        order, _, _ = cause.summary.partition(":")
        # A suspicion is as sure as its finding, which comes next.
        sure = "" if cause.confidence == AS_ITS_FINDING else f" ({cause.confidence})"
        steps.append(f"{order}{sure}.")
    main = found.main
    meaning = None if main is None else meaning_named(main.family)
    if meaning is not None and main is not None:
        steps.append(f"Look first at: {meaning.first_check}")
        if not steps[:-1] and main.method != EVIDENCE:
            steps.append(
                f"If the job has slowed or stopped, take {main.node} out and restart the job from "
                "its last checkpoint."
            )
    steps += [f"Run before a restart: {text}" for text in (() if root is None else root.checks)]
    if main is not None and not steps:
        steps.append(f"Compare {main.node} with its peers below, metric by metric.")
    return steps


def _state(found: Incident, now: float) -> tuple[str, str]:
    until = found.facts.seen
    if not until:
        return "nothing is known to stand", "good" if not found.missing else "warn"
    last = max(until)
    # Findings are published every cycle; what was not for two minutes is over.
    if now - last < 120:
        return "it stands", "bad"
    return f"over: last seen {date(last)}", ""


def _facts(found: Incident, metrics: Sequence[MetricConfig]) -> list[tuple[str, str]]:
    facts = [("training job", found.address.job_id)]
    if found.facts.nodes:
        facts[0] = ("training job", f"{found.address.job_id}, {found.facts.nodes} nodes")
    for each in found.facts.findings[:_MOST_SAID]:
        gpu = f", GPU {each.gpu}" if each.gpu else ""
        facts.append(
            (
                "finding",
                f"{each.node}{gpu}: {metric_title(each.metric, metrics)} ({each.severity}, method "
                f"{each.method}) since {date(each.since)}",
            )
        )
    main = found.main
    meaning = None if main is None else meaning_named(main.family)
    if meaning is not None:
        facts.append(("likely meaning", meaning.text))
    if found.facts.slowest is not None and found.facts.slowest < 1:
        facts.append(
            ("cost", f"the job fell to {100 * found.facts.slowest:.0f} % of its usual step rate")
        )
    said = [each for each in found.facts.said if not each.root and each.summary]
    facts += [("the job itself says", each.summary) for each in said[:_MOST_SAID]]
    return facts


def _multiples(found: Incident) -> tuple[tuple[Multiple, ...], tuple[Multiple, ...]]:
    """Return the pictures of metrics that deviate, in the order in which they began, and others."""
    since = found.deviating
    affected = sorted(
        (curve for curve in found.curves if curve.metric in since),
        key=lambda curve: since[curve.metric],
    )
    others = [curve for curve in found.curves if curve.metric not in since]
    return (
        tuple(_multiple(curve, since[curve.metric]) for curve in affected),
        tuple(_multiple(curve, None) for curve in others),
    )


def _multiple(curve: Curve, since: float | None) -> Multiple:
    drawn = deviation_svg(curve, since, flagged=since is not None)
    when = "" if since is None else date(since)
    return Multiple(curve.title, when, Markup(drawn))  # noqa: S704 - escaped there


def _heat_note(found: Incident) -> str:
    if found.heat is None:
        return ""
    hot = ", ".join(found.heat.hot[:4])
    who = f"Far from the others: {hot}." if hot else "No node is far from the others."
    rest = f" {found.heat.left_out} nodes that differ less are left out." * (
        found.heat.left_out > 0
    )
    return (
        f"{found.heat.title} of every node: each shade of red is one spread of the nodes "
        f"({found.heat.spread}) more away from their median. {who}{rest}"
    )


def _queries(
    found: Incident, config: DetectorConfig, compared: Sequence[MetricConfig]
) -> list[Query]:
    """Return the PromQL of everything that is shown."""
    job_id, node, gpu = found.address.job_id, found.node, found.gpu
    metrics = {each.name: each for each in compared}
    seconds = found.end - found.start
    texts: list[tuple[str, str]] = []
    for curve in found.curves:
        if (metric := metrics.get(curve.metric)) is not None:
            texts += _of_curve(metric, job_id, node, gpu, config)
    if found.heat is not None and (metric := _hottest(found, metrics)) is not None:
        texts.append(("Heat map", queries.of_all(metric, job_id, gpu, config)))
    if node:
        texts.append(("Deviations", queries.deviations(job_id, node, seconds)))
    names = {"since": "Findings", "roots": "Root", "alerts": "Alerts", "responded": "Responses"}
    asked = queries.facts(job_id, seconds)
    texts += [(title, asked[name]) for name, title in names.items()]
    return [Query(title, text, prometheus_graph(text, found, config)) for title, text in texts]


def _of_curve(
    metric: MetricConfig, job_id: str, node: str, gpu: str, config: DetectorConfig
) -> Sequence[tuple[str, str]]:
    title = metric.shown_title
    return (
        (f"{title}, {node}", queries.of_node(metric, job_id, node, gpu, config)),
        (f"{title}, peers", queries.of_peers(metric, job_id, node, gpu, config, 0.5)),
    )


def _hottest(found: Incident, metrics: Mapping[str, MetricConfig]) -> MetricConfig | None:
    title = "" if found.heat is None else found.heat.title
    return next((each for each in metrics.values() if each.shown_title == title), None)
