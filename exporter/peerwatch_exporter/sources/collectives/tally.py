"""Follows one Flight Recorder from answer to answer: totals that only rise, and the newest state.

The recorder keeps its last entries only, numbered through the process. What was overwritten between
two answers is known in number, by the groups' sequence numbers, and counts as the collectives
around it. A rank that was restarted, or a group that was made anew, numbers from the beginning
again; the totals go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.flight_recorder import parse_operation, record_of
from peerwatch_exporter.sources.collectives.group_state import UNKNOWN, GroupState, Outstanding
from peerwatch_exporter.sources.collectives.numbering import transfers_before
from peerwatch_exporter.sources.collectives.telemetry import GroupTelemetry, Totals
from peerwatch_exporter.sources.collectives.volume import bus_factor

if TYPE_CHECKING:
    from peerwatch_exporter.sources.collectives.flight_recorder import Dump, Operation, Progress

# More than any ring in use; a back end that completes nothing must not fill memory.
_MOST_OUTSTANDING = 8192
# Chosen: only threads that launch at the same time get there, and a rank has a few.
_MOST_OUT_OF_ORDER = 64

GroupSize = Callable[[str], int | None]


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
        self._groups: dict[int, GroupState] = {}
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
        by_group = _by_group(fresh)
        for operations in by_group:
            self._prepare(operations, is_baseline=is_baseline)
        missed = min((n for n in entries if n > self._newest), default=0) - self._newest - 1
        transfers = self._transfers(by_group, max(0, missed))
        for operations in by_group:
            before = transfers.get(operations[0].group_id, 0)
            self._add(operations, dump.progress, before, is_baseline=is_baseline)
        for group_id, group in self._groups.items():
            group.progress = dump.progress.get(group_id, UNKNOWN)
            self._count_completed(group, entries, group_size(group.name))
            group.note_waiting(now)
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
                    number = outstanding.operation.sequence
                    outstanding.operation = replace(again, sequence=number)

    def _prepare(self, operations: Sequence[Operation], *, is_baseline: bool) -> None:
        """Make the group of some new entries, if there is none or it was made anew."""
        first = operations[0]
        group = self._groups.get(first.group_id)
        if (
            group is None
            or group.name != first.group
            or _starts_again(operations, group.raw_sequence)
        ):
            self._groups[first.group_id] = GroupState(
                first.group, sequence=None if is_baseline else 0
            )

    def _transfers(
        self, by_group: Sequence[Sequence[Operation]], missed: int
    ) -> dict[int, int | None]:
        gaps, mixed = {}, set()
        for operations in by_group:
            if any(each.is_p2p or each.completed is not None for each in operations):
                return {}  # a back end that numbers them apart
            group_id, group = operations[0].group_id, self._groups[operations[0].group_id]
            gaps[group_id] = max(0, operations[0].sequence - group.raw_sequence - 1)
            inside = operations[-1].sequence - operations[0].sequence + 1 - len(operations)
            if group.transfers != 0 or inside > 0:
                mixed.add(group_id)
        return transfers_before(gaps, missed, mixed)

    def _add(
        self,
        operations: Sequence[Operation],
        progress: Mapping[int, Progress],
        before: int | None,
        *,
        is_baseline: bool,
    ) -> None:
        """Take over the new entries of one group; ``before`` them there were so many transfers."""
        group = self._groups[operations[0].group_id]
        group.progress = progress.get(operations[0].group_id, UNKNOWN)
        group.newest_record = operations[-1].record
        numbered, transfers = _numbered(operations, group, before)
        for operation, weight, skipped in zip(
            numbered, _weights(numbered, group.sequence), transfers, strict=True
        ):
            group.tracks |= operation.completed is not None
            if not operation.is_p2p:
                group.blocks.add(operation.sequence, operation.launched)
                group.sequence = max(operation.sequence, group.sequence or 0)
            if is_baseline and group.has_completed(operation, skipped):
                group.note_completed(operation)
                continue
            totals = self._totals_of(group, operation.collective)
            totals.launched += weight
            if operation.is_p2p and operation.completed is None:
                continue
            totals.completed = totals.completed or 0
            if len(group.outstanding) < _MOST_OUTSTANDING:
                kept = Outstanding(operation, weight, skipped)
                group.outstanding[operation.record] = kept
        if before is None:
            group.transfers = None
        elif group.transfers is not None:
            group.transfers = transfers[-1]

    def _count_completed(
        self, group: GroupState, entries: Mapping[int, object], group_size: int | None
    ) -> None:
        """Count what has completed."""
        for record, outstanding in list(group.outstanding.items()):
            operation = outstanding.operation
            # The entry was overwritten, and nobody else says when such an operation has completed.
            is_lost = record not in entries and group.progress.completed is None
            is_lost |= record not in entries and operation.is_p2p
            if not is_lost and not group.has_completed(operation, outstanding.transfers):
                continue
            del group.outstanding[record]
            group.note_completed(operation)
            totals = self._totals_of(group, operation.collective)
            _count(totals, operation, outstanding.weight, group_size)

    def _totals_of(self, group: GroupState, collective: str) -> Totals:
        return self._totals.setdefault(group.name, {}).setdefault(collective, Totals())

    def _drop_groups(self) -> int:
        by_use = sorted(self._groups, key=lambda number: self._groups[number].newest_record)
        surplus = by_use[: max(0, len(by_use) - self._most_groups)]
        for group_id in surplus:
            del self._groups[group_id]
        for name in self._totals.keys() - {group.name for group in self._groups.values()}:
            del self._totals[name]
        return len(surplus)

    def _telemetry(self, group: GroupState) -> GroupTelemetry:
        totals = self._totals.get(group.name, {})
        is_numbered = group.transfers is not None
        return GroupTelemetry(
            group.name,
            group.launched if is_numbered else None,
            group.progress.started,
            group.completed if is_numbered else None,
            group.in_flight(),
            {collective: replace(each) for collective, each in totals.items()},
            group.blocks.newest() if is_numbered else None,
        )


def _by_group(operations: Iterable[Operation]) -> list[list[Operation]]:
    groups: dict[int, list[Operation]] = {}
    for operation in operations:
        groups.setdefault(operation.group_id, []).append(operation)
    return list(groups.values())


def _numbered(
    operations: Sequence[Operation], group: GroupState, before: int | None
) -> tuple[list[Operation], list[int]]:
    """Return operations numbered without transfers, and how many of those came before each."""
    if any(each.is_p2p or each.completed is not None for each in operations):
        return list(operations), [0] * len(operations)
    numbered, transfers = [], []
    skipped = (group.transfers or 0) + (before or 0)
    last = operations[0].sequence - 1
    for operation in operations:
        skipped += max(0, operation.sequence - last - 1)
        last = max(last, operation.sequence)
        number = max(0, operation.sequence - skipped)
        numbered.append(replace(operation, sequence=number) if skipped else operation)
        transfers.append(skipped)
    return numbered, transfers


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
