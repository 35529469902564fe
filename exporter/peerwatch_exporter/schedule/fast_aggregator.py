"""Makes the fast endpoint's values at every tick, from what the collectors gave.

Beside the counters stand their rates per second, by the time at which each run of a collector
began: the exporter's own clock, and not the scrape's, is behind them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family
from peerwatch_exporter.catalog import family
from peerwatch_exporter.schedule.fast_metrics import TABLE, FastMetric, Labels, Selector
from peerwatch_exporter.schedule.rates import (
    LARGEST,
    LONGEST_STEP_SECONDS,
    CounterSum,
    Rise,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from peerwatch_exporter.schedule.scheduled_collector import LatestResult

# Series of metrics whose group is remembered; labels that come and go must not fill the memory.
_MAX_GROUPS = 20_000


# Forms that are made of sums of counters.
_SUMMED = frozenset({"total", "rate"})

_Readings = dict[str, list[tuple[Family, float]]]


def fast_up() -> Family:
    """Return the family that is there whatever else is not."""
    result = family("fast_up")
    result.add_metric((), 1)
    return result


@dataclass(slots=True)
class _Groups:
    """The group of every series of a selector seen so far."""

    selector: Selector
    known: dict[tuple[str, Labels], Labels | None] = field(default_factory=dict)

    def __call__(self, metric: str, labels: Labels) -> Labels | None:
        key = (metric, labels)
        try:
            return self.known[key]
        except KeyError:
            if len(self.known) >= _MAX_GROUPS:
                self.known.clear()
            group = self.known[key] = self.selector.group(metric, labels)
            return group


class FastAggregator:
    """Aggregates what the collectors gave at each tick.

    Parameters
    ----------
    table
        The metrics that are made.
    longest_step_seconds
        A rise over more than this has no rate.
    """

    def __init__(
        self,
        table: Sequence[FastMetric] = TABLE,
        longest_step_seconds: float = LONGEST_STEP_SECONDS,
    ) -> None:
        self._table = tuple(table)
        self._longest_step_seconds = longest_step_seconds
        self._groups: dict[Selector, _Groups] = {}
        self._sums: dict[Selector, CounterSum] = {}
        self._wanted: set[str] = set()
        self._made: dict[str, tuple[list[object], Family]] = {}
        for metric in table:
            self._add(metric)

    def families(self, results: Iterable[LatestResult], time: float) -> tuple[Family, ...]:
        """Return every fast metric that has a value.

        Parameters
        ----------
        results
            What the collectors gave; one that failed gives nothing, never an old value.
        time
            Unix time now, for ages.
        """
        readings: _Readings = {}
        for result in results:
            for item in result.families:
                if item.spec.name in self._wanted:
                    readings.setdefault(item.spec.name, []).append((item, result.started))
        rises = {selector: total.update(readings) for selector, total in self._sums.items()}
        made = (self._family(metric, readings, rises, time) for metric in self._table)
        return (fast_up(), *(item for item in made if item.rows))

    def _add(self, metric: FastMetric) -> None:
        selector = metric.selector
        selectors = (selector,) if metric.divisor is None else (selector, metric.divisor)
        for each in selectors:
            self._groups.setdefault(each, _Groups(each))
            self._wanted.update(each.metrics)
        if metric.form in _SUMMED and selector not in self._sums:
            self._sums[selector] = CounterSum(
                selector.metrics, self._groups[selector], self._longest_step_seconds
            )

    def _family(
        self,
        metric: FastMetric,
        readings: _Readings,
        rises: Mapping[Selector, Mapping[Labels, Rise]],
        time: float,
    ) -> Family:
        if metric.form == "age":
            # It grows although nothing that it is made of changes.
            return self._made_of(metric, readings, rises, time)
        names: Sequence[str] = metric.metrics
        sources: list[object] = []
        if metric.form in _SUMMED:
            names = () if metric.divisor is None else metric.divisor.metrics
            sources.append(rises[metric.selector])
        sources += [item for name in names for item, _ in readings.get(name, ())]
        before = self._made.get(metric.name)
        # What did not change is the same object.
        if before is None or before[0] != sources:
            before = sources, self._made_of(metric, readings, rises, time)
            self._made[metric.name] = before
        return before[1]

    def _made_of(
        self,
        metric: FastMetric,
        readings: _Readings,
        rises: Mapping[Selector, Mapping[Labels, Rise]],
        time: float,
    ) -> Family:
        values = self._values(metric, readings, rises, time)
        if metric.divisor is not None:
            whole = self._joined(metric.divisor, readings, sum)
            values = {
                group: 1 - share if metric.complement else share
                for group, value in values.items()
                if whole.get(group, 0) > 0 and math.isfinite(share := value / whole[group])
            }
        result = family(metric.name)
        result.rows = list(values.items())
        return result

    def _values(
        self,
        metric: FastMetric,
        readings: _Readings,
        rises: Mapping[Selector, Mapping[Labels, Rise]],
        time: float,
    ) -> dict[Labels, float]:
        match metric.form:
            case "total":
                return {group: rise.total for group, rise in rises[metric.selector].items()}
            case "rate":
                return {
                    group: rise.rate
                    for group, rise in rises[metric.selector].items()
                    if rise.rate is not None
                }
            case "age":
                # The oldest time is the greatest age.
                oldest = self._joined(metric.selector, readings, min)
                return {group: max(0.0, time - value) for group, value in oldest.items()}
        return self._joined(metric.selector, readings, _JOINS[metric.join])

    def _joined(
        self, selector: Selector, readings: _Readings, join: Callable[[list[float]], float]
    ) -> dict[Labels, float]:
        group_of = self._groups[selector]
        values: dict[Labels, list[float]] = {}
        for metric in selector.metrics:
            for item, _ in readings.get(metric, ()):
                for labels, value in item.rows:
                    group = group_of(metric, labels)
                    # Neither NaN, where a driver has no value, nor a number longer than any float.
                    if group is not None and -LARGEST < value < LARGEST:
                        values.setdefault(group, []).append(value)
        return {group: join(found) for group, found in values.items()}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


_JOINS: Mapping[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "mean": _mean,
}
