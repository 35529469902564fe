"""Mean arrival of a group's collectives in blocks of them, the same blocks on every rank.

A block is the sequence numbers [m K, (m + 1) K) with K a power of two. All ranks of a group number
its collectives alike, so ranks that know nothing of each other cut the same blocks, and the
difference of their means is how much later one of them arrives. One collective says little;
the mean of some seconds of them can be scraped every 15 s and loses nothing.

Adding a collective takes a constant time on average: finished blocks merge in pairs like the carry
of a binary counter.
"""

from __future__ import annotations

from typing import NamedTuple

from peerwatch_exporter.sources.collectives.telemetry import Block

# A usual scrape interval: shorter blocks would be lost between two scrapes.
BLOCK_SECONDS = 15.0
_MOST_LEVELS = 32  # 2**32 collectives: no job has as many in 15 s


class _Span(NamedTuple):
    """Successive collectives; ``seconds`` from the one before them to their last."""

    first: int
    size: int
    arrival: float
    seconds: float


class Blocks:
    """The newest finished block of one group.

    K is the smallest power of two whose last two blocks took at least ``BLOCK_SECONDS``: two, so
    that a pause for a checkpoint does not make blocks of one collective. It follows from arrivals
    alone, which hardly differ between ranks, and so do not their K.
    """

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._waiting: list[_Span | None] = [None] * _MOST_LEVELS
        self._finished: list[tuple[_Span, _Span | None] | None] = [None] * _MOST_LEVELS
        self._newest: Block | None = None

    def add(self, sequence: int, arrival: float) -> None:
        """Add a collective: its sequence number, and when it was launched (Unix time).

        They come in the order of their numbers. Several launched as one have one number.
        """
        last = self._last
        if last is not None and sequence <= last[0]:
            return
        self._last = sequence, arrival
        if last is None or sequence != last[0] + 1:
            self._waiting = [None] * _MOST_LEVELS
            return
        span = _Span(sequence, 1, arrival, arrival - last[1])
        for level in range(_MOST_LEVELS):
            before = self._finished[level]
            self._finished[level] = span, None if before is None else before[0]
            if (span.first >> level) % 2 == 0:
                self._waiting[level] = span
                return
            even, self._waiting[level] = self._waiting[level], None
            if even is None:
                return
            span = _Span(
                even.first,
                even.size + span.size,
                (even.arrival + span.arrival) / 2,
                even.seconds + span.seconds,
            )

    def newest(self) -> Block | None:
        """Return the newest finished block; None before there is one."""
        for pair in self._finished:
            if pair is None:
                continue
            span, before = pair
            if span.seconds < BLOCK_SECONDS or before is None or before.seconds < BLOCK_SECONDS:
                continue
            end = span.first + span.size
            # Where K has just grown, its newest block may be older than what was published.
            if self._newest is None or end > self._newest.end:
                self._newest = Block(end, span.size, span.arrival)
            break
        return self._newest
