"""Asks every diagnoser of a job for its verdicts, apart from the cycle of statistics."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.diagnosis.diagnoser import Diagnoser
from peerwatch_detector.diagnosis.findings import EvidenceFindings, order
from peerwatch_detector.diagnosis.root.live.root import LiveRoot
from peerwatch_detector.diagnosis.root.published import beside_root, root_verdicts
from peerwatch_detector.diagnosis.verdict import Verdict
from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.frame import PartialAnswer, Series
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.instant_reader import Instants

logger = logging.getLogger(__name__)

# Verdicts about one job that are shown, the most direct first: more of them tell nobody more, and
# the number of series stays bounded whatever a diagnoser says. Chosen: as many as nodes are named
# elsewhere (diagnosis/config/majority.py).
MOST_VERDICTS = 64
# What a server left out may have said otherwise: a rank that seems to say nothing may have.
_PARTIAL = "; Prometheus left out some series, so this is not sure"


@dataclass(frozen=True, slots=True)
class Answered:
    """What the diagnosers of a job said at one moment.

    Parameters
    ----------
    evidence
        Of the job it is about.
    verdicts
        By diagnoser; those that failed are left out.
    errors
        Why, by diagnoser.
    """

    evidence: JobEvidence
    verdicts: Mapping[str, tuple[Verdict, ...]]
    errors: Mapping[str, Exception]


@dataclass(slots=True, eq=False)
class JobEvidence:
    """What the diagnosers say of one job, and the findings this makes.

    Parameters
    ----------
    job_id
        The job.
    diagnosers
        With a memory for this job.
    findings
        That stand.
    last_success
        Unix time at which all diagnosers last answered.
    root
        What the job fails of, and all that was observed about it; None while nothing stands
        against it.
    """

    job_id: str
    diagnosers: tuple[Diagnoser, ...]
    findings: EvidenceFindings
    last_success: float | None = None
    root: LiveRoot | None = None
    _said: dict[str, tuple[Verdict, ...]] = field(default_factory=dict)

    @classmethod
    def begin(cls, job_id: str, kinds: Sequence[type[Diagnoser]]) -> JobEvidence:
        """Return it for a job of which nothing is known yet."""
        return cls(job_id, tuple(kind(job_id) for kind in kinds), EvidenceFindings(job_id))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What diagnosers say, the most direct class first; a label set stands once."""
        known: dict[tuple[object, ...], Verdict] = {}
        for verdict in sorted((v for said in self._said.values() for v in said), key=order):
            known.setdefault((verdict.node, verdict.rank, verdict.class_name), verdict)
        return tuple(known.values())[:MOST_VERDICTS]

    def published(self, named: Collection[str]) -> tuple[Verdict, ...]:
        """Return what stands: what the job failed of first, then what goes with it.

        Parameters
        ----------
        named
            Nodes that have findings of statistics.
        """
        roots = self.roots(named)
        return (*roots, *beside_root(self.verdicts, roots))[:MOST_VERDICTS]

    def roots(self, named: Collection[str]) -> tuple[Verdict, ...]:
        """Return what the job failed of; ``named`` as in ``published``."""
        own = {each.node for each in self.verdicts if each.names_node}
        return root_verdicts(self.root, own | set(named))

    def ask(self, instants: Instants, clock: Callable[[], float]) -> Answered:
        """Read what the diagnosers need and let each say what it means; in one thread at a time.

        Parameters
        ----------
        instants
            Where it is read.
        clock
            Unix time, where the server's is not known.

        Raises
        ------
        ReadError
            If the server does not answer.
        """
        queries = {
            query: promql.job_query(query, self.job_id)
            for diagnoser in self.diagnosers
            for query in diagnoser.queries.values()
        }
        answers = instants.read(queries)
        # The server's clock, as that of the samples is; this machine's may be another.
        times = [
            float(s[0].times[-1]) for s in answers.values() if not isinstance(s, Exception) if s
        ]
        now = max(times, default=clock())
        verdicts: dict[str, tuple[Verdict, ...]] = {}
        errors: dict[str, Exception] = {}
        for diagnoser in self.diagnosers:
            try:
                samples = _samples(diagnoser, answers)
                said = diagnoser.diagnose(samples, now)
                if any(isinstance(each, PartialAnswer) for each in samples.values()):
                    said = [_unsure(verdict) for verdict in said]
                verdicts[diagnoser.name] = tuple(said)
            except Exception as error:
                # One that is not answered, or that meets a bug, must not silence the others.
                errors[diagnoser.name] = error
        return Answered(self, verdicts, errors)

    def hear(self, name: str, said: Iterable[Verdict]) -> None:
        """Take in what samples say of the job, which no diagnoser asks for."""
        self._said[name] = tuple(said)

    def take(self, answered: Answered, now: float, named: Collection[str]) -> list[Finding]:
        """Take in what was said and return the findings that are new.

        Of a diagnoser that failed, what it said before stands.

        Parameters
        ----------
        answered
            What the diagnosers said.
        now
            Unix time.
        named
            Nodes that have findings of statistics: what the job failed of is told with those, and
            makes no other.
        """
        self._said.update(answered.verdicts)
        if not answered.errors:
            self.last_success = now
        roots = [each for each in self.roots(named) if each.node not in named]
        new = self.findings.update((*self.verdicts, *roots), now)
        for finding in new:
            logger.warning(
                "finding_raised job_id=%s node=%s metric=%s method=%s since=%.0f why=%r",
                finding.job_id,
                finding.node,
                finding.metric,
                finding.method,
                finding.since,
                self.findings.explanations[finding].sentence,
            )
        return new


def _unsure(verdict: Verdict) -> Verdict:
    """Return a verdict that rests on a part of the series."""
    confidence = "likely" if verdict.confidence == "sure" else verdict.confidence
    return replace(verdict, confidence=confidence, summary=f"{verdict.summary}{_PARTIAL}")


class DiagnoserFailures:
    """Counts diagnosers that met a bug; failures of reading are counted by the reader."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, errors: Mapping[str, Exception]) -> None:
        """Count those of one asking."""
        self.count += sum(not isinstance(error, ReadError) for error in errors.values())

    def total(self, *read: Mapping[ReadFailure, int]) -> dict[str, int]:
        """Return all failures by reason; those of several readers add up."""
        by_reason: Counter[str] = Counter()
        for failures in read:
            by_reason.update(failures)
        return dict(by_reason) | {"diagnoser": self.count}


def _samples(
    diagnoser: Diagnoser, answers: Mapping[str, list[Series] | ReadError]
) -> dict[str, list[Series]]:
    """Return the answers to a diagnoser's queries by its own names.

    Raises
    ------
    ReadError
        Of the first query that was not answered.
    """
    found: dict[str, list[Series]] = {}
    for name, query in diagnoser.queries.items():
        answer = answers[query]
        if isinstance(answer, ReadError):
            raise answer
        found[name] = answer
    return found
