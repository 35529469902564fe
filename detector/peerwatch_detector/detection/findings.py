"""From deviations to findings: who is named, by which metric, and for how long it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning"]

# The metric name under which a node that vanished is named.
ABSENT = "absent"

# A stronger sign is waited for once its deviation has come this share of its way.
_WORTH_WAITING = 0.25
# What began this long before another node's finding is not that finding's symptom.
_ONSET_SLACK = 60.0
# Nor is what begins this long after it: by then it is news.
_SYMPTOMS_WITHIN = 600.0
# Two nodes that fail together begin within so many seconds of each other, and neither deviates
# by less than this share of the other.
_TWIN_SECONDS, _TWIN_SHARE = 45.0, 0.5


@dataclass(frozen=True, slots=True)
class Deviation:
    """How a candidate stands in one metric at the end of a cycle.

    Parameters
    ----------
    node, gpu
        Whom it is about; ``gpu`` is empty unless one GPU carries the deviation.
    metric, method
        What says so.
    rank
        Place in the metric priority, 0 first.
    since
        Unix time of the first window of the deviation.
    seconds, threshold
        Its length, and the length that makes it a finding.
    score
        The score in the last window in which the node was a candidate.
    quiet
        Seconds since the node was last a candidate.
    severity
        How a finding of this deviation is routed.
    high
        Whether the node is above its peers; None for methods that do not tell.
    """

    node: str
    gpu: str
    metric: str
    method: str
    rank: int
    since: float
    seconds: float
    threshold: float
    score: float
    quiet: float
    severity: Severity = "critical"
    high: bool | None = None

    @property
    def sustained(self) -> bool:
        """Whether the deviation lasts long enough."""
        return self.seconds >= self.threshold


@dataclass(frozen=True, slots=True)
class Finding:
    """A node evaluated faulty, until it is quiet for long enough.

    Parameters
    ----------
    job_id, node, gpu, metric, method, severity
        The labels of ``peerwatch_finding``.
    rank
        Place of the metric in the priority.
    since
        Unix time from which the node deviates.
    raised
        Unix time at which the deviation was long enough.
    score
        Score when it was raised.
    """

    job_id: str
    node: str
    gpu: str
    metric: str
    method: str
    severity: Severity
    rank: int
    since: float
    raised: float
    score: float

    @property
    def key(self) -> tuple[str, str, str, str, str, str]:
        """The label values of ``peerwatch_finding``."""
        return (self.job_id, self.node, self.gpu, self.metric, self.method, self.severity)


def severity_of(method: str) -> Severity:
    """Return how a finding of a method is routed: the plain Z-score alone only warns."""
    return "warning" if method == "zscore" else "critical"


def raise_findings(
    job_id: str, now: float, standing: Mapping[str, Finding], deviations: list[Deviation]
) -> list[Finding]:
    """Name the nodes whose deviations are ripe, in metric priority.

    A node is named once, by the first metric that can. While a metric of higher priority names
    another node, or is well on its way to, what the lower ones show on this node began as that
    fault's symptom as likely as not (a stopped rank fills its neighbour's send queue), so it
    waits; unless it began clearly earlier.

    Parameters
    ----------
    job_id
        The training job.
    now
        Unix time of the detection.
    standing
        Findings that stand, by node.
    deviations
        All present deviations of the job.

    Returns
    -------
    list[Finding]
        The new ones.
    """
    flagged = dict(standing)
    new = []
    for deviation in sorted(deviations, key=lambda s: (s.rank, -s.seconds, s.node)):
        if deviation.node in flagged or not deviation.sustained:
            continue
        if _is_symptom(deviation, flagged.values()) or _must_wait(deviation, deviations):
            continue
        finding = _finding(job_id, now, deviation)
        flagged[deviation.node] = finding
        new.append(finding)
    return new


def raise_strongest(
    job_id: str,
    now: float,
    standing: Mapping[str, Finding],
    recent: Iterable[Finding],
    deviations: list[Deviation],
    *,
    symptoms: bool,
) -> list[Finding]:
    """Name the nodes whose deviations are ripe, the strongest deviation first.

    Used where the job's progress says when to evaluate: then the node that holds the others up
    deviates most. What begins on another node within ten minutes of a finding is its symptom,
    unless both began together and are of one size. A node that vanished is always named.

    Parameters
    ----------
    job_id, now, standing, deviations
        As for ``raise_findings``.
    recent
        Findings of the last minutes, those that fell included.
    symptoms
        Whether symptoms are held back.
    """
    flagged, earlier, new = dict(standing), [*recent], []
    for deviation in sorted(
        deviations, key=lambda s: (s.metric != ABSENT, -s.score, s.rank, s.node)
    ):
        if deviation.node in flagged or not deviation.sustained:
            continue
        if symptoms and deviation.metric != ABSENT and _follows(deviation, earlier):
            continue
        finding = _finding(job_id, now, deviation)
        flagged[deviation.node] = finding
        earlier.append(finding)
        new.append(finding)
    return new


def _follows(deviation: Deviation, earlier: Iterable[Finding]) -> bool:
    """Whether a deviation is a symptom of another node's finding."""
    for finding in earlier:
        apart = abs(deviation.since - finding.since)
        if finding.node == deviation.node or apart > _SYMPTOMS_WITHIN:
            continue
        if finding.metric == ABSENT or apart > _TWIN_SECONDS:
            return True
        if deviation.score < _TWIN_SHARE * finding.score:
            return True
    return False


def _finding(job_id: str, now: float, deviation: Deviation) -> Finding:
    severity: Severity = deviation.severity
    if severity_of(deviation.method) == "warning":
        severity = "warning"
    return Finding(
        job_id,
        deviation.node,
        deviation.gpu,
        deviation.metric,
        deviation.method,
        severity,
        deviation.rank,
        deviation.since,
        now,
        deviation.score,
    )


def still_standing(
    standing: Mapping[str, Finding], quiet: Mapping[str, float], clear_seconds: float
) -> dict[str, Finding]:
    """Return the findings that go on.

    Parameters
    ----------
    standing
        Findings by node.
    quiet
        Per node, seconds (of data) in which no metric had it as a candidate; nodes that cannot
        be evaluated now are left out, and their findings stand.
    clear_seconds
        Quiet time after which a finding falls.
    """
    return {
        node: finding for node, finding in standing.items() if quiet.get(node, 0.0) < clear_seconds
    }


def fault_scores(
    nodes: tuple[str, ...], standing: Mapping[str, Finding], deviations: list[Deviation]
) -> dict[str, float]:
    """Return the evidence against every node: 1 = a finding stands, else how far a deviation is."""
    scores = dict.fromkeys(nodes, 0.0)
    for deviation in deviations:
        progress = 0.99 * min(1.0, deviation.seconds / deviation.threshold)
        scores[deviation.node] = max(scores.get(deviation.node, 0.0), progress)
    return scores | dict.fromkeys(standing, 1.0)


def _is_symptom(deviation: Deviation, flagged: Iterable[Finding]) -> bool:
    return any(
        finding.rank < deviation.rank
        and finding.node != deviation.node
        and -_ONSET_SLACK < deviation.since - finding.since < _SYMPTOMS_WITHIN
        for finding in flagged
    )


def _must_wait(deviation: Deviation, deviations: list[Deviation]) -> bool:
    return any(
        other.rank < deviation.rank
        and other.node != deviation.node
        and other.seconds >= _WORTH_WAITING * other.threshold
        and other.quiet == 0
        and deviation.since > other.since - _ONSET_SLACK
        for other in deviations
    )
