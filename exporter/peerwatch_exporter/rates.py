"""Sums counters over a node's devices, and says how fast each sum rises.

The sum of raw values would fall when a device is taken out and jump when it comes back, and both
look like a reset or a burst to whoever takes a rate. So rises are added up, device by device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_exporter.catalog import Family

Labels = tuple[str, ...]

# A mean over more than this is no rate of the last second.
_LONGEST_STEP_SECONDS = 10.0
# A series not seen for this long is forgotten; if it comes back, it is new.
_FORGET_SECONDS = 60.0
# Garbled counters can be longer than any float.
LARGEST = 1e300
_RESET = math.nan


class Rise(NamedTuple):
    """A sum of counters.

    Parameters
    ----------
    total
        The sum, which never falls.
    rate
        Its rise per second between the last two runs; ``None`` if a counter was reset, or if
        there was only one run so far.
    """

    total: float
    rate: float | None


@dataclass(slots=True)
class _Series:
    """The newest of one series; of one that does not count, only when it was seen."""

    group: Labels | None
    started: float
    value: float = 0
    rate: float | None = None

    def step(self, value: float, started: float) -> float:
        """Take a new value; return its rise."""
        rise, seconds = value - self.value, started - self.started
        self.value, self.started = value, started
        if rise < 0:
            self.rate = _RESET
            return 0
        self.rate = rise / seconds if seconds <= _LONGEST_STEP_SECONDS else None
        return rise


class CounterSum:
    """Adds the rises of some metrics' series, by group.

    Parameters
    ----------
    metrics
        Names of the counters; a group without a series of each has no sum.
    group_of
        The group of a series of a metric: label values, or ``None`` if it does not count.
    """

    def __init__(
        self, metrics: Sequence[str], group_of: Callable[[str, Labels], Labels | None]
    ) -> None:
        self._metrics = tuple(metrics)
        self._group_of = group_of
        self._series: dict[str, dict[Labels, _Series]] = {name: {} for name in metrics}
        self._totals: dict[Labels, float] = {}

    def update(self, families: Mapping[str, Sequence[tuple[Family, float]]]) -> dict[Labels, Rise]:
        """Return the sum of each group that has values now.

        Parameters
        ----------
        families
            By metric: what was read, and when that run began (monotonic seconds). A run that was
            seen before keeps its rates.
        """
        # A group's first total is the sum of its devices; a device that comes later adds rises.
        began = frozenset(self._totals)
        found = [
            self._read(name, item, started, began)
            for name in self._metrics
            for item, started in families.get(name, ())
        ]
        complete = None
        for name in self._metrics:
            groups = {group for read, rates in found if read == name for group in rates}
            complete = groups if complete is None else complete & groups
        return {group: self._rise(group, found) for group in sorted(complete or ())}

    def _rise(
        self, group: Labels, found: Sequence[tuple[str, Mapping[Labels, list[float]]]]
    ) -> Rise:
        rates = [rate for _, read in found for rate in read.get(group, ())]
        total = sum(rates)
        return Rise(self._totals[group], None if not rates or math.isnan(total) else total)

    def _read(
        self, name: str, item: Family, started: float, began: frozenset[Labels]
    ) -> tuple[str, dict[Labels, list[float]]]:
        """Take a family's values; return the rates of its series by group."""
        known = self._series[name]
        totals = self._totals
        rates: dict[Labels, list[float]] = {}
        for labels, value in item.rows:
            # Also leaves NaN out.
            if not 0 <= value < LARGEST:
                continue
            series = known.get(labels)
            if series is None:
                series = known[labels] = _Series(self._group_of(name, labels), started, value)
                if series.group is not None:
                    new = series.group not in began
                    totals[series.group] = totals.get(series.group, 0) + (value if new else 0)
            if series.group is None:
                series.started = started
                continue
            if started > series.started:
                totals[series.group] += series.step(value, started)
            found = rates.setdefault(series.group, [])
            if series.rate is not None:
                found.append(series.rate)
        if len(known) > len(item.rows):
            _forget(known, started - _FORGET_SECONDS)
        return name, rates


def _forget(known: dict[Labels, _Series], before: float) -> None:
    for labels in [labels for labels, series in known.items() if series.started < before]:
        del known[labels]
