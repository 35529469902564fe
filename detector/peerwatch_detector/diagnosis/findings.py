"""Verdicts on a node are findings: one for each node, evidence before statistics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from peerwatch_detector.detection.explanation.explain import (
    MOST_CHARACTERS,
    Confidence,
    Explanation,
    JobProgress,
)
from peerwatch_detector.detection.findings import EVIDENCE, Finding, Severity
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.diagnosis.meanings import meaning_of_class
from peerwatch_detector.diagnosis.verdict import CLASS_NAMES, SYMPTOMS, Verdict

# Evidence that is not repeated for so long has ended: a verdict may miss a reading or two, as
# diagnosers compare snapshots that are some ten seconds apart.
HOLD_SECONDS = 30.0
# What stood before a restart is kept this much longer: diagnosers begin with an empty memory, and
# name a hang within 60 s of the stop (docs/diagnosis.md).
RESTORED_SECONDS = 60.0

# A root comes late: it must not take the place of a finding that stands, and page again.
_PLACES = {name: place for place, name in enumerate((*CLASS_NAMES, *SYMPTOMS))}
# Beside the confidence of statistics, which ends at 0.952 (``confidence_of``). Chosen: direct
# evidence is above it where it is sure, and below where something could still excuse the node.
_CONFIDENCE = {
    "sure": Confidence(0.99, "almost certainly"),
    "likely": Confidence(0.85, "very likely"),
}


def order(verdict: Verdict) -> tuple[int, float, str, int]:
    """Return the place of a verdict: the more direct class first, then the earlier fault."""
    rank = -1 if verdict.rank is None else verdict.rank
    return _PLACES[verdict.class_name], verdict.start_time, verdict.node, rank


@dataclass(slots=True)
class EvidenceFindings:
    """The findings that the verdicts about one job make, by node.

    Parameters
    ----------
    job_id
        The job.
    standing
        Findings by node; a node has at most one, by the most direct class.
    explanations
        Of each.
    """

    job_id: str
    standing: dict[str, Finding] = field(default_factory=dict)
    explanations: dict[Finding, Explanation] = field(default_factory=dict)
    _held_until: dict[str, float] = field(default_factory=dict)

    def restore(self, findings: Iterable[Finding], now: float) -> None:
        """Let findings stand that were published before this process began.

        Those that the verdicts have named again already keep their earlier beginning.
        """
        for old in findings:
            new = self.standing.get(old.node)
            if new is None:
                self.standing[old.node] = old
                self._held_until[old.node] = now + RESTORED_SECONDS
            elif new.metric == old.metric and old.since < new.since:
                why = self.explanations.pop(new)
                begun = replace(new, since=old.since)
                self.standing[old.node], self.explanations[begun] = begun, why

    def update(self, verdicts: Iterable[Verdict], now: float) -> list[Finding]:
        """Take in what stands now and return the findings that are new.

        Parameters
        ----------
        verdicts
            All that the diagnosers of the job say.
        now
            Unix time.
        """
        chosen: dict[str, tuple[Verdict, Severity]] = {}
        for verdict in sorted(verdicts, key=order):
            if (severity := verdict.severity) is not None:
                chosen.setdefault(verdict.node, (verdict, severity))
        taken = [self._take(verdict, severity, now) for verdict, severity in chosen.values()]
        new = [found for found in taken if found is not None]
        # A clock that was set back must not make them stand for longer.
        held = {
            node: min(until, now + RESTORED_SECONDS) for node, until in self._held_until.items()
        }
        self._held_until = held | dict.fromkeys(chosen, now + HOLD_SECONDS)
        for node in [node for node in self.standing if self._held_until.get(node, now) <= now]:
            self.explanations.pop(self.standing.pop(node), None)
            del self._held_until[node]
        return new

    def _take(self, verdict: Verdict, severity: Severity, now: float) -> Finding | None:
        """Let a verdict's finding stand; one of the same class that stands is not touched."""
        before = self.standing.get(verdict.node)
        if before is not None and before.metric == verdict.class_name:
            if before not in self.explanations:
                # Restored: its sentence is that of the first verdict after the restart.
                self.explanations[before] = explanation_of(verdict, now)
            return None
        if before is not None:
            self.explanations.pop(before, None)
        found = Finding(
            self.job_id,
            verdict.node,
            "",
            verdict.class_name,
            EVIDENCE,
            severity,
            0,
            verdict.start_time,
            now,
            0.0,
        )
        self.standing[verdict.node] = found
        self.explanations[found] = explanation_of(verdict, now)
        return found


def explanation_of(verdict: Verdict, now: float) -> Explanation:
    """Explain the finding that a verdict makes."""
    # What to do stands before it, in the diagnosis; the finding says what happened.
    sentence = verdict.summary.partition(": ")[2] if verdict.is_root else verdict.summary
    if len(sentence) > MOST_CHARACTERS:
        sentence = sentence[: MOST_CHARACTERS - 1] + "…"
    return Explanation(
        made=now,
        metrics=(),
        job=JobProgress("unknown"),
        confidence=_CONFIDENCE[verdict.confidence],
        meaning=meaning_of_class(verdict.class_name),
        before_restart=False,
        sentence=sentence,
    )


def with_evidence(detection: Detection, evidence: EvidenceFindings) -> Detection:
    """Return a detection with the findings of the job's own evidence in it.

    A node that both name has one finding and one explanation: the evidence, followed by the
    metrics in which the node deviates. What the method found stays with the method, and is shown
    once the evidence has ended.
    """
    if not evidence.standing:
        return detection
    found = evidence.standing
    statistics = [each for each in detection.findings if each.node not in found]
    explanations = {each: detection.explanations[each] for each in statistics}
    for finding in found.values():
        why = evidence.explanations.get(finding)
        measured = detection.explanations.get(finding)
        if why is not None and measured is not None:
            why = replace(why, metrics=measured.metrics, job=measured.job)
        if (shown := why or measured) is not None:
            explanations[finding] = shown
    return replace(
        detection,
        findings=(*found.values(), *statistics),
        fault_scores=detection.fault_scores | dict.fromkeys(found, 1.0),
        explanations=explanations,
    )
