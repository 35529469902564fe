"""What the jobs themselves say, and what they fail of: gathered to be published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from peerwatch_common.metrics.spec import Family
from peerwatch_detector.diagnosis.root.live.root import LiveRoot
from peerwatch_detector.diagnosis.verdict import Verdict
from peerwatch_detector.errors import ReadFailure
from peerwatch_detector.service.catalog import family
from peerwatch_detector.service.job_memory import JobMemory


@dataclass(frozen=True, slots=True)
class Diagnoses:
    """What the jobs themselves say.

    Parameters
    ----------
    verdicts
        That stand.
    last_success
        Unix time at which every diagnoser of a job last answered, by job.
    errors
        Failures so far, by reason.
    roots
        What jobs fail of, and everything that was observed about them; without those that nothing
        stands against.
    """

    verdicts: tuple[Verdict, ...] = ()
    last_success: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    roots: Mapping[str, LiveRoot] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Iterable[JobMemory], errors: Mapping[str, int]) -> Diagnoses:
        """Gather what is known of all jobs."""
        memories = tuple(jobs)
        asked = [memory.evidence for memory in memories]
        return cls(
            tuple(v for memory in memories for v in memory.evidence.published(memory.named)),
            {each.job_id: each.last_success for each in asked if each.last_success is not None},
            errors,
            {each.job_id: each.root for each in asked if each.root is not None},
        )


def diagnosis_families(diagnoses: Diagnoses | None) -> Iterator[Family]:
    """Yield the families of every job's diagnoses; None where jobs are not asked."""
    diagnosis = family("peerwatch_diagnosis")
    info = family("peerwatch_diagnosis_info")
    success = family("peerwatch_diagnosis_last_success_timestamp_seconds")
    errors = family("peerwatch_diagnosis_errors_total")
    unanswered = family("peerwatch_diagnosis_unanswered")
    known = diagnoses or Diagnoses()
    for verdict in known.verdicts:
        rank = "" if verdict.rank is None else str(verdict.rank)
        whom = (verdict.job_id, verdict.node, rank, verdict.class_name)
        diagnosis.add_metric((*whom, verdict.domain, verdict.confidence, verdict.action), 1)
        info.add_metric((*whom, "1" if verdict.is_root else "", verdict.summary), 1)
    for job_id, time in known.last_success.items():
        success.add_metric((job_id,), time)
    for job_id, root in known.roots.items():
        for query in root.unanswered:
            unanswered.add_metric((job_id, query), 1)
    if diagnoses is not None:
        for reason in (*get_args(ReadFailure), "diagnoser"):
            errors.add_metric((reason,), known.errors.get(reason, 0))
    yield from (diagnosis, info, success, unanswered, errors)
