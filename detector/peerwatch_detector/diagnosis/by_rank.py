"""The series of ranks: which rank each is of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from peerwatch_detector.frame import Series

# Labels are anybody's text, and Python refuses to read numbers of thousands of digits. Seven are
# ten million ranks, more than any job has.
_MOST_DIGITS = 7


def number_of(text: str) -> int | None:
    """Return the rank or the number of ranks that a label says; None if it is neither."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def by_rank(series: Iterable[Series]) -> Iterator[tuple[int, Mapping[str, str], float]]:
    """Yield rank, labels and value of each series; what has no rank or no number is left out."""
    for sample in series:
        rank, value = number_of(sample.labels.get("rank", "")), float(sample.values[-1])
        if rank is not None and math.isfinite(value):
            yield rank, sample.labels, value
