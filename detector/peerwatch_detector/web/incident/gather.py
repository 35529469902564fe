"""Gathers an incident, of a job that still runs from what is held of it, of others from series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from peerwatch_common.metrics.label_length import shortened
from peerwatch_detector.config import MetricConfig
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.diagnosis.collectives.series import QUERIES as COLLECTIVE_QUERIES
from peerwatch_detector.diagnosis.root.live.root import LiveRoot, ask_root
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.history_reader import History
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.reading.job_reader import JobReader
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web.deviation import Curve
from peerwatch_detector.web.incident import queries
from peerwatch_detector.web.incident.address import AFTER_SECONDS, BEFORE_SECONDS, Address
from peerwatch_detector.web.incident.curves import (
    Stretch,
    coarse,
    held_curves,
    on_times,
    past_curves,
)
from peerwatch_detector.web.incident.differences import difference
from peerwatch_detector.web.incident.heat import MOST_ROWS, HeatMap, heat_map
from peerwatch_detector.web.incident.record import Facts, PastFinding, facts_of, rows_of
from peerwatch_detector.web.incident.waits import WaitView, waits_of

# Ranks that stand in the same collective for so long wait for one another. A scrape interval:
# within less, the samples may be the same ones.
_UNCHANGED_SECONDS = 15.0
# A running job's heat map is made of so many of its nodes at most: a person waits for it. Chosen:
# eight times its rows.
_HEAT_NODES = 256


@dataclass(frozen=True, slots=True)
class Incident:
    """Everything that is known of an incident.

    Parameters
    ----------
    address
        Which.
    start, end
        Of the stretch that is shown, Unix time.
    open
        Whether the stretch still grows.
    facts
        What stood, and what was done.
    root
        What the job failed of, with its evidence; None if nobody could be asked.
    node, gpu
        Whom the pictures are about; empty if nobody is named.
    nodes
        All that are named.
    curves, deviating
        Of the node: every metric, and since when it deviates in some.
    heat
        All nodes in the metric of the finding; None without samples.
    waits
        Who waited for whom.
    missing
        What could not be read, and why.
    """

    address: Address
    start: float
    end: float
    open: bool
    facts: Facts
    root: LiveRoot | None
    node: str
    gpu: str
    nodes: tuple[str, ...]
    curves: tuple[Curve, ...]
    deviating: Mapping[str, float]
    heat: HeatMap | None
    waits: tuple[WaitView, ...]
    missing: tuple[str, ...]

    @property
    def main(self) -> PastFinding | None:
        """The finding that its pictures are about."""
        of_node = [each for each in self.facts.findings if each.node == self.node]
        return next(iter(of_node), None)


def gather(detector: Detector, history: History, address: Address, node: str) -> Incident:
    """Read an incident.

    Parameters
    ----------
    detector
        The running one: of its own jobs it holds the samples.
    history
        Where everything else is read.
    address
        Which incident.
    node
        Whom to draw; empty = whom the evidence names first.

    Raises
    ------
    ReadError
        If the server does not answer at all.
    """
    now = detector.clock()
    latest = min(now, address.begun + AFTER_SECONDS)
    seconds = max(latest - address.begun + BEFORE_SECONDS, 60.0)
    answers = history.at(queries.facts(address.job_id, seconds), latest)
    facts = facts_of(answers)
    is_open = now < address.begun + AFTER_SECONDS
    last = facts.last
    # Of what is over nothing is shown that came long after.
    end = latest if is_open or last is None else min(latest, max(last, address.begun) + 120.0)
    missing = list(facts.missing)
    moment = end if is_open or last is None else last
    detection = _detection(detector, address.job_id) if is_open else None
    facts = _with_own(facts, detection)
    root = _root(detector, history, address.job_id, moment, missing, is_open=is_open)
    nodes = _named(facts, root)
    shown = node if node in nodes else next(iter(nodes), "")
    main = next((each for each in facts.findings if each.node == shown), None)
    stretch = Stretch(
        address.job_id,
        shown,
        main.gpu if main is not None else "",
        # On whole tens, so that what is asked twice within seconds is the same.
        math.floor((address.begun - BEFORE_SECONDS) / 10) * 10.0,
        math.floor(end / 10) * 10.0,
    )
    compared = list(detector.metrics)
    curves, heat, deviating = _pictures(
        detector, history, detection, compared, main, stretch, missing
    )
    # What the node was flagged by deviates, also where nobody published for how long.
    flagged = {each.metric: each.since for each in facts.findings if each.node == shown}
    drawn = {curve.metric: curve for curve in curves}
    # Values that read like the peers' show nobody a difference.
    alike = {
        name for name, at in deviating.items() if name in drawn and not difference(drawn[name], at)
    }
    deviating = {name: at for name, at in deviating.items() if name not in alike}
    deviating = {**deviating, **{name: at for name, at in flagged.items() if name in drawn}}
    return Incident(
        address,
        stretch.start,
        stretch.end,
        is_open,
        facts,
        root,
        shown,
        stretch.gpu,
        nodes,
        tuple(curves),
        deviating,
        heat,
        tuple(_waits(history, address.job_id, moment)),
        tuple(dict.fromkeys(missing)),
    )


def _detection(detector: Detector, job_id: str) -> Detection | None:
    found = detector.snapshot.detections
    return next((each for each in found if each.job.job_id == job_id), None)


def _with_own(facts: Facts, detection: Detection | None) -> Facts:
    """Return the facts with findings that have not been scraped yet."""
    if detection is None:
        return facts
    known = {(each.node, each.metric, each.method) for each in facts.findings}
    own = tuple(
        PastFinding(
            each.node,
            each.gpu,
            each.metric,
            each.method,
            each.severity,
            each.since,
            detection.time,
            why.sentence if (why := detection.explanations.get(each)) else "",
            "",
        )
        for each in detection.findings
        if (each.node, each.metric, each.method) not in known
    )
    nodes = facts.nodes or len(detection.job.nodes)
    found = sorted((*facts.findings, *own), key=lambda each: (each.since, each.node))
    return replace(facts, findings=tuple(found), nodes=nodes)


def _root(
    detector: Detector,
    history: History,
    job_id: str,
    moment: float,
    missing: list[str],
    *,
    is_open: bool,
) -> LiveRoot | None:
    """Return what the job failed of: as the detector knows it now, else as it was at a moment."""
    known = detector.snapshot.diagnoses
    if is_open and known is not None and job_id in known.roots:
        return known.roots[job_id]

    def answer(query: str) -> Sequence[Series]:
        found = history.at({"": query}, moment)[""]
        if isinstance(found, ReadError):
            raise found
        return found

    try:
        return ask_root(answer, job_id, moment, at_now=False)
    except ReadError as error:
        missing.append(f"What the job failed of: {error}")
        return None


def _named(facts: Facts, root: LiveRoot | None) -> tuple[str, ...]:
    """Return the nodes that are named, whom the root names first."""
    causes = () if root is None else root.root.causes
    decided = [node for cause in causes if cause.confidence != "undecided" for node in cause.nodes]
    said = [each.node for each in facts.said if each.root]
    found = [each.node for each in facts.findings]
    others = [each.node for each in facts.said]
    return tuple(dict.fromkeys(node for node in (*decided, *said, *found, *others) if node))[:8]


def _pictures(
    detector: Detector,
    history: History,
    detection: Detection | None,
    metrics: Sequence[MetricConfig],
    main: PastFinding | None,
    asked: Stretch,
    missing: list[str],
) -> tuple[list[Curve], HeatMap | None, Mapping[str, float]]:
    """Return the curves of the node, the heat map, and since when it deviates by metric."""
    by_metric = {metric.name: metric for metric in metrics}
    hottest = by_metric.get(main.metric) if main is not None else None
    if hottest is None and metrics:
        hottest = metrics[0]
    held = _held(detector, detection, asked)
    if held is not None and detection is not None:
        curves = held_curves(held, detection.job.nodes, metrics, asked) if asked.node else []
        heat = _held_heat(held, detection, hottest, asked)
        own = {
            each.metric: each.since
            for each in detection.deviations
            if each.node == asked.node and each.seconds >= queries.LEAST_DEVIATION_SECONDS
        }
        return curves, heat, {**own, **_since(history, asked)}
    if not asked.node:
        return [], None, {}
    try:
        curves, unread = past_curves(history, metrics, asked, detector.config)
        heat = _past_heat(history, hottest, asked, detector)
        missing += unread
        return curves, heat, _since(history, asked)
    except ReadError as error:
        missing.append(f"Metrics: {error}")
        return [], None, {}


def _held(detector: Detector, detection: Detection | None, asked: Stretch) -> JobReader | None:
    """Return what the detector holds of a job, if it reaches back to before the incident."""
    memory = detector.memories.get(asked.job_id)
    if memory is None or detection is None:
        return None
    if asked.node and asked.node not in detection.job.nodes:
        return None
    names = [metric.name for metric in detector.metrics]
    kept = max((memory.reader.kept_seconds(name) for name in names), default=0.0)
    return memory.reader if kept >= min(asked.end - asked.start, 600.0) / 2 else None


def _since(history: History, asked: Stretch) -> dict[str, float]:
    query = queries.deviations(asked.job_id, asked.node, asked.end - asked.start)
    try:
        answers = history.at({"since": query}, asked.end)
    except ReadError:
        return {}
    return {labels.get("metric", ""): value for labels, value in rows_of(answers, "since")}


def _held_heat(
    held: JobReader, detection: Detection, metric: MetricConfig | None, asked: Stretch
) -> HeatMap | None:
    if metric is None:
        return None
    start = max(asked.start, asked.end - held.kept_seconds(metric.name))
    nodes = _for_heat(detection, asked.node)
    frame = held.frame(metric.name, nodes, start, asked.end) if start < asked.end else None
    if frame is None:
        return None
    times, values = coarse(frame, asked)
    least = metric.min_effect_size
    found = heat_map(metric.shown_title, metric.unit, nodes, times.tolist(), values, least)
    if found is None:
        return None
    return replace(found, left_out=len(detection.job.nodes) - len(found.nodes))


def _for_heat(detection: Detection, node: str) -> tuple[str, ...]:
    """Return the nodes of a heat map: of a large job those with most evidence, others evenly."""
    nodes = detection.job.nodes
    if len(nodes) <= _HEAT_NODES:
        return nodes
    scores = detection.fault_scores
    most = sorted(nodes, key=lambda each: (each != node, -scores.get(each, 0.0)))[:MOST_ROWS]
    every = -(-len(nodes) // (_HEAT_NODES - MOST_ROWS))
    return tuple(dict.fromkeys((*most, *nodes[::every])))


def _past_heat(
    history: History, metric: MetricConfig | None, asked: Stretch, detector: Detector
) -> HeatMap | None:
    if metric is None:
        return None
    query = queries.of_all(metric, asked.job_id, asked.gpu, detector.config)
    answer = history.over({"all": query}, asked.start, asked.end, asked.step)["all"]
    if isinstance(answer, ReadError):
        return None
    times = np.arange(asked.start, asked.end + 1e-3, asked.step)
    rows = sorted(answer, key=lambda series: series.labels.get("node", ""))
    values = np.array([on_times(series, times) for series in rows]).reshape(len(rows), len(times))
    nodes = [shortened(series.labels.get("node", "")) for series in rows]
    least = metric.min_effect_size
    return heat_map(metric.shown_title, metric.unit, nodes, times.tolist(), values, least)


def _waits(history: History, job_id: str, moment: float) -> list[WaitView]:
    asked = {name: promql.job_query(query, job_id) for name, query in COLLECTIVE_QUERIES.items()}
    try:
        before = history.at(asked, moment - _UNCHANGED_SECONDS)
        answers = history.at(asked, moment)
    except ReadError:
        return []
    return waits_of(_samples(before), _samples(answers), moment, _UNCHANGED_SECONDS)


def _samples(answers: Answers) -> dict[str, Sequence[Series]]:
    return {name: found for name, found in answers.items() if not isinstance(found, ReadError)}
