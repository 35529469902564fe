"""Follows one Flight Recorder from answer to answer: totals that only rise, and the newest state.

The recorder keeps its last entries only, numbered through the process. What was overwritten between
two answers is known in number, by the groups' sequence numbers, and counts as the collectives
around it. A rank that was restarted, or a group that was made anew, numbers from the beginning
again; the totals go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.sources.collectives.blocks import Blocks
from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.flight_recorder import (
    Progress,
    parse_operation,
    record_of,
)
from peerwatch_exporter.sources.collectives.telemetry import GroupTelemetry, InFlight, Totals
from peerwatch_exporter.sources.collectives.volume import bus_factor

if TYPE_CHECKING:
    from peerwatch_exporter.sources.collectives.flight_recorder import Dump, Operation

_UNKNOWN = Progress(None, None, None)
# More than any ring in use; a back end that completes nothing must not fill memory.
_MOST_OUTSTANDING = 8192
_MOST_OUT_OF_ORDER = 64

GroupSize = Callable[[str], int | None]


@dataclass(slots=True)
class _Outstanding:
    """A collective that has not completed; it stands for ``weight`` of them."""

    operation: Operation
    weight: int


@dataclass(slots=True)
class _Group:
    """One process group of one process.

    Parameters
    ----------
    name
        As on all ranks.
    sequence
        Of the newest collective; None before the first that is known.
    settled
        The highest sequence number that has completed by its entry.
    tracks
        Whether entries say when they have completed.
    progress
        As the back end keeps it.
    outstanding
        By number in the ring.
    waiting
        While something is launched and not completed: ``completed``, and since when it is that
        (Unix time).
    """

    name: str
    newest_record: int = -1
    sequence: int | None = None
    settled: int = 0
    tracks: bool = False
    progress: Progress = _UNKNOWN
    outstanding: dict[int, _Outstanding] = field(default_factory=dict)
    blocks: Blocks = field(default_factory=Blocks)
    waiting: tuple[int, float] | None = None

    @property
    def launched(self) -> int | None:
        """Sequence number of the newest collective launched."""
        known = [n for n in (self.sequence, self.progress.launched) if n is not None]
        return max(known, default=None)

    @property
    def completed(self) -> int | None:
        """Sequence number of the newest collective completed; None if that is not known."""
        if self.progress.completed is not None:
            return self.progress.completed
        # A back end that keeps numbers has none before its first.
        return self.settled if self.tracks or self.progress.launched is not None else None

    def has_completed(self, operation: Operation) -> bool:
        """Return whether a collective has completed, by its entry or by its number."""
        done = self.progress.completed
        by_number = done is not None and not operation.is_p2p and operation.sequence <= done
        return operation.completed is True or by_number


class Tally:
    """What the answers of one recorder amount to.

    Parameters
    ----------
    most_groups
        How many process groups are followed; those used last.
    """

    def __init__(self, most_groups: int) -> None:
        self._most_groups = most_groups
        self._newest = -1
        self._groups: dict[int, _Group] = {}
        self._totals: dict[str, dict[str, Totals]] = {}

    def update(self, dump: Dump, now: float, group_size: GroupSize) -> None:
        """Take over what an answer says.

        Parameters
        ----------
        dump
            The answer.
        now
            When it was given (Unix time).
        group_size
            Returns the number of ranks of a group by its name; None if not known.

        Raises
        ------
        CollectiveSourceError
            If some entries cannot be used, or there are too many groups; the others are taken.
        """
        numbered = ((record_of(entry), entry) for entry in dump.entries)
        entries = {record: entry for record, entry in numbered if record is not None}
        if entries and max(entries) < self._newest:
            self.restart()
        # In the middle of a job, what the ring still holds would look like a burst just now.
        is_baseline = self._newest < 0 and min(entries, default=0) > 0
        parsed = [parse_operation(entries[n]) for n in sorted(entries) if n > self._newest]
        fresh = [operation for operation in parsed if operation is not None]
        self._refresh(entries)
        for operations in _by_group(fresh):
            self._add(operations, dump.progress, is_baseline=is_baseline)
        for group_id, group in self._groups.items():
            group.progress = dump.progress.get(group_id, _UNKNOWN)
            self._settle(group, entries, group_size(group.name))
            _note_waiting(group, now)
        self._newest = max(entries, default=self._newest)
        dropped = self._drop_groups()
        unusable = len(dump.entries) - len(entries) + len(parsed) - len(fresh)
        if unusable:
            detail = f"{unusable} of {len(dump.entries)} entries of the Flight Recorder are garbled"
            raise CollectiveSourceError("recorder_garbled", detail)
        if dropped:
            raise CollectiveSourceError(
                "too_many_groups",
                f"more than {self._most_groups} process groups, those used least recently are left "
                "out; raise collectives.max_groups",
            )

    def restart(self) -> None:
        """Forget the process, not its totals: the rank was started anew."""
        self._newest = -1
        self._groups.clear()

    def groups(self) -> tuple[GroupTelemetry, ...]:
        """Return what is known of each group, in the order of their last use."""
        by_use = sorted(self._groups.values(), key=lambda group: group.newest_record)
        # A group made anew has the name of the old one.
        newest = {group.name: group for group in by_use}
        return tuple(self._telemetry(group) for group in newest.values())

    def _refresh(self, entries: Mapping[int, Mapping[str, Any]]) -> None:
        """Read the entries of what had not completed again."""
        for group in self._groups.values():
            for record, outstanding in group.outstanding.items():
                again = parse_operation(entries[record]) if record in entries else None
                if again is not None:
                    outstanding.operation = again

    def _add(
        self,
        operations: Sequence[Operation],
        progress: Mapping[int, Progress],
        *,
        is_baseline: bool,
    ) -> None:
        """Take over the new entries of one group."""
        group = self._group_of(operations, is_baseline=is_baseline)
        group.progress = progress.get(operations[0].group_id, _UNKNOWN)
        group.newest_record = operations[-1].record
        weights = _weights(operations, group.sequence)
        for operation, weight in zip(operations, weights, strict=True):
            group.tracks |= operation.completed is not None
            if not operation.is_p2p:
                group.blocks.add(operation.sequence, operation.launched)
                group.sequence = max(operation.sequence, group.sequence or 0)
            if is_baseline and group.has_completed(operation):
                group.settled = max(group.settled, _settled(operation))
                continue
            totals = self._totals_of(group, operation.collective)
            totals.launched += weight
            if operation.is_p2p and operation.completed is None:
                continue
            totals.completed = totals.completed or 0
            if len(group.outstanding) < _MOST_OUTSTANDING:
                group.outstanding[operation.record] = _Outstanding(operation, weight)

    def _group_of(self, operations: Sequence[Operation], *, is_baseline: bool) -> _Group:
        first = operations[0]
        group = self._groups.get(first.group_id)
        if group is None or group.name != first.group or _starts_again(operations, group.sequence):
            group = _Group(first.group, sequence=None if is_baseline else 0)
            self._groups[first.group_id] = group
        return group

    def _settle(self, group: _Group, entries: Mapping[int, object], group_size: int | None) -> None:
        """Count what has completed."""
        for record, outstanding in list(group.outstanding.items()):
            operation = outstanding.operation
            # The entry was overwritten, and nobody else says when such an operation has completed.
            is_lost = record not in entries and group.progress.completed is None
            is_lost |= record not in entries and operation.is_p2p
            if not is_lost and not group.has_completed(operation):
                continue
            del group.outstanding[record]
            group.settled = max(group.settled, _settled(operation))
            totals = self._totals_of(group, operation.collective)
            _count(totals, operation, outstanding.weight, group_size)

    def _totals_of(self, group: _Group, collective: str) -> Totals:
        return self._totals.setdefault(group.name, {}).setdefault(collective, Totals())

    def _drop_groups(self) -> int:
        by_use = sorted(self._groups, key=lambda number: self._groups[number].newest_record)
        surplus = by_use[: max(0, len(by_use) - self._most_groups)]
        for group_id in surplus:
            del self._groups[group_id]
        for name in self._totals.keys() - {group.name for group in self._groups.values()}:
            del self._totals[name]
        return len(surplus)

    def _telemetry(self, group: _Group) -> GroupTelemetry:
        totals = self._totals.get(group.name, {})
        return GroupTelemetry(
            group.name,
            group.launched,
            group.progress.started,
            group.completed,
            _in_flight(group),
            {collective: replace(each) for collective, each in totals.items()},
            group.blocks.newest(),
        )


def _by_group(operations: Iterable[Operation]) -> Iterable[list[Operation]]:
    groups: dict[int, list[Operation]] = {}
    for operation in operations:
        groups.setdefault(operation.group_id, []).append(operation)
    return groups.values()


def _starts_again(operations: Sequence[Operation], before: int | None) -> bool:
    """Return whether a group with a known number was made anew and counts from the beginning."""
    sequences = [operation.sequence for operation in operations if not operation.is_p2p]
    if not sequences or before is None:
        return False
    # Threads that launch at the same time may be recorded out of order, but not by so many.
    return min(sequences) <= 1 < before or max(sequences) < before - _MOST_OUT_OF_ORDER


def _weights(operations: Sequence[Operation], before: int | None) -> list[int]:
    """Return how many collectives each entry stands for: itself, and its share of those missed.

    Parameters
    ----------
    operations
        New entries of a group.
    before
        Sequence number of its newest collective before them; None if not known.
    """
    sequences = {operation.sequence for operation in operations if not operation.is_p2p}
    if before is None or not sequences:
        return [1] * len(operations)
    missed = max(0, max(sequences) - before - len(sequences))
    number = sum(not operation.is_p2p for operation in operations)
    share, rest = divmod(missed, number)
    weights = []
    for operation in operations:
        extra = 0 if operation.is_p2p else share + (rest > 0)
        rest -= extra > share
        weights.append(1 + extra)
    return weights


def _count(totals: Totals, operation: Operation, weight: int, group_size: int | None) -> None:
    totals.completed = (totals.completed or 0) + weight
    if operation.seconds is not None:
        totals.seconds = (totals.seconds or 0) + weight * operation.seconds
    if operation.size is None:
        return
    totals.size = (totals.size or 0) + weight * operation.size
    ranks = 2 if operation.is_p2p else group_size
    factor = None if ranks is None else bus_factor(operation.collective, ranks)
    if factor is not None:
        totals.bus = (totals.bus or 0) + weight * operation.size * factor


def _settled(operation: Operation) -> int:
    return 0 if operation.is_p2p else operation.sequence


def _note_waiting(group: _Group, now: float) -> None:
    launched, completed = group.launched, group.completed
    if launched is None or completed is None or launched <= completed:
        group.waiting = None
    elif group.waiting is None or group.waiting[0] != completed:
        group.waiting = completed, now


def _in_flight(group: _Group) -> InFlight | None:
    completed = group.completed
    known = [
        each.operation
        for each in group.outstanding.values()
        if each.operation.is_p2p or completed is None or each.operation.sequence > completed
    ]
    if completed is None:
        return None
    if known:
        oldest = min(known, key=lambda operation: operation.launched)
        return InFlight(
            oldest.launched,
            oldest.sequence,
            oldest.collective,
            oldest.input,
            oldest.output,
            oldest.dtype,
        )
    return None if group.waiting is None else InFlight(group.waiting[1])
