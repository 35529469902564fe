"""The first error of a rank: the earliest that does not follow from another one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from peerwatch_common.signatures.signature import EventClass

if TYPE_CHECKING:
    from peerwatch_common.signatures.event import Event


class FirstError:
    """What one rank reported, in one of its attempts to run.

    The earliest event that is no cascade is the candidate for the root. Lines may be read in
    another order than they were written, such as those of two files: times decide, and the order of
    reading among lines that have none. What repeats, or follows, is counted. Noise is neither.

    Attributes
    ----------
    candidate
        The candidate for the root; None as long as there are only cascades.
    time
        When it was written (Unix time), as well as that is known.
    cascades
        How many events followed from others, by signature.
    repeated
        How many more events were no cascades, by signature.
    """

    def __init__(self) -> None:
        self.candidate: Event | None = None
        self.time = 0.0
        self.cascades: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()

    def add(self, event: Event, read_time: float) -> None:
        """Take an event.

        Parameters
        ----------
        event
            Of this rank.
        read_time
            When it was read (Unix time), which counts if the line has no time of its own.
        """
        if event.signature.event_class is EventClass.NOISE:
            return
        if event.cascade:
            self.cascades[event.signature.id] += 1
            return
        time = read_time if event.timestamp is None else event.timestamp
        if self.candidate is not None:
            is_later = time >= self.time
            later = event if is_later else self.candidate
            self.repeated[later.signature.id] += 1
            if is_later:
                return
        self.candidate, self.time = event, time
