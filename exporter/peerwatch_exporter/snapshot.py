"""What one tick of the clock found, and how the collectors' families become one exposition."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_common.metrics.spec import Family

_labels_of = itemgetter(0)


@dataclass(frozen=True, slots=True)
class FastSnapshot:
    """The fast endpoint's values of one tick.

    Parameters
    ----------
    time
        When they were read (Unix time).
    families
        One family per fast metric that has a value.
    """

    time: float
    families: tuple[Family, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the endpoints expose of one tick; nobody changes it once it is made.

    Parameters
    ----------
    number
        Counts the snapshots since the start, from 1.
    time, monotonic
        When the tick was (Unix time), and by the clock for durations.
    families
        The full exposition, each metric once, the exporter's own included.
    own
        What the exporter says about itself, for an exposition without the collectors.
    fast_history
        The fast endpoint's values of this tick and, if history is kept, of those before; oldest
        first.
    """

    number: int
    time: float
    monotonic: float
    families: tuple[Family, ...]
    own: tuple[Family, ...]
    fast_history: tuple[FastSnapshot, ...]

    @property
    def first_in_history(self) -> int:
        """The number of the snapshot that the oldest of them belongs to."""
        return self.number - len(self.fast_history) + 1


def merge(families: Iterable[Family]) -> list[Family]:
    """Join families of the same name, as an exposition declares each name once; drop empty ones."""
    merged: dict[str, Family] = {}
    joined: set[str] = set()
    for item in families:
        if not item.rows:
            continue
        name = item.spec.name
        first = merged.setdefault(name, item)
        if first is item:
            continue
        if name not in joined:
            # An older snapshot may hold the first one: join in a new family.
            merged[name] = first = _copy(first, first.rows)
            joined.add(name)
        seen = {labels for labels, _ in first.rows}
        first.rows += [row for row in item.rows if row[0] not in seen]
    return list(merged.values())


class Distinct:
    """Leaves every label set once in the families of one collector.

    It remembers what it let pass: mostly the label sets are the same a second later, and often
    the values too. A family that says nothing new is the very same object again, so that nobody
    has to compare it again.
    """

    def __init__(self) -> None:
        self._passed: dict[str, Family] = {}
        self._labels: dict[str, list[tuple[str, ...]]] = {}

    def __call__(self, families: Iterable[Family]) -> tuple[Family, ...]:
        """Return the families with every label set once; of several the first value counts."""
        passed = self._passed
        found = []
        for item in families:
            before = passed.get(item.spec.name)
            if before is not item and (before is None or before.rows != item.rows):
                before = self._distinct(item)
            found.append(before)
        return tuple(found)

    def _distinct(self, item: Family) -> Family:
        name = item.spec.name
        labels = list(map(_labels_of, item.rows))
        if self._labels.get(name) != labels:
            if len(set(labels)) < len(labels):
                return _copy(item, list(dict(reversed(item.rows)).items())[::-1])
            self._labels[name] = labels
        self._passed[name] = item
        return item


def limit_series(families: Sequence[Family], most: int) -> tuple[tuple[Family, ...], int]:
    """Return the families with ``most`` rows at most, and how many were left out.

    The last rows go: a flood of labels keeps what came before it.
    """
    dropped = sum(len(item.rows) for item in families) - most
    if dropped <= 0:
        return tuple(families), 0
    kept: list[Family] = []
    room = most
    for item in families:
        rows = item.rows[:room]
        room -= len(rows)
        kept.append(_copy(item, rows))
    return tuple(kept), dropped


def _copy(item: Family, rows: Sequence[tuple[tuple[str, ...], float]]) -> Family:
    copied = item.spec.family()
    copied.rows = list(rows)
    return copied
