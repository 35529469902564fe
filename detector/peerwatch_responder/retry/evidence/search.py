"""Finds the errors in a log by their signatures, and where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.signatures.matcher import LogMatcher
from peerwatch_common.signatures.signature import EventClass
from peerwatch_responder.retry.evidence.occurrence import Occurrence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_common.signatures.event import Event
    from peerwatch_common.signatures.matcher import MatchTable
    from peerwatch_responder.retry.reading.log_text import LogText

# Chosen: thousands of lines, beside which a call costs little; small beside a log's 16 MiB.
_BLOCK_BYTES = 256 * 1024
# Of a storm the first and the last are enough; what lies between says the same again. Chosen: some
# of each of thousands of ranks, in some MiB.
_MOST_FIRST, _MOST_LAST = 4_000, 4_000
# Chosen: what two lines have in common by chance is shorter.
_SEARCHED_BYTES = 160


def search(
    log: LogText, number: int, table: MatchTable, clock: Callable[[], float]
) -> list[Occurrence]:
    """Return what the signatures find in a log, in its order; noise is left out.

    Parameters
    ----------
    log
        What was read of it.
    number
        Which log of the job it is.
    table
        The signatures.
    clock
        Unix time, for times without a year.
    """
    found: list[Occurrence] = []
    for piece, start in pieces(log):
        line_base = 1 if start == 0 else None
        for event, offset, line in _events(piece, table, clock, line_base):
            if event.signature.event_class is not EventClass.NOISE:
                found.append(_occurrence(event, log, number, start + offset, line))
    if len(found) > _MOST_FIRST + _MOST_LAST:
        found = found[:_MOST_FIRST] + found[-_MOST_LAST:]
    return found


def pieces(log: LogText) -> Iterator[tuple[bytes, int]]:
    """Yield what was read of a log, and where it begins in it."""
    if log.head:
        yield log.head, 0
    if log.tail:
        # The first line of a tail has lost its beginning.
        cut = log.tail.find(b"\n", 0, 1 << 16) + 1
        yield log.tail[cut:], len(log.head) + log.skipped_bytes + cut


def _events(
    piece: bytes, table: MatchTable, clock: Callable[[], float], line: int | None
) -> Iterator[tuple[Event, int, int | None]]:
    matcher = LogMatcher(table, clock)
    start = 0
    while start < len(piece):
        end = piece.rfind(b"\n", start, start + _BLOCK_BYTES) + 1
        # A line that is longer than a block is cut.
        end = end if end > start else min(len(piece), start + _BLOCK_BYTES)
        cursor, counted, lines = start, start, 0
        for event in matcher.feed(piece[start:end]):
            place = piece.find(event.text[:_SEARCHED_BYTES], cursor, end)
            # What stood in JSON, or over several records, is not found again as it was.
            cursor = place if place >= 0 else cursor
            lines += piece.count(b"\n", counted, cursor)
            counted = cursor
            yield event, cursor, None if line is None else line + lines
        line = None if line is None else line + lines + piece.count(b"\n", counted, end)
        start = end
    for event in matcher.finish():
        yield event, max(0, len(piece) - len(event.text)), line


def _occurrence(
    event: Event, log: LogText, number: int, offset: int, line: int | None
) -> Occurrence:
    fields = event.fields
    node = fields.get("host") or fields.get("node") or log.node
    peer = event.peer_address or ("" if event.peer_rank is None else f"rank {event.peer_rank}")
    return Occurrence(
        signature=event.signature.id,
        event_class=str(event.signature.event_class),
        meaning=event.signature.meaning,
        text=event.text,
        log=number,
        offset=offset,
        number=line,
        cascade=event.cascade,
        time=event.timestamp,
        rank=event.rank if event.rank is not None else log.rank,
        node=node,
        peer=peer,
        fields=fields,
    )
