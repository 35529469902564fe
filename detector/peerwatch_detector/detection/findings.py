"""From streaks to findings: who is named, by which metric, and for how long it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning"]

# The metric name under which a node that vanished is named.
ABSENT = "absent"

# A stronger sign is waited for once its streak has come this share of its way.
_WORTH_WAITING = 0.25
# What began this long before another node's finding is not that finding's symptom.
_ONSET_SLACK = 60.0
# Nor is what begins this long after it: by then it is news.
_SYMPTOMS_WITHIN = 600.0
# Two nodes that fail together begin within so many seconds of each other, and neither deviates
# by less than this share of the other.
_TWIN_SECONDS, _TWIN_SHARE = 45.0, 0.5


@dataclass(frozen=True, slots=True)
class Streak:
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
        Unix time of the first window of the streak.
    seconds, threshold
        Its length, and the length that makes it a finding.
    score
        The score in the last window in which the node was a candidate.
    quiet
        Seconds since the node was last a candidate.
    severity
        How a finding of this streak is routed.
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
    def ripe(self) -> bool:
        """Whether the streak lasts long enough."""
        return self.seconds >= self.threshold


@dataclass(frozen=True, slots=True)
class Finding:
    """A node judged faulty, until it is quiet for long enough.

    Parameters
    ----------
    job_id, node, gpu, metric, method, severity
        The labels of ``peerwatch_finding``.
    rank
        Place of the metric in the priority.
    since
        Unix time from which the node deviates.
    raised
        Unix time at which the streak was long enough.
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
    job_id: str, now: float, standing: Mapping[str, Finding], streaks: list[Streak]
) -> list[Finding]:
    """Name the nodes whose streaks are ripe, in metric priority.

    A node is named once, by the first metric that can. While a metric of higher priority names
    another node, or is well on its way to, what the lower ones show on this node began as that
    fault's symptom as likely as not (a stopped rank fills its neighbour's send queue), so it
    waits; unless it began clearly earlier.

    Parameters
    ----------
    job_id
        The training job.
    now
        Unix time of the judgement.
    standing
        Findings that stand, by node.
    streaks
        All present streaks of the job.

    Returns
    -------
    list[Finding]
        The new ones.
    """
    named = dict(standing)
    new = []
    for streak in sorted(streaks, key=lambda s: (s.rank, -s.seconds, s.node)):
        if streak.node in named or not streak.ripe:
            continue
        if _is_symptom(streak, named.values()) or _must_wait(streak, streaks):
            continue
        finding = _finding(job_id, now, streak)
        named[streak.node] = finding
        new.append(finding)
    return new


def raise_strongest(
    job_id: str,
    now: float,
    standing: Mapping[str, Finding],
    recent: Iterable[Finding],
    streaks: list[Streak],
    *,
    symptoms: bool,
) -> list[Finding]:
    """Name the nodes whose streaks are ripe, the strongest deviation first.

    Used where the job's progress says when to judge: then the node that holds the others up
    deviates most. What begins on another node within ten minutes of a finding is its symptom,
    unless both began together and are of one size. A node that vanished is always named.

    Parameters
    ----------
    job_id, now, standing, streaks
        As for ``raise_findings``.
    recent
        Findings of the last minutes, those that fell included.
    symptoms
        Whether symptoms are held back.
    """
    named, earlier, new = dict(standing), [*recent], []
    for streak in sorted(streaks, key=lambda s: (s.metric != ABSENT, -s.score, s.rank, s.node)):
        if streak.node in named or not streak.ripe:
            continue
        if symptoms and streak.metric != ABSENT and _follows(streak, earlier):
            continue
        finding = _finding(job_id, now, streak)
        named[streak.node] = finding
        earlier.append(finding)
        new.append(finding)
    return new


def _follows(streak: Streak, earlier: Iterable[Finding]) -> bool:
    """Whether a streak is a symptom of another node's finding."""
    for finding in earlier:
        apart = abs(streak.since - finding.since)
        if finding.node == streak.node or apart > _SYMPTOMS_WITHIN:
            continue
        if finding.metric == ABSENT or apart > _TWIN_SECONDS:
            return True
        if streak.score < _TWIN_SHARE * finding.score:
            return True
    return False


def _finding(job_id: str, now: float, streak: Streak) -> Finding:
    severity: Severity = streak.severity
    if severity_of(streak.method) == "warning":
        severity = "warning"
    return Finding(
        job_id,
        streak.node,
        streak.gpu,
        streak.metric,
        streak.method,
        severity,
        streak.rank,
        streak.since,
        now,
        streak.score,
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
        be judged now are left out, and their findings stand.
    clear_seconds
        Quiet time after which a finding falls.
    """
    return {
        node: finding for node, finding in standing.items() if quiet.get(node, 0.0) < clear_seconds
    }


def fault_scores(
    nodes: tuple[str, ...], standing: Mapping[str, Finding], streaks: list[Streak]
) -> dict[str, float]:
    """Return the evidence against every node: 1 = a finding stands, else how far a streak is."""
    scores = dict.fromkeys(nodes, 0.0)
    for streak in streaks:
        progress = 0.99 * min(1.0, streak.seconds / streak.threshold)
        scores[streak.node] = max(scores.get(streak.node, 0.0), progress)
    return scores | dict.fromkeys(standing, 1.0)


def _is_symptom(streak: Streak, named: Iterable[Finding]) -> bool:
    return any(
        finding.rank < streak.rank
        and finding.node != streak.node
        and -_ONSET_SLACK < streak.since - finding.since < _SYMPTOMS_WITHIN
        for finding in named
    )


def _must_wait(streak: Streak, streaks: list[Streak]) -> bool:
    return any(
        other.rank < streak.rank
        and other.node != streak.node
        and other.seconds >= _WORTH_WAITING * other.threshold
        and other.quiet == 0
        and streak.since > other.since - _ONSET_SLACK
        for other in streaks
    )
