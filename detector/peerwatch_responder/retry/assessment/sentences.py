"""Says an advice as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_responder.retry.answer import Kind, Reason
    from peerwatch_responder.retry.assessment.cause import Cause
    from peerwatch_responder.retry.history.recurrence import Recurrence

_WHAT: dict[Kind, str] = {
    "retry": "start it again",
    "retry_elsewhere": "start it again elsewhere",
    "retry_with_backoff": "start it again after a while",
    "do_not_retry": "the same job would fail of it again; do not start it again unchanged",
    "ask_user": "ask its owner",
}


def said(kind: Kind, reason: Reason, cause: Cause, past: Recurrence) -> str:
    """Return why, and what to do.

    Parameters
    ----------
    kind, reason
        Of the advice.
    cause
        Of what the job failed.
    past
        Earlier attempts.
    """
    meaning = f"{cause.meaning[0].upper()}{cause.meaning[1:]}"
    what = _WHAT[kind]
    if kind == "retry_elsewhere" and cause.isolate and reason != "diagnosis":
        what += f", without {', '.join(cause.isolate)}"
    if reason == "correction":
        return f"{meaning}: a person has said about this failure: {what}."
    if reason == "history":
        times = "once" if past.stuck == 1 else f"{past.stuck} times"
        return f"{meaning}, as {times} before, and no step was finished since: {what}."
    if reason == "model":
        what = what if kind != "do_not_retry" else "it reads like failures that come again; stop"
        return f"{meaning}: {what}"
    limit = cause.ruling.limit
    if kind in {"retry", "retry_with_backoff"} and limit is not None:
        times = "once" if limit == 1 else f"{limit} times"
        what += f", at most {times} without progress"
    return f"{meaning}: {what}."
