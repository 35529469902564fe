"""Advises on one failed job, and remembers what it advised."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peerwatch_common.signatures.redact import redacted
from peerwatch_responder.retry.assessment.assess import Sources, assess
from peerwatch_responder.retry.assessment.model_lines import lines_for_model
from peerwatch_responder.retry.evidence.observed import observe
from peerwatch_responder.retry.history.recurrence import Recurrence, recurrence
from peerwatch_responder.retry.history.row import HistoryRow
from peerwatch_responder.retry.history.store import HistoryError
from peerwatch_responder.retry.reading.facts import JobFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_responder.retry.answer import Kind, RetryAdvice
    from peerwatch_responder.retry.assessment.diagnosis import Diagnosis
    from peerwatch_responder.retry.assessment.knowledge import Knowledge
    from peerwatch_responder.retry.evidence.observed import Observed
    from peerwatch_responder.retry.history.store import History
    from peerwatch_responder.retry.opinion import RetryModel
    from peerwatch_responder.retry.reading.log_text import LogText

# The 64 lines that a model reads (selection.py), as long as they are quoted (redact.LONGEST).
_LEARN_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class Incident:
    """What Prometheus knows of the end of a job.

    Parameters
    ----------
    diagnosis
        Of the same incident; None: there is none.
    step
        The last step that its ranks finished; None: unknown.
    notes
        What could not be learnt.
    """

    diagnosis: Diagnosis | None = None
    step: int | None = None
    notes: tuple[str, ...] = ()


class Adviser:
    """Advises on failed jobs.

    Parameters
    ----------
    knowledge
        What is known beforehand.
    history
        What was advised before, and where advice is written down; None: nothing is remembered.
    incident
        Asks Prometheus about a job; None: nobody is asked.
    model
        The learnt model; None: there is none.
    clock
        Unix time in seconds.
    writes
        Whether advice is written down; a dry run leaves no trace.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        history: History | None = None,
        incident: Callable[[JobFacts], Incident] | None = None,
        model: RetryModel | None = None,
        clock: Callable[[], float] = time.time,
        *,
        writes: bool = True,
    ) -> None:
        self._knowledge = knowledge
        self._history = history
        self._incident = incident
        self._model = model
        self._clock = clock
        self._writes = writes

    def advise(self, logs: Sequence[LogText], facts: JobFacts) -> RetryAdvice:
        """Return what to do with a job, and write it down.

        Parameters
        ----------
        logs
            All of them, of all ranks.
        facts
            What its scheduler says.
        """
        observed = observe(logs, self._knowledge.table, facts.job_id, self._clock)
        facts = _named(facts, observed)
        incident = self._incident(facts) if self._incident is not None else Incident()
        rows, notes = self._rows()
        attempt = facts.attempt or observed.digest

        def remember(fingerprint: str, step: int | None) -> Recurrence:
            return recurrence(rows, facts.job, attempt, fingerprint, step)

        found = assess(
            observed,
            replace(facts, notes=(*facts.notes, *incident.notes)),
            self._knowledge,
            Sources(remember, lambda: incident.diagnosis, self._model),
            incident.step,
        )
        advice = replace(found, job=facts.job, attempt=attempt)
        notes += self._write(_row(advice, observed, self._clock()))
        return replace(advice, notes=(*advice.notes, *notes)) if notes else advice

    def correct(
        self, logs: Sequence[LogText], facts: JobFacts, kind: Kind, note: str
    ) -> RetryAdvice:
        """Write down what a person says should have been advised about these logs.

        Returns
        -------
        RetryAdvice
            What is advised from now on about such a failure.

        Raises
        ------
        HistoryError
            If it cannot be written.
        """
        if self._history is None:
            raise HistoryError("a correction is written to the history, and there is none")
        advice = self.advise(logs, facts)
        observed = observe(logs, self._knowledge.table, facts.job_id, self._clock)
        row = _row(advice, observed, self._clock())
        self._history.append(
            replace(row, kind="correction", advice=kind, reason="correction", note=note)
        )
        return self.advise(logs, facts)

    def _rows(self) -> tuple[list[HistoryRow], list[str]]:
        if self._history is None:
            return [], []
        try:
            rows = self._history.rows()
        except HistoryError as error:
            return [], [f"The history could not be read: {error}."]
        damaged = self._history.damaged
        return rows, [f"{damaged} lines of the history are damaged."] if damaged else []

    def _write(self, row: HistoryRow) -> list[str]:
        if self._history is None or not self._writes:
            return []
        try:
            self._history.append(row)
        except HistoryError as error:
            return [f"The advice could not be written down: {error}."]
        return []


def advice_id(job: str, attempt: str, fingerprint: str) -> str:
    """Return what identifies an advice."""
    text = "\0".join((job, attempt, fingerprint))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _named(facts: JobFacts, observed: Observed) -> JobFacts:
    """Return the facts with the names of the job, as far as the logs have them."""
    job_id = facts.job_id
    if not job_id and len(observed.job_ids) == 1:
        job_id = observed.job_ids[0]
    names = sorted(log.name for log in observed.logs)
    return replace(facts, job_id=job_id, job=facts.job or job_id or (names[0] if names else ""))


def _row(advice: RetryAdvice, observed: Observed, now: float) -> HistoryRow:
    return HistoryRow(
        kind="advice",
        time=now,
        id=advice_id(advice.job, advice.attempt, advice.fingerprint),
        job=advice.job,
        attempt=advice.attempt,
        fingerprint=advice.fingerprint,
        advice=advice.kind,
        reason=advice.reason,
        step=advice.step,
        text=_learnt_from(advice, observed),
    )


def _learnt_from(advice: RetryAdvice, observed: Observed) -> str:
    """Return the lines around the root, without what is private, for who learns from them."""
    names = [log.name for log in observed.logs]
    if advice.root is None or advice.root.log not in names:
        return ""
    number = names.index(advice.root.log)
    offset = next(
        (
            each.offset
            for each in (*observed.occurrences, *observed.unknown)
            if each.log == number and redacted(each.text) == advice.root.text
        ),
        0,
    )
    lines = lines_for_model(observed, number, offset)
    text = "\n".join(redacted(line.encode()) for line in lines)
    return text[:_LEARN_CHARACTERS]
