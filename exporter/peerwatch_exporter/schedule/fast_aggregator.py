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
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from peerwatch_exporter.schedule.scheduled_collector import LatestResult

# Series of metrics whose group is remembered; labels that come and go must not fill the memory.
# Four times what one collector may publish by default.
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


@dataclass(slots=True)
class _Recipe:
    """How a metric is made, looked up once, and what it was made of last.

    Parameters
    ----------
    metric
        Its entry in the table.
    divisor
        What it is divided by; None if it is no share.
    total
        The sum that it is made of; None if it is none.
    names
        Metrics that it is made of besides.
    """

    metric: FastMetric
    divisor: Selector | None
    total: CounterSum | None
    names: tuple[str, ...]
    sources: list[object] | None = None
    made: Family | None = None


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
        self._longest_step_seconds = longest_step_seconds
        self._groups: dict[Selector, _Groups] = {}
        self._sums: dict[Selector, CounterSum] = {}
        self._wanted: set[str] = set()
        self._recipes = [self._recipe(metric) for metric in table]

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
        for total in self._sums.values():
            total.update(readings)
        made = [self._family(recipe, readings, time) for recipe in self._recipes]
        return (fast_up(), *[item for item in made if item.rows])

    def _recipe(self, metric: FastMetric) -> _Recipe:
        selector, divisor = metric.selector, metric.divisor
        for each in (selector,) if divisor is None else (selector, divisor):
            self._groups.setdefault(each, _Groups(each))
            self._wanted.update(each.metrics)
        if metric.form not in _SUMMED:
            return _Recipe(metric, divisor, None, metric.metrics)
        if selector not in self._sums:
            self._sums[selector] = CounterSum(
                selector.metrics, self._groups[selector], self._longest_step_seconds
            )
        names = () if divisor is None else divisor.metrics
        return _Recipe(metric, divisor, self._sums[selector], names)

    def _family(self, recipe: _Recipe, readings: _Readings, time: float) -> Family:
        if recipe.metric.form == "age":
            # It grows although nothing that it is made of changes.
            return self._made_of(recipe, readings, time)
        sources: list[object] = [] if recipe.total is None else [recipe.total.rises]
        for name in recipe.names:
            sources += [item for item, _ in readings.get(name, ())]
        made = recipe.made
        # What did not change is the same object.
        if made is None or recipe.sources != sources:
            made = self._made_of(recipe, readings, time)
            recipe.sources, recipe.made = sources, made
        return made

    def _made_of(self, recipe: _Recipe, readings: _Readings, time: float) -> Family:
        metric = recipe.metric
        values = self._values(recipe, readings, time)
        if recipe.divisor is not None:
            whole = self._joined(recipe.divisor, readings, sum)
            values = {
                group: 1 - share if metric.complement else share
                for group, value in values.items()
                if whole.get(group, 0) > 0 and math.isfinite(share := value / whole[group])
            }
        result = family(metric.name)
        result.rows = list(values.items())
        return result

    def _values(self, recipe: _Recipe, readings: _Readings, time: float) -> dict[Labels, float]:
        metric = recipe.metric
        rises = {} if recipe.total is None else recipe.total.rises
        match metric.form:
            case "total":
                return {group: rise.total for group, rise in rises.items()}
            case "rate":
                return {group: rise.rate for group, rise in rises.items() if rise.rate is not None}
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
