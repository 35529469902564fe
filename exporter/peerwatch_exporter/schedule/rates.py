"""Sums counters over a node's devices, with the rate of each sum.

The sum of raw values would fall when a device is taken out and jump when it comes back, and both
appear as a reset or a burst to whoever takes a rate. So rises are added up, device by device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.schedule.fast_metrics import Labels

# A mean over more than ten ticks is no rate of the last second.
LONGEST_STEP_SECONDS = 10.0
# A series not seen for this long is forgotten; if it comes back, it is new. Chosen: a collector
# that hangs or a process that is started again is back sooner.
_FORGET_SECONDS = 60.0
# Garbled counters can be longer than any float.
LARGEST = 1e300
_RESET = math.nan
_labels_of = itemgetter(0)


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
    """The newest of one series."""

    group: Labels
    started: float
    value: float = 0
    rate: float | None = None

    def step(self, value: float, started: float, longest: float) -> float:
        """Take a new value; return its rise."""
        rise, seconds = value - self.value, started - self.started
        self.value, self.started = value, started
        if rise < 0:
            self.rate = _RESET
            return 0
        self.rate = rise / seconds if seconds <= longest else None
        return rise


@dataclass(slots=True)
class _Read:
    """What came of a family whose values were all taken: if it comes again, none has risen.

    Parameters
    ----------
    item
        The family.
    series
        Its series that count.
    started
        When the run began to read.
    rates
        Those of its series, by group; the same object as long as all of them stay 0.
    still
        Whether they are 0; the series are not told of the runs since they became so.
    """

    item: Family
    series: Sequence[_Series]
    started: float
    rates: Mapping[Labels, list[float]]
    still: bool = False

    def again(self, started: float, longest: float) -> None:
        """Take a run that found the very same values."""
        if started <= self.started:
            return
        is_rate = started - self.started <= longest
        self.started = started
        if self.still and is_rate:
            return
        self.still = is_rate
        rates: dict[Labels, list[float]] = {series.group: [] for series in self.series}
        self.update_series()
        for series in self.series if is_rate else ():
            rates[series.group].append(0.0)
        self.rates = rates

    def update_series(self) -> None:
        """Tell the series of the newest run, before somebody looks at them."""
        rate = 0.0 if self.still else None
        for series in self.series:
            series.started, series.rate = self.started, rate


_NO_PLACES: tuple[list[Labels] | None, list[tuple[int, _Series | None]]] = (None, [])


class CounterSum:
    """Adds the rises of some metrics' series, by group.

    Parameters
    ----------
    metrics
        Names of the counters; a group without a series of each has no sum.
    group_of
        The group of a series of a metric: label values, or ``None`` if it does not count.
    longest_step_seconds
        A rise over more than this has no rate.

    Attributes
    ----------
    rises
        What ``update`` returned last.
    """

    def __init__(
        self,
        metrics: Sequence[str],
        group_of: Callable[[str, Labels], Labels | None],
        longest_step_seconds: float = LONGEST_STEP_SECONDS,
    ) -> None:
        self._longest_step_seconds = longest_step_seconds
        self._metrics = tuple(metrics)
        self._group_of = group_of
        self._series: dict[str, dict[Labels, _Series]] = {name: {} for name in metrics}
        self._totals: dict[Labels, float] = {}
        # By metric: labels in the order they came last, and the rows that count with their series.
        self._places: dict[str, tuple[list[Labels], list[tuple[int, _Series | None]]]] = {}
        self._newest: dict[str, _Read] = {}
        self._found: list[tuple[str, Mapping[Labels, list[float]]]] = []
        self.rises: dict[Labels, Rise] = {}

    def update(self, families: Mapping[str, Sequence[tuple[Family, float]]]) -> dict[Labels, Rise]:
        """Return the sum of each group that has values now; the same object if none has risen.

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
        # Rates that were made anew are those of other values.
        unchanged = [
            name == earlier and rates is before
            for (name, rates), (earlier, before) in zip(found, self._found, strict=False)
        ]
        if len(found) == len(self._found) and all(unchanged):
            return self.rises
        complete = None
        for name in self._metrics:
            groups = {group for read, rates in found if read == name for group in rates}
            complete = groups if complete is None else complete & groups
        self._found = found
        self.rises = {group: self._rise(group, found) for group in sorted(complete or ())}
        return self.rises

    def _rise(
        self, group: Labels, found: Sequence[tuple[str, Mapping[Labels, list[float]]]]
    ) -> Rise:
        rates = [rate for _, read in found for rate in read.get(group, ())]
        total = sum(rates)
        return Rise(self._totals[group], None if not rates or math.isnan(total) else total)

    def _read(
        self, name: str, item: Family, started: float, began: frozenset[Labels]
    ) -> tuple[str, Mapping[Labels, list[float]]]:
        """Take a family's values; return the rates of its series by group."""
        newest = self._newest.get(name)
        # Most counters of a healthy node stand still.
        if newest is not None and newest.item is item:
            newest.again(started, self._longest_step_seconds)
            rates = newest.rates
        else:
            if newest is not None and newest.still:
                newest.update_series()
            rates = self._step(name, item, started, began)
        if len(self._series[name]) > len(item.rows):
            if (read := self._newest.get(name)) is not None and read.still:
                read.update_series()
            self._forget(name, started - _FORGET_SECONDS)
        return name, rates

    def _step(
        self, name: str, item: Family, started: float, began: frozenset[Labels]
    ) -> dict[Labels, list[float]]:
        """Take a family's values, each by itself."""
        totals = self._totals
        rates: dict[Labels, list[float]] = {}
        rows = item.rows
        placed = self._placed(name, item)
        counted: list[_Series] = []
        for place, known in placed:
            labels, value = rows[place]
            # Also leaves NaN out.
            if not 0 <= value < LARGEST:
                continue
            series = known or self._add(name, labels, value, started, began)
            group = series.group
            if started > series.started:
                totals[group] += series.step(value, started, self._longest_step_seconds)
            if known is not None and known.value == value:
                counted.append(known)
            found = rates.get(group)
            if found is None:
                found = rates[group] = []
            if series.rate is not None:
                found.append(series.rate)
        if len(counted) == len(placed):
            self._newest[name] = _Read(item, counted, started, rates)
        else:
            self._newest.pop(name, None)
        return rates

    def _placed(self, name: str, item: Family) -> list[tuple[int, _Series | None]]:
        """Return the rows that count, and the series of each; None of one that is new."""
        labels = list(map(_labels_of, item.rows))
        before, placed = self._places.get(name, _NO_PLACES)
        # Mostly the same ones in the same order: nothing has to be searched.
        if before == labels:
            return placed
        known = self._series[name]
        placed = [
            (place, known.get(each))
            for place, each in enumerate(labels)
            if self._group_of(name, each) is not None
        ]
        if all(series is not None for _, series in placed):
            self._places[name] = labels, placed
        else:
            self._places.pop(name, None)
        return placed

    def _add(
        self, name: str, labels: Labels, value: float, started: float, began: frozenset[Labels]
    ) -> _Series:
        """Return a new series; the same labels may stand in the family twice."""
        group = self._group_of(name, labels) or ()
        series = self._series[name].get(labels)
        if series is None:
            series = self._series[name][labels] = _Series(group, started, value)
            self._totals[group] = self._totals.get(group, 0) + (0 if group in began else value)
        return series

    def _forget(self, name: str, before: float) -> None:
        known = self._series[name]
        for labels in [labels for labels, series in known.items() if series.started < before]:
            del known[labels]
            self._places.pop(name, None)
