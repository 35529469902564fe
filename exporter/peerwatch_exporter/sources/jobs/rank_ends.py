"""How long ranks have been stopped, dead or gone, and with which code or signal they ended.

What can be known of an end: an exception, from the hook's last words in the heartbeat file; code or
signal while the process is a zombie, from its ``stat`` file. A process that was killed and reaped
within a second says nothing; that it left its heartbeat file shows that it did not end normally.

A program may end long before its process: NCCL's communicators are torn down after the exception,
and wait for the peers that wait for this rank. So last words count from when they were said.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_exporter.sources.host.processes import ProcessTable
    from peerwatch_exporter.sources.jobs.heartbeat import Heartbeat

HALTED = ("stopped", "zombie", "exited")

RankKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended; what is not known is empty.

    Parameters
    ----------
    code
        Of ``exit``.
    signal
        Name of the signal that killed it.
    error
        Class of the exception that nobody caught.
    """

    code: str = ""
    signal: str = ""
    error: str = ""


def exit_of_status(status: int) -> Exit:
    """Return what a status as of ``waitpid`` says."""
    number = status & 0x7F
    if not number:
        return Exit(code=str(status >> 8 & 0xFF))
    try:
        return Exit(signal=signal.Signals(number).name)
    except ValueError:  # a real-time signal
        return Exit(signal=f"SIG{number}")


@dataclass(slots=True)
class _Rank:
    pid: int | None
    state: str
    since: float
    read: float
    stopped: float = 0.0
    ended: Exit | None = None
    # When its program ended with an exception, by the monotonic clock.
    failed: float | None = None


class RankEnds:
    """Follows the states of ranks from one reading to the next; for one thread.

    Parameters
    ----------
    table
        The node's processes.
    clock, monotonic
        Unix time, and seconds that only rise.
    """

    def __init__(
        self, table: ProcessTable, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._table = table
        self._clock = clock
        self._monotonic = monotonic
        self._ranks: dict[RankKey, _Rank] = {}
        self._followed: dict[RankKey, _Rank] = {}

    def begin(self) -> None:
        """Begin a reading of all ranks; those that are not followed in it are forgotten."""
        self._ranks, self._followed = self._followed, {}

    def follow(
        self, key: RankKey, pid: int | None, state: str, heartbeat: Heartbeat | None
    ) -> None:
        """Take in the state of a rank's main process.

        Parameters
        ----------
        key
            Job and number of the rank.
        pid, state
            Of its main process; the state may be unknown ("").
        heartbeat
            What the rank said last.
        """
        now = self._monotonic()
        rank = self._ranks.get(key)
        if rank is None or (rank.pid != pid and pid is not None):
            stopped = 0.0 if rank is None else rank.stopped
            age = self._age(heartbeat) if state in HALTED else 0.0
            rank = _Rank(pid, state, now - age, now, stopped)
        elif rank.state != state:
            rank.state, rank.since = state, now
        elif state == "stopped":
            rank.stopped += now - rank.read
        rank.read = now
        if state == "zombie" and rank.ended is None and pid is not None:
            status = self._table.exit_status(pid)
            rank.ended = None if status is None else exit_of_status(status)
        # Last words of this process: a file may be left from the rank's last start.
        said = heartbeat if heartbeat is not None and heartbeat.pid == rank.pid else None
        if said is not None and said.error:
            self._note_error(rank, said, state)
        self._followed[key] = rank

    def halted_seconds(self, key: RankKey) -> float | None:
        """Return how long the rank has been stopped, or its program over; None while it lives."""
        rank = self._followed[key]
        if rank.failed is not None:
            return max(0.0, rank.read - rank.failed)
        return max(0.0, rank.read - rank.since) if rank.state in HALTED else None

    def stopped_seconds(self, key: RankKey) -> float:
        """Return how long the rank has been stopped in all, as far as was seen."""
        return self._followed[key].stopped

    def ended(self, key: RankKey) -> Exit | None:
        """Return how the rank ended; None while its program runs, or if nothing is known."""
        rank = self._followed[key]
        over = rank.state in ("zombie", "exited") or rank.failed is not None
        return rank.ended if over else None

    def _note_error(self, rank: _Rank, said: Heartbeat, state: str) -> None:
        """Take in the exception of which a rank's program ended."""
        gone = state in ("zombie", "exited")
        if said.ended is None and not gone:
            return
        ended = rank.ended or Exit()
        code = "1" if gone and not (ended.code or ended.signal) else ended.code
        rank.ended = replace(ended, code=code, error=said.error)
        if said.ended is not None and rank.failed is None:
            rank.failed = rank.read - self._age(said)

    def _age(self, heartbeat: Heartbeat | None) -> float:
        """Return how long ago a rank gave its last sign that was halted when it was first seen."""
        if heartbeat is None:
            return 0.0
        last = heartbeat.time if heartbeat.ended is None else heartbeat.ended
        return max(0.0, self._clock() - last)
