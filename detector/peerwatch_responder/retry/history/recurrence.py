"""How often a job has failed of the same root without getting any further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peerwatch_responder.retry.answer import Before, Kind
from peerwatch_responder.retry.history.row import HistoryRow


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What is known of earlier attempts of a job with the same root.

    Parameters
    ----------
    before
        All of them, the newest first; each attempt once.
    stuck
        How many of the newest in a row got no further than the one before, up to this one.
    correction
        What a person says is right for this root; None: nobody has said anything.
    """

    before: tuple[Before, ...] = ()
    stuck: int = 0
    correction: Kind | None = None


def recurrence(
    rows: Sequence[HistoryRow], job: str, attempt: str, fingerprint: str, step: int | None
) -> Recurrence:
    """Return what the history says of a root.

    Parameters
    ----------
    rows
        Of the history, oldest first.
    job, attempt
        The job, and this run of it; what was said of this run already does not count.
    fingerprint
        Of the root.
    step
        The last step that this attempt finished; None: unknown.
    """
    corrections = [
        row.advice for row in rows if row.kind == "correction" and row.fingerprint == fingerprint
    ]
    correction = corrections[-1] if corrections else None
    mine: dict[str, HistoryRow] = {}
    for row in rows:
        if row.kind != "advice" or row.job != job:
            continue
        if row.attempt == attempt:
            # What came after this run was not before it.
            break
        # An attempt that is assessed again has the newest word.
        mine.pop(row.attempt, None)
        mine[row.attempt] = row
    attempts = list(mine.values())
    before = tuple(
        Before(row.time, row.advice, row.step)
        for row in reversed(attempts)
        if row.fingerprint == fingerprint
    )
    return Recurrence(before, _stuck(attempts, fingerprint, step), correction)


def _stuck(attempts: Sequence[HistoryRow], fingerprint: str, step: int | None) -> int:
    stuck = 0
    later = step
    for row in reversed(attempts):
        if row.fingerprint != fingerprint:
            # It failed of something else between: then the first is no longer in its way.
            break
        if later is not None and later > (row.step or 0):
            # Only a step that was not reached before is progress.
            break
        stuck += 1
        later = row.step if later is None else later
    return stuck
