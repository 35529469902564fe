"""Everything that the logs of one attempt say, in one place."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from peerwatch_common.signatures.matcher import MatchTable
from peerwatch_common.signatures.prefixes import lines_in, without_escapes
from peerwatch_responder.retry.evidence.attempts import newest_attempt
from peerwatch_responder.retry.evidence.foreign import foreign_error
from peerwatch_responder.retry.evidence.occurrence import Occurrence
from peerwatch_responder.retry.evidence.search import pieces, search
from peerwatch_responder.retry.evidence.steps import Steps, joined, steps_in
from peerwatch_responder.retry.evidence.unknown import last_failure
from peerwatch_responder.retry.reading.log_text import LogText

# Signatures of errors that speak for themselves however long the job goes on.
_NEVER_SURVIVED = frozenset({"nan_loss"})
# Chosen: three times what is quoted (redact.LONGEST), as prefixes are taken off and secrets out.
_LINE_BYTES = 1024
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Observed:
    """What the logs of one attempt say.

    Parameters
    ----------
    logs
        As they were read.
    occurrences
        Errors that signatures know, log by log.
    unknown
        What else may be the line that it failed of, of other runtimes and in other words: at most
        one of each log.
    failing
        All lines with words of failure after the last step, in their order.
    step
        The last step that any log counts; None: none does.
    job_ids
        Jobs that the logs name.
    digest
        Of all that was read.
    notes
        What was not, or not wholly, understood.
    """

    logs: tuple[LogText, ...]
    occurrences: tuple[Occurrence, ...]
    unknown: tuple[Occurrence, ...]
    failing: tuple[Occurrence, ...]
    step: int | None
    job_ids: tuple[str, ...]
    digest: str
    notes: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no log has any text."""
        return not any(log.read_bytes and not log.is_binary for log in self.logs)


def observe(
    logs: Sequence[LogText],
    table: MatchTable,
    job_id: str = "",
    clock: Callable[[], float] = time.time,
) -> Observed:
    """Return what logs say about their newest attempt.

    Parameters
    ----------
    logs
        Of one job.
    table
        The signatures.
    job_id
        The scheduler's id of the job, for files that hold several; empty: unknown.
    clock
        Unix time, for times without a year.
    """
    occurrences: list[Occurrence] = []
    unknown: list[Occurrence] = []
    failing: list[Occurrence] = []
    steps: list[Steps] = []
    ids: list[str] = []
    notes: list[str] = []
    for number, log in enumerate(logs):
        if log.is_binary:
            notes.append(f"{log.name}: is no text and was left out")
            continue
        if log.skipped_bytes:
            notes.append(
                f"{log.name}: {log.skipped_bytes / _MIB:.1f} MiB in its middle were not read"
            )
        found, rest, counted, named = _observe(log, number, table, job_id, clock)
        occurrences += found
        unknown += rest[:1]
        failing += rest
        steps.append(counted)
        ids += named
        if len(named) > 1:
            notes.append(f"{log.name}: holds jobs {', '.join(named)}")
    return Observed(
        tuple(logs),
        tuple(occurrences),
        tuple(unknown),
        tuple(failing),
        joined(steps).last,
        tuple(dict.fromkeys(ids)),
        _digest(logs),
        tuple(notes),
    )


def _observe(
    log: LogText, number: int, table: MatchTable, job_id: str, clock: Callable[[], float]
) -> tuple[list[Occurrence], list[Occurrence], Steps, tuple[str, ...]]:
    found = search(log, number, table, clock)
    parts = list(pieces(log))
    if not parts:
        return [], [], Steps(), ()
    text, start = parts[-1]
    errors = [each.offset - start for each in found if each.offset >= start]
    part = newest_attempt(text, errors, job_id)
    begins, ends = start + part.start, start + part.end
    counted = [steps_in(text[part.start : part.end], begins)]
    if part.start == 0:
        # What was read of its beginning is of the same attempt.
        counted = [steps_in(head, offset) for head, offset in parts[:-1]] + counted
        found = [each for each in found if each.offset < ends]
    else:
        found = [each for each in found if begins <= each.offset < ends]
    steps = joined(counted)
    found = [
        replace(each, survived=True)
        if each.signature not in _NEVER_SURVIVED and steps.survived(each.offset)
        else each
        for each in found
    ]
    last_step = steps.rises[-1] - begins if steps.rises else 0
    before = text.count(b"\n", 0, part.start) + 1 if start == 0 else None
    rest = _unknown(text[part.start : part.end], begins, max(0, last_step), before, log, number)
    return found, rest, steps, part.job_ids


def _unknown(
    text: bytes, start: int, after: int, line: int | None, log: LogText, number: int
) -> list[Occurrence]:
    """Return what else an attempt may have failed of, the likeliest line first."""
    foreign = foreign_error(text)
    if foreign is not None and foreign[1] >= after:
        meaning, places = f"an error of {foreign[0]}", [foreign[1]]
        fields = {"language": foreign[0]}
    else:
        meaning, places = "a failure that no signature knows", last_failure(text, after)
        fields = {}
    return [
        Occurrence(
            signature="",
            event_class="",
            meaning=meaning,
            text=line_at(text, place),
            log=number,
            offset=start + place,
            number=None if line is None else line + text.count(b"\n", 0, place),
            rank=log.rank,
            node=log.node,
            fields=fields,
        )
        for place in places
    ]


def line_at(text: bytes, place: int) -> bytes:
    """Return the line of a text in which a place is, without what launchers put before it."""
    start = text.rfind(b"\n", 0, place) + 1
    end = text.find(b"\n", place)
    raw = text[start : end if end >= 0 else len(text)][:_LINE_BYTES].replace(b"\0", b"")
    lines = list(lines_in(without_escapes(raw), 0.0))
    return lines[0].text.strip() if lines else raw.strip()


def _digest(logs: Sequence[LogText]) -> str:
    digest = hashlib.sha256()
    for log in logs:
        digest.update(log.head)
        digest.update(log.tail)
        digest.update(f"{log.name}\0{log.skipped_bytes}\0{log.identity}\0".encode())
    return digest.hexdigest()[:16]
