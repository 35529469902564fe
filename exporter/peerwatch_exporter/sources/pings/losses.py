"""Which pings of one target are lost, and on the way there or on the way back.

Every answer says how many requests of the session the peer has received. Of the pings that were
sent before and got no answer, those that the peer has not received were lost on the way to it, the
others on the way back. That is known once the next answer comes; if none comes for long, the
direction is not known.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from peerwatch_exporter.sources.pings.totals import PingTotals, Target


class _Sent(NamedTuple):
    sequence: int
    time: float


class Losses:
    """Pings of one target whose end is not known yet.

    Parameters
    ----------
    target
        What is pinged.
    totals
        Where they are counted.
    timeout_seconds
        From when on a ping is lost.
    patience_seconds
        How long a lost ping waits for an answer that tells its direction.
    """

    def __init__(
        self, target: Target, totals: PingTotals, timeout_seconds: float, patience_seconds: float
    ) -> None:
        self._target = target
        self._totals = totals
        self._timeout = timeout_seconds
        self._patience = patience_seconds
        self._open: deque[_Sent] = deque()
        # Requests that did not arrive, as of the newest answer; None before the first.
        self._missing: int | None = None
        self._newest = 0
        self._received = 0

    def sent(self, sequence: int, now: float) -> None:
        """Note a ping that was sent at the monotonic time ``now``."""
        self._open.append(_Sent(sequence, now))

    def is_open(self, sequence: int) -> bool:
        """Whether an answer to a ping is still waited for."""
        return any(each.sequence == sequence for each in self._open)

    def withdraw(self, sequence: int) -> None:
        """Count a ping neither as answered nor as lost."""
        self._open = deque(each for each in self._open if each.sequence != sequence)

    def answered(self, sequence: int, received: int, seconds: float, now: float) -> None:
        """Count an answer, and what was lost before it.

        Parameters
        ----------
        sequence
            Number of the ping.
        received
            How many pings of the session had reached the peer.
        seconds
            The round trip; longer than the timeout, it counts as lost on the way back.
        now
            Monotonic time.
        """
        if not self.is_open(sequence):
            return
        self.withdraw(sequence)
        if seconds <= self._timeout:
            self._totals.answered(self._target, seconds)
        else:
            self._totals.lost(self._target, "from_peer")
        if sequence > self._newest:
            self._lost_before(sequence, received, now)

    def _lost_before(self, sequence: int, received: int, now: float) -> None:
        # Those not yet due may still be answered, in another order.
        due = [
            each
            for each in self._open
            if each.sequence < sequence and each.time + self._timeout <= now
        ]
        missing = sequence - received
        # A peer that was started again counts from 1.
        known = self._missing is not None and received > self._received
        there = min(len(due), max(0, missing - (self._missing or 0))) if known else 0
        direction_known = known or not due
        if direction_known:
            self._totals.lost(self._target, "to_peer", there)
            self._totals.lost(self._target, "from_peer", len(due) - there)
        else:
            self._totals.lost(self._target, "unknown", len(due))
        counted = {each.sequence for each in due}
        self._open = deque(each for each in self._open if each.sequence not in counted)
        waiting = sum(each.sequence < sequence for each in self._open)
        # What is not due yet is not counted as missing before it is.
        self._missing = max(self._missing or 0, missing - waiting) if known else missing
        self._newest, self._received = sequence, received

    def expire(self, now: float) -> None:
        """Count what has waited too long for an answer that tells its direction."""
        while self._open and self._open[0].time + self._timeout + self._patience <= now:
            self._open.popleft()
            self._totals.lost(self._target, "unknown")
