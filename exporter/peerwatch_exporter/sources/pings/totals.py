"""What pings found: sent, lost and the time they took, by peer, protocol and size."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

Direction = Literal["to_peer", "from_peer", "unknown"]
DIRECTIONS: tuple[Direction, ...] = ("to_peer", "from_peer", "unknown")
# Of so many answers shortest and 99th percentile are known: 5 to 15 minutes at 10 pings a second.
_NEWEST = 200


class Target(NamedTuple):
    """What is pinged: a peer's address, by ``udp``, ``tcp`` or ``rdma``, in which size."""

    peer: str
    protocol: str
    size: str


@dataclass(slots=True)
class Counts:
    """What is known of one target.

    Parameters
    ----------
    sent
        Pings that were answered or lost.
    lost
        Those lost, by the direction in which they were.
    seconds
        Sum of the round trips of those answered.
    newest
        The newest round trips, in seconds.
    """

    sent: int = 0
    lost: dict[Direction, int] = field(default_factory=lambda: dict.fromkeys(DIRECTIONS, 0))
    seconds: float = 0.0
    newest: deque[float] = field(default_factory=lambda: deque(maxlen=_NEWEST))

    def copy(self) -> Counts:
        """Return a copy that does not change."""
        return Counts(self.sent, dict(self.lost), self.seconds, self.newest.copy())

    @property
    def shortest(self) -> float:
        """Shortest of the newest round trips; there is one."""
        return min(self.newest)

    @property
    def p99(self) -> float:
        """Which 99 % of the newest round trips do not exceed; there is one."""
        ordered = sorted(self.newest)
        return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


class PingTotals:
    """Counts by target; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Target, Counts] = {}

    def answered(self, target: Target, seconds: float) -> None:
        """Count a ping that was answered after a round trip of ``seconds``."""
        with self._lock:
            counts = self._counts.setdefault(target, Counts())
            counts.sent += 1
            counts.seconds += seconds
            counts.newest.append(seconds)

    def lost(self, target: Target, direction: Direction, number: int = 1) -> None:
        """Count pings that were lost."""
        if number:
            with self._lock:
                counts = self._counts.setdefault(target, Counts())
                counts.sent += number
                counts.lost[direction] += number

    def keep(self, peers: Collection[str]) -> None:
        """Forget all other peers."""
        with self._lock:
            self._counts = {key: each for key, each in self._counts.items() if key.peer in peers}

    def read(self) -> dict[Target, Counts]:
        """Return a copy of what is known now."""
        with self._lock:
            return {target: counts.copy() for target, counts in sorted(self._counts.items())}
