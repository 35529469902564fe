"""The series of ranks: which rank each is of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from peerwatch_detector.frame import Series

_MOST_DIGITS = 7


def by_rank(series: Iterable[Series]) -> Iterator[tuple[int, Mapping[str, str], float]]:
    """Yield rank, labels and value of each series; those without a rank are left out."""
    for sample in series:
        rank = sample.labels.get("rank", "")
        if rank.isascii() and rank.isdecimal() and len(rank) <= _MOST_DIGITS:
            yield int(rank), sample.labels, float(sample.values[-1])
