"""Follows many files at once, at a bounded rate."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peerwatch_common.signatures.matcher import LogMatcher
from peerwatch_exporter.sources.logs.found import HungError, reason_of
from peerwatch_exporter.sources.logs.tail import READ_BYTES, NotRegularError, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_common.signatures.event import Event
    from peerwatch_common.signatures.matcher import MatchTable
    from peerwatch_exporter.sources.logs.found import Claim, Guard, Reason
    from peerwatch_exporter.sources.logs.owners import Owner
    from peerwatch_exporter.sources.logs.tail import FileKey, Piece, Position

# A file that grows is looked at in each tick (0.5 s), one that rests less and less often: doubled
# four times.
_LONGEST_REST_SECONDS = 4.0
_FIRST_REST_SECONDS = 0.25
# A last line without an end is complete after this time: its writer was killed, or ends no line.
# Chosen: writers' buffers come in parts, but within a second.
_LINE_SECONDS = 3.0
# How long a file is followed that nobody claims any more: a rank that ended has said its last.
# Chosen: torchrun gives its other ranks 30 s to end.
_LINGER_SECONDS = 60.0
_PENDING_SECONDS = 4  # of reading at the rate allowed; later, lines would be old news
# A line carries the time of reading unless it says one that is as good: chosen above the longest
# rest and the wait for a line's end.
_PLAUSIBLE_SECONDS = 10.0


@dataclass(slots=True)
class Followed:
    """A file and how far it was read.

    ``old_until`` is the time of its last change when it was found at the start of the exporter:
    what stands before ``old_end`` is no younger.
    """

    tail: Tail
    group: str
    provider: str
    owner: Owner
    matcher: LogMatcher
    claimed_at: float
    grown_at: float
    old_until: float = 0.0
    old_end: int = 0
    due: float = 0.0
    rest: float = _FIRST_REST_SECONDS
    has_open_line: bool = False
    in_skip: bool = False


@dataclass(slots=True)
class Amounts:
    """Bytes since the last report: those read by job, and those skipped."""

    read: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)


class Follower:
    """The files that are followed.

    Parameters
    ----------
    table
        What they are searched for.
    guard
        Notes what is touched.
    max_files, max_bytes_per_second
        The settings.
    clock, monotonic
        Unix time, and seconds that only rise.
    """

    def __init__(
        self,
        table: MatchTable,
        guard: Guard,
        *,
        max_files: int,
        max_bytes_per_second: int,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._table = table
        self._guard = guard
        self._max_files = max_files
        self._rate = max_bytes_per_second
        self._clock = clock
        self._monotonic = monotonic
        self.files: dict[FileKey, Followed] = {}
        self.amounts = Amounts()
        self._allowance = 0.0
        self._ticked_at = monotonic()

    def follow(self, claim: Claim, owner: Owner, position: Position, *, old: bool) -> Reason | None:
        """Follow a file from a position, or note that it is still wanted.

        Returns
        -------
        Why it is not followed; None if it is.
        """
        now = self._monotonic()
        followed = self.files.get(claim.key)
        if followed is not None:
            followed.claimed_at, followed.owner = now, owner
            return None
        if len(self.files) >= self._max_files:
            return "too_many"
        try:
            self._guard.enter(claim.group)
            tail = Tail(claim.path, claim.key, position)
        except NotRegularError:
            # Rotated in this moment; the next search finds both.
            return None
        except OSError as error:
            return reason_of(error)
        self.files[claim.key] = Followed(
            tail,
            claim.group,
            claim.provider,
            owner,
            LogMatcher(self._table, self._clock),
            now,
            now,
            old_until=claim.status.st_mtime if old else 0.0,
            old_end=claim.status.st_size if old else 0,
            in_skip=position.offset > 0 and not position.overlap,
        )
        return None

    def tick(self) -> Iterator[tuple[Event, Owner, float]]:
        """Yield the events in what was appended, with whose file it is and when it was written."""
        now = self._monotonic()
        self._allowance = min(
            self._rate, self._allowance + self._rate * max(0.0, now - self._ticked_at)
        )
        self._ticked_at = now
        waiting = [each for each in self.files.values() if each.due <= now]
        # Those that waited longest first: who got nothing in one tick is the first of the next.
        waiting.sort(key=lambda each: each.due)
        while waiting and self._allowance >= 1:
            unread = []
            for followed in waiting:
                if self._allowance < 1:
                    break
                piece = self._read(followed, now)
                if piece is None:
                    yield from self._rested(followed, now)
                    continue
                yield from self._events(followed, piece)
                if piece.pending:
                    unread.append(followed)
                else:
                    followed.due = now
            waiting = unread
        self._guard.leave()

    def _read(self, followed: Followed, now: float) -> Piece | None:
        most = min(READ_BYTES, int(self._allowance))
        try:
            self._guard.enter(followed.group)
            piece = followed.tail.read(most, _PENDING_SECONDS * self._rate)
        except HungError:
            return None
        except OSError:
            # Its file system lost it; the next search finds it anew, if it is there.
            self._close(followed)
            return None
        if piece is None:
            return None
        self._allowance -= len(piece.data)
        followed.grown_at, followed.rest = now, _FIRST_REST_SECONDS
        self._count(self.amounts.read, followed, len(piece.data))
        self._count(self.amounts.skipped, followed, piece.skipped)
        return piece

    def _events(self, followed: Followed, piece: Piece) -> Iterator[tuple[Event, Owner, float]]:
        data = piece.data
        if piece.restarted or piece.skipped:
            yield from self._dated(followed, followed.matcher.finish())
            followed.old_end = 0
            followed.in_skip = bool(piece.skipped)
        if followed.in_skip:
            # Begin with a whole line.
            end = data.find(b"\n")
            data, followed.in_skip = data[end + 1 :], end < 0
            if followed.in_skip:
                return
        followed.has_open_line = not data.endswith(b"\n")
        yield from self._dated(followed, followed.matcher.feed(data))

    def _rested(self, followed: Followed, now: float) -> Iterator[tuple[Event, Owner, float]]:
        followed.rest = min(2 * followed.rest, _LONGEST_REST_SECONDS)
        followed.due = now + followed.rest
        if followed.has_open_line and now - followed.grown_at >= _LINE_SECONDS:
            followed.has_open_line = False
            yield from self._dated(followed, followed.matcher.finish())
        if now - max(followed.grown_at, followed.claimed_at) > _LINGER_SECONDS:
            self._close(followed)

    def _dated(
        self, followed: Followed, events: list[Event]
    ) -> Iterator[tuple[Event, Owner, float]]:
        latest = self._clock()
        is_old = followed.tail.position.offset <= followed.old_end
        if is_old:
            latest = min(latest, followed.old_until)
        for event in events:
            written = event.timestamp
            trusted = written is not None and (
                written <= latest if is_old else abs(written - latest) <= _PLAUSIBLE_SECONDS
            )
            time = written if trusted and written is not None else latest
            yield event, followed.owner, min(time, latest)

    def _count(self, amounts: dict[str, int], followed: Followed, count: int) -> None:
        if count:
            job_id = followed.owner.job_id
            amounts[job_id] = amounts.get(job_id, 0) + count

    def _close(self, followed: Followed) -> None:
        self.files.pop(followed.tail.key, None)
        # What hung may hang again when it is closed; the next process starts without it.
        with contextlib.suppress(HungError):
            self._guard.enter(followed.group)
            followed.tail.close()

    def close(self) -> None:
        """Close all files."""
        for followed in list(self.files.values()):
            self._close(followed)
