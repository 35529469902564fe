"""From deviations to findings: who is flagged, by which metric, and for how long it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.detection.time_grid import elapsed

Severity = Literal["critical", "warning"]

# The metric name under which a node that vanished is flagged.
ABSENT = "absent"
# The method of findings that the job's own evidence names, not a comparison of nodes.
EVIDENCE = "evidence"

# A metric of higher priority is waited for once its deviation has come this share of its way: long
# enough that noise has not.
_WORTH_WAITING = 0.25
# Lengths are in samples of a second at most. What began this long before another node's finding is
# not that finding's symptom: onsets are known to about the mean that is compared, four times here.
_ONSET_SLACK = 60
# Nor is what begins this long after it: collectives time out after ten minutes, by then it is news.
_SYMPTOMS_WITHIN = 600
# Two nodes that fail together begin within so many samples of each other, three means, and neither
# deviates by less than this share of the other.
_TWIN_SAMPLES, _TWIN_SHARE = 45, 0.5


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
    effect_size
        How far it deviates in minimum effect sizes; None for methods that do not measure it.
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
    effect_size: float | None = None

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


def raise_findings(
    job_id: str,
    now: float,
    standing: Mapping[str, Finding],
    deviations: list[Deviation],
    resolution_seconds: float = 1.0,
) -> list[Finding]:
    """Flag the nodes whose deviations are sustained, in metric priority.

    A node is flagged once, by the first metric that can. While a metric of higher priority flags
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
    resolution_seconds
        Of the samples.

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
        if _is_symptom(deviation, flagged.values(), resolution_seconds):
            continue
        if _must_wait(deviation, deviations, resolution_seconds):
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
    resolution_seconds: float = 1.0,
    *,
    symptoms: bool,
) -> list[Finding]:
    """Flag the nodes whose deviations are sustained, the strongest deviation first.

    Used where the job's progress says when to evaluate: then the node that holds the others up
    deviates most. What begins on another node within ten minutes of a finding is its symptom,
    unless both began together and are of one size. A node that vanished is always flagged.

    Parameters
    ----------
    job_id, now, standing, deviations, resolution_seconds
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
        if (
            symptoms
            and deviation.metric != ABSENT
            and _follows(deviation, earlier, resolution_seconds)
        ):
            continue
        finding = _finding(job_id, now, deviation)
        flagged[deviation.node] = finding
        earlier.append(finding)
        new.append(finding)
    return new


def _follows(deviation: Deviation, earlier: Iterable[Finding], resolution: float) -> bool:
    """Whether a deviation is a symptom of another node's finding."""
    for finding in earlier:
        apart = abs(elapsed(finding.since, deviation.since))
        if finding.node == deviation.node or apart > _SYMPTOMS_WITHIN * resolution:
            continue
        known = finding.metric == ABSENT or finding.method == EVIDENCE
        if known or apart > _TWIN_SAMPLES * resolution:
            return True
        if deviation.score < _TWIN_SHARE * finding.score:
            return True
    return False


def _finding(job_id: str, now: float, deviation: Deviation) -> Finding:
    return Finding(
        job_id,
        deviation.node,
        deviation.gpu,
        deviation.metric,
        deviation.method,
        deviation.severity,
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


def _is_symptom(deviation: Deviation, flagged: Iterable[Finding], resolution: float) -> bool:
    slack, within = _ONSET_SLACK * resolution, _SYMPTOMS_WITHIN * resolution
    return any(
        finding.rank < deviation.rank
        and finding.node != deviation.node
        and -slack < elapsed(finding.since, deviation.since) < within
        for finding in flagged
    )


def _must_wait(deviation: Deviation, deviations: list[Deviation], resolution: float) -> bool:
    return any(
        other.rank < deviation.rank
        and other.node != deviation.node
        and other.seconds >= _WORTH_WAITING * other.threshold
        and other.quiet == 0
        and elapsed(deviation.since, other.since) < _ONSET_SLACK * resolution
        for other in deviations
    )
