"""What stands of a job between cycles, whatever the method: findings, why, who was absent when."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from peerwatch_detector.detection.explanation.explain import Explanation
from peerwatch_detector.detection.findings import Finding

# Findings are remembered for so many samples, of a second at most, to tell their symptoms: longer
# than symptoms follow a fault, shorter than a day in which two faults may be two.
_REMEMBERED = 3600


@dataclass(slots=True)
class JobState:
    """What stands of one job.

    Parameters
    ----------
    standing
        Findings of the method by node.
    evidence
        Findings that the job's own evidence names, by node; the method neither raises nor clears
        them.
    recent
        Those of the last hour, whether they stand or fell.
    explanations
        What the metrics say about the findings that stand.
    last_absent
        By node, Unix time at which it was absent last.
    lived_until
        Unix time up to which the job was evaluated before the clock was set back; 0 if it was not.
    """

    standing: dict[str, Finding] = field(default_factory=dict)
    evidence: dict[str, Finding] = field(default_factory=dict)
    recent: list[Finding] = field(default_factory=list)
    explanations: dict[Finding, Explanation] = field(default_factory=dict)
    last_absent: dict[str, float] = field(default_factory=dict)
    lived_until: float = 0.0

    @property
    def flagged(self) -> dict[str, Finding]:
        """Return by node what stands, whoever says so; evidence outranks statistics."""
        return self.standing | self.evidence

    def add(self, findings: Collection[Finding], now: float, resolution_seconds: float) -> None:
        """Let new findings stand, and forget old ones that fell."""
        self.standing |= {finding.node: finding for finding in findings}
        remembered = _REMEMBERED * resolution_seconds
        kept = [finding for finding in self.recent if now - finding.raised <= remembered]
        self.recent = [*kept, *findings]
