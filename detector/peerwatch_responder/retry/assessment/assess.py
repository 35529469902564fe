"""Whether a failed job should be started again.

What is known beforehand of its root decides first; then what the same root did before; then the
diagnosis of the same incident; then the form of its line; then the model; and where nobody knows
it, it is started again, a few times. A person's correction comes before all of them. Nothing is
stopped without a line to quote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peerwatch_common.signatures.redact import redacted
from peerwatch_responder.retry.answer import RETRIES, Kind, Line, Reason, RetryAdvice
from peerwatch_responder.retry.assessment.cause import Cause, find_cause
from peerwatch_responder.retry.assessment.diagnosis import Diagnosis, follows
from peerwatch_responder.retry.assessment.model_lines import lines_for_model
from peerwatch_responder.retry.assessment.sentences import said
from peerwatch_responder.retry.evidence.root import cascades, complained_about
from peerwatch_responder.retry.history.recurrence import Recurrence

if TYPE_CHECKING:
    from peerwatch_responder.retry.assessment.knowledge import Knowledge
    from peerwatch_responder.retry.evidence.observed import Observed
    from peerwatch_responder.retry.opinion import RetryModel
    from peerwatch_responder.retry.reading.facts import JobFacts

_KNOWN_BY: dict[str, Reason] = {"exit": "exit", "form": "form", "unknown": "unknown"}
# Below it an advice is called a guess, and a model's does not decide. Chosen: one half.
_GUESS_BELOW = 0.5
# What is likelier, as docs/retry-model.md evaluates it.
_RETRY_FROM = 0.5
# Editorial: of several jobs the wrong one may be meant, and only what is surest (0.85 and more)
# stays above a guess; what is not read is a middle, where a failure is rarely told.
_MANY_JOBS, _NOT_ALL_READ = 0.6, 0.9
# Chosen: the fifth wait, by 300 s (backoff_seconds) that double; what lasts longer needs a person.
_LONGEST_WAIT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Sources:
    """Who else is asked.

    Parameters
    ----------
    remember
        Returns what the history says of a fingerprint and a last step.
    diagnose
        Returns the diagnosis of the same incident; None: there is none.
    model
        The learnt model; None: there is none.
    """

    remember: Callable[[str, int | None], Recurrence]
    diagnose: Callable[[], Diagnosis | None] = lambda: None
    model: RetryModel | None = None


def assess(
    observed: Observed,
    facts: JobFacts,
    knowledge: Knowledge,
    sources: Sources,
    step: int | None = None,
) -> RetryAdvice:
    """Return what to do with a failed job.

    Parameters
    ----------
    observed
        What its logs say.
    facts
        What its scheduler says.
    knowledge
        What is known beforehand.
    sources
        Who else is asked, each only where it is needed.
    step
        The last step by its metrics; None: as its logs say.
    """
    step = observed.step if step is None else step
    cause = find_cause(observed, facts, knowledge)
    if cause is None:
        return _with_context(_nothing_failed(observed), observed, facts, None, step)
    past = sources.remember(cause.fingerprint, step)
    advice = _decided(cause, past, observed, knowledge, sources)
    root = cause.line
    found = replace(
        advice,
        root=root,
        lines=advice.lines or (root,),
        event_class=cause.occurrence.event_class,
        signature=cause.occurrence.signature,
        fingerprint=cause.fingerprint,
        before=past.before,
        cascades=cascades(observed.occurrences, cause.occurrence),
    )
    return _with_context(found, observed, facts, cause, step)


def _decided(
    cause: Cause, past: Recurrence, observed: Observed, knowledge: Knowledge, sources: Sources
) -> RetryAdvice:
    ruling = cause.ruling
    if past.correction is not None:
        return _advice(past.correction, "correction", cause, 0.95, knowledge, past)
    limit = ruling.limit
    if ruling.kind in RETRIES and limit is not None and past.stuck >= limit:
        # A node was left out each time, and it did not help: that is not the program's either.
        kind: Kind = "ask_user" if ruling.kind == "retry_elsewhere" else "do_not_retry"
        return _advice(kind, "history", cause, 0.85, knowledge, past)
    known = _advice(
        ruling.kind,
        _KNOWN_BY.get(cause.source, "signature"),
        cause,
        ruling.confidence,
        knowledge,
        past,
    )
    if ruling.decides and cause.source != "form":
        return known
    diagnosed = _by_diagnosis(sources, cause, knowledge, past)
    if diagnosed is not None:
        return diagnosed
    if ruling.decides:
        return known
    return _by_model(sources, cause, observed, knowledge, past) or known


def _by_diagnosis(
    sources: Sources, cause: Cause, knowledge: Knowledge, past: Recurrence
) -> RetryAdvice | None:
    diagnosis = sources.diagnose()
    followed = None if diagnosis is None else follows(diagnosis, has_line=bool(cause.line.text))
    if diagnosis is None or followed is None:
        return None
    kind, confidence = followed
    found = _advice(kind, "diagnosis", cause, confidence, knowledge, past)
    text = f"{diagnosis.text[0].upper()}{diagnosis.text[1:]}. {found.text}"
    return replace(found, text=text, isolate=diagnosis.nodes if kind == "retry_elsewhere" else ())


def _by_model(
    sources: Sources, cause: Cause, observed: Observed, knowledge: Knowledge, past: Recurrence
) -> RetryAdvice | None:
    if sources.model is None:
        return None
    number = max(cause.occurrence.log, 0)
    given = lines_for_model(observed, number, cause.occurrence.offset)
    opinion = sources.model.assess(given) if given else None
    if opinion is None or opinion.confidence < _GUESS_BELOW:
        return None
    if opinion.retry < opinion.stops_below:
        kind: Kind = "do_not_retry"
    elif opinion.retry >= _RETRY_FROM:
        kind = cause.ruling.kind if cause.ruling.kind in RETRIES else "retry"
    else:
        return None
    # Whatever it learnt from, it is less sure than what is known.
    found = _advice(kind, "model", cause, min(0.9, opinion.confidence), knowledge, past)
    name = observed.logs[number].name
    lines = tuple(Line(name, None, redacted(each.encode())) for each in opinion.lines[:5])
    return replace(found, lines=lines, text=f"{found.text} (model {opinion.model}).")


def _advice(
    kind: Kind,
    reason: Reason,
    cause: Cause,
    confidence: float,
    knowledge: Knowledge,
    past: Recurrence,
) -> RetryAdvice:
    wait = min(_LONGEST_WAIT_SECONDS, knowledge.backoff_seconds * 2**past.stuck)
    return RetryAdvice(
        kind,
        reason,
        said(kind, reason, cause, past),
        confidence,
        lines=(cause.line,),
        isolate=cause.isolate if kind == "retry_elsewhere" else (),
        wait_seconds=wait if kind == "retry_with_backoff" else 0.0,
    )


def _nothing_failed(observed: Observed) -> RetryAdvice:
    if observed.is_empty:
        text = "There is no text in the logs: only its owner can say what became of the job."
        return RetryAdvice("ask_user", "no_log", text, 0.0)
    text = (
        "Nothing in the logs has failed: the job ended well, or was ended from outside without a "
        "word. Its owner knows; --exit-code or --slurm-job-id would say more."
    )
    return RetryAdvice("ask_user", "no_failure", text, 0.3)


def _with_context(
    advice: RetryAdvice,
    observed: Observed,
    facts: JobFacts,
    cause: Cause | None,
    step: int | None,
) -> RetryAdvice:
    confidence, notes = advice.confidence, [*observed.notes, *facts.notes]
    if len(observed.job_ids) > 1 and facts.job_id not in observed.job_ids:
        confidence *= _MANY_JOBS
        notes.append("The logs hold several jobs; the advice is about the last. --job says which.")
    if any(log.skipped_bytes for log in observed.logs):
        confidence *= _NOT_ALL_READ
    peer = complained_about(observed.occurrences)
    if peer and cause is not None and cause.occurrence.event_class == "D":
        notes.append(f"Most ranks that lost a peer lost {peer}: look there first.")
    if confidence < _GUESS_BELOW:
        notes.append("The confidence is low: treat this as a guess.")
    return replace(advice, confidence=round(confidence, 3), step=step, notes=tuple(notes))
