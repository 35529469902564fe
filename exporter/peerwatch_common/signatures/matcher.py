"""Matches a log, as it grows, with the signatures."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from peerwatch_common.signatures.event import Event
from peerwatch_common.signatures.failure_tables import OTHERS, ROOT, FailureTables
from peerwatch_common.signatures.partial_lines import PartialLines
from peerwatch_common.signatures.prefilter import Prefilter, TextTable
from peerwatch_common.signatures.prefixes import lines_in, without_escapes
from peerwatch_common.signatures.signature import EventClass
from peerwatch_common.signatures.timestamps import timestamp_of
from peerwatch_common.signatures.tracebacks import CHAINS, HEADER, RaisedException, Tracebacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from peerwatch_common.signatures.prefixes import Line
    from peerwatch_common.signatures.signature import Signature
    from peerwatch_common.signatures.signature_set import SignatureSet

# Only so much of a line is matched: of tables and tensors that were printed nothing more is worth.
# As much as containerd and Docker write as one line.
LONGEST_LINE = 16 * 1024
# With what a container runtime puts before it and escapes in it: chosen, as much again.
_LONGEST_PARTIAL = 2 * LONGEST_LINE
# Chosen: more than is ever published of it (redact.LONGEST), as redaction may shorten it.
_LONGEST_TEXT = 1024
# Chosen: names of hosts, addresses and operations are shorter.
_LONGEST_FIELD = 128
# The rank of the process group that logs: of the whole job in the default group only.
_RANK_IN_TEXT = re.compile(
    rb"\[[Rr]ank[ :=]?(\d{1,6})\]|\[PG (?:ID )?0[^\]\n]{0,120} Rank (\d{1,6})\]"
)
# NCCL: host, process, thread, device.
_NCCL = re.compile(rb"([\w.-]{1,253}):(\d{1,10}):\d{1,10} \[\d{1,3}\] ")
_NUMBERS = ("rank", "local_rank", "peer_rank")
_OWN = frozenset({*_NUMBERS, "peer_address"})


class MatchTable:
    """Signatures as many logs are matched with them: build it once, share it between all.

    Parameters
    ----------
    signatures
        Those that can stand in the logs, see ``SignatureSet.of_log``.
    """

    def __init__(self, signatures: SignatureSet) -> None:
        pairs = [(each, pattern) for each in signatures.signatures for pattern in each.patterns]
        self._pairs = pairs
        self._exceptions = [number for number, (each, _) in enumerate(pairs) if each.exception]
        literals = [frozenset() if each.exception else pattern.literals for each, pattern in pairs]
        openings = (HEADER, ROOT, OTHERS, *CHAINS)
        literals += [frozenset({(opening,)}) for opening in openings]
        self.prefilter = Prefilter(literals)
        self._texts = TextTable(literals)

    def candidates(self, raw: bytes, selected: Iterable[int]) -> frozenset[int]:
        """Return which of the patterns that the prefilter selected for a line it may match."""
        return self._texts.within(raw, selected)

    def all_candidates(self, text: bytes) -> frozenset[int]:
        """Return which patterns a line may match that the prefilter has not seen."""
        return self.candidates(text, range(len(self._pairs)))

    def match(
        self, text: bytes, candidates: frozenset[int], *, exception: bool
    ) -> tuple[Signature, re.Match[bytes]] | None:
        """Return the signature a line matches, and how; None if there is none.

        Parameters
        ----------
        text
            A line without prefixes.
        candidates
            Numbers of the patterns it may match, of the prefilter.
        exception
            Whether it is the last line of a traceback.
        """
        numbers = {*candidates, *self._exceptions} if exception else candidates
        noise = found = None
        for number in sorted(numbers):
            if number >= len(self._pairs):
                break
            signature, pattern = self._pairs[number]
            is_noise = signature.event_class is EventClass.NOISE
            if noise if is_noise else found:
                continue
            match = pattern.expression.search(text)
            if match is None:
                continue
            if is_noise:
                noise = signature, match
            else:
                found = signature, match
        if noise and found:
            # "This may be caused by CUDA error: ..." speaks of none; "CUDA error: ..., which may be
            # caused by ..." does.
            return min(found, noise, key=lambda each: each[1].start())
        return found or noise


class LogMatcher:
    """Matches one log; it keeps what a block leaves open: half a line, tracebacks.

    Parameters
    ----------
    table
        What it is matched with.
    clock
        Unix time, for times without a year.

    Examples
    --------
    >>> table = MatchTable(load_signatures().of_log("job"))
    >>> matcher = LogMatcher(table)
    >>> for event in matcher.feed(block):
    ...     print(event.signature.id, event.rank, event.peer_address)
    """

    def __init__(self, table: MatchTable, clock: Callable[[], float] = time.time) -> None:
        self._table = table
        self._clock = clock
        self._partial = b""
        self._parts = PartialLines(LONGEST_LINE)
        self._tracebacks = Tracebacks()
        self._tables = FailureTables()

    def feed(self, data: bytes) -> list[Event]:
        """Return the events in the next bytes of the log, in order.

        The bytes may be cut anywhere; large blocks (64 KiB and more) cost least. The last line
        waits until it ends. Lines end with LF or CR. It never raises, whatever the bytes are.
        """
        end = data.rfind(b"\n")
        end = max(end, data.rfind(b"\r", end + 1))
        if end < 0:
            self._partial = (self._partial + data)[:_LONGEST_PARTIAL]
            return []
        block = self._partial + data[:end]
        self._partial = data[end + 1 : end + 1 + _LONGEST_PARTIAL]
        return list(self._events(without_escapes(self._parts.joined(block))))

    def finish(self) -> list[Event]:
        """Return the events in a last line that has no end, and forget what is open.

        For a log that was rotated, truncated or closed.
        """
        block, self._partial = self._parts.joined(self._partial), b""
        block = b"\n".join((block, self._parts.finish()))
        events = list(self._events(without_escapes(block)))
        self._tracebacks, self._tables = Tracebacks(), FailureTables()
        return events

    @property
    def _is_midway(self) -> bool:
        return self._tracebacks.are_open or self._tables.are_open

    def _events(self, block: bytes) -> Iterator[Event]:
        selected = self._table.prefilter.lines(block)
        if not selected and not self._is_midway:
            return
        lines = block.replace(b"\r", b"\n").split(b"\n")
        waiting = sorted(selected, reverse=True)
        number = 0
        while number < len(lines):
            # In a traceback or a table every line counts, elsewhere those that may match.
            if not self._is_midway:
                while waiting and waiting[-1] < number:
                    waiting.pop()
                if not waiting:
                    return
                number = waiting[-1]
            yield from self._line_events(lines[number], selected.get(number))
            number += 1

    def _line_events(self, raw: bytes, selected: Iterable[int] | None) -> Iterator[Event]:
        # Holes in a file read as NUL bytes; UTF-16 has one in every character.
        raw = raw[:LONGEST_LINE].replace(b"\0", b"")
        candidates = self._table.candidates(raw, selected) if selected else frozenset()
        if not candidates and not self._is_midway:
            return
        now = self._clock()
        for line in lines_in(raw, now):
            event = self._event(line, candidates, now)
            if event is not None:
                yield event

    def _event(self, line: Line, candidates: frozenset[int], now: float) -> Event | None:
        taken = self._tracebacks.take(line)
        if taken is True:
            return None
        if taken is False:
            row = self._tables.take(line, now)
            if row is not line:
                line, candidates = row, self._table.all_candidates(row.text)
        exception = isinstance(taken, RaisedException)
        text = taken.text if isinstance(taken, RaisedException) else line.text
        found = self._table.match(text, candidates, exception=exception)
        if found is None:
            return None
        signature, match = found
        cascade = signature.cascade or (isinstance(taken, RaisedException) and taken.cascade)
        return _event_of(signature, match, line, now, cascade=cascade)


def _event_of(
    signature: Signature, match: re.Match[bytes], line: Line, now: float, *, cascade: bool
) -> Event:
    text = match.string
    groups = {
        name: value[:_LONGEST_FIELD].decode("utf-8", "replace")
        for name, value in match.groupdict().items()
        if value
    }
    numbers = {name: _number(groups.get(name)) for name in _NUMBERS}
    fields = {name: value for name, value in groups.items() if name not in _OWN}
    if writer := _NCCL.match(text):
        fields.setdefault("host", writer[1].decode())
        fields.setdefault("pid", writer[2].decode())
    rank = line.rank if line.rank is not None else numbers["rank"]
    if rank is None and (said := _RANK_IN_TEXT.search(text)):
        rank = int(said[1] or said[2])
    if rank is None:
        rank = line.task
    local_rank = line.local_rank if line.local_rank is not None else numbers["local_rank"]
    written = line.timestamp if line.timestamp is not None else timestamp_of(text, now)
    return Event(
        signature=signature,
        text=text[:_LONGEST_TEXT],
        timestamp=written,
        rank=rank,
        local_rank=local_rank,
        peer_rank=numbers["peer_rank"],
        peer_address=groups.get("peer_address"),
        fields=fields,
        cascade=cascade,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) <= 9 else None
