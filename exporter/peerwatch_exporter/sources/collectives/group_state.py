"""What is known of one process group of one process, between two answers of the recorder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.collectives.blocks import Blocks
from peerwatch_exporter.sources.collectives.flight_recorder import Progress
from peerwatch_exporter.sources.collectives.telemetry import InFlight

if TYPE_CHECKING:
    from peerwatch_exporter.sources.collectives.flight_recorder import Operation

UNKNOWN = Progress(None, None, None)


@dataclass(slots=True)
class Outstanding:
    """A collective that has not completed; it stands for ``weight`` of them."""

    operation: Operation
    weight: int
    transfers: int


@dataclass(slots=True)
class GroupState:
    """One process group of one process.

    Parameters
    ----------
    name
        As on all ranks.
    sequence
        Of the newest collective; None before the first that is known.
    transfers
        How many sends and receives its back end numbered with them, see ``numbering``; None once
        that cannot be told.
    newest_completed
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
    transfers: int | None = 0
    newest_completed: int = 0
    tracks: bool = False
    progress: Progress = UNKNOWN
    outstanding: dict[int, Outstanding] = field(default_factory=dict)
    blocks: Blocks = field(default_factory=Blocks)
    waiting: tuple[int, float] | None = None

    @property
    def launched(self) -> int | None:
        """Sequence number of the newest collective launched."""
        if self.transfers != 0:
            return self.sequence
        known = [n for n in (self.sequence, self.progress.launched) if n is not None]
        return max(known, default=None)

    @property
    def completed(self) -> int | None:
        """Sequence number of the newest collective completed; None if that is not known."""
        done = self.progress.completed
        if self.transfers == 0 and done is not None:
            return done
        if self.transfers != 0:
            numbers = (each.operation.sequence for each in self.outstanding.values())
            return min((number - 1 for number in numbers), default=self.sequence)
        # A back end that keeps numbers has none before its first.
        return self.newest_completed if self.tracks or self.progress.launched is not None else None

    @property
    def is_waiting(self) -> bool:
        """Return whether something is in flight, as far as numbers say."""
        if self.transfers != 0:
            done, launched = self.progress.completed, self.progress.launched
        else:
            done, launched = self.completed, self.launched
        return launched is not None and done is not None and launched > done

    def has_completed(self, operation: Operation, transfers: int | None) -> bool:
        """Return whether a collective has completed, by its entry or by its number."""
        done = self.progress.completed
        number = operation.sequence + (transfers or 0)
        by_number = done is not None and not operation.is_p2p and number <= done
        return operation.completed is True or by_number

    def note_completed(self, operation: Operation) -> None:
        """Remember the number of a collective that has completed; transfers have none."""
        if not operation.is_p2p:
            self.newest_completed = max(self.newest_completed, operation.sequence)

    @property
    def raw_sequence(self) -> int:
        """Number of the newest collective as its back end counts."""
        return (self.sequence or 0) + (self.transfers or 0)

    def note_waiting(self, now: float) -> None:
        """Note since when nothing completes although something is in flight."""
        done = self.progress.completed if self.transfers != 0 else self.completed
        if not self.is_waiting or done is None:
            self.waiting = None
        elif self.waiting is None or self.waiting[0] != done:
            self.waiting = done, now

    def in_flight(self) -> InFlight | None:
        """Return the oldest collective in flight; None if nothing is, as far as is known."""
        completed = self.completed
        if completed is None:
            return None
        known = [
            each.operation
            for each in self.outstanding.values()
            if each.operation.is_p2p or each.operation.sequence > completed
        ]
        if not known:
            return None if self.waiting is None else InFlight(self.waiting[1])
        oldest = min(known, key=lambda operation: operation.launched)
        return InFlight(
            oldest.launched,
            oldest.sequence,
            oldest.collective,
            oldest.input,
            oldest.output,
            oldest.dtype,
        )
