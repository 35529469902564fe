"""The fast page: the few series per node and GPU that the detector compares, made at every tick.

One table says of which catalogued metrics each is made, and how. Beside the counters stand their
rates per second, by the time at which each run of a collector began: the page's own clock, and
not the scrape's, is behind them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from peerwatch_exporter.catalog import CATALOG, Family, family
from peerwatch_exporter.schedule.rates import (
    LARGEST,
    LONGEST_STEP_SECONDS,
    CounterSum,
    Labels,
    Rise,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from peerwatch_exporter.schedule.scheduled_collector import Held

# Series of metrics whose group is remembered; labels that come and go must not fill the memory.
_MAX_GROUPS = 20_000


@dataclass(frozen=True, slots=True)
class Pick:
    """Which series count, and into which groups they go.

    Parameters
    ----------
    metrics
        Names in the catalogue.
    per
        Labels by which there is one value each; none: one value for the node.
    only, without
        A label and the values with which a series counts, or with which it does not.
    """

    metrics: tuple[str, ...]
    per: tuple[str, ...] = ()
    only: tuple[str, tuple[str, ...]] | None = None
    without: tuple[str, tuple[str, ...]] | None = None

    def group(self, metric: str, labels: Labels) -> Labels | None:
        """Return the group of a series, or ``None`` if it does not count."""
        named = dict(zip(CATALOG[metric].labels, labels, strict=False))
        if self.only is not None and named.get(self.only[0]) not in self.only[1]:
            return None
        if self.without is not None and named.get(self.without[0]) in self.without[1]:
            return None
        return tuple(named.get(label, "") for label in self.per)


@dataclass(frozen=True, slots=True)
class FastMetric:
    """How one metric of the fast page is made.

    Parameters
    ----------
    name
        Its name in the catalogue.
    pick
        What it is made of.
    form
        ``value``: of gauges. ``age``: seconds since Unix times. ``total``, ``rate``: of counters,
        added up; ``join`` does not apply.
    join
        How the values of several series become one.
    share_of
        A gauge by whose sum it is divided, in the same groups.
    complement
        1 less that share.
    timed
        Whether its samples may carry timestamps. What joins other series, or says that the node
        is there, must vanish at once, and samples with timestamps do not.
    """

    name: str
    pick: Pick
    form: Literal["value", "age", "total", "rate"] = "value"
    join: Literal["sum", "max", "min", "mean"] = "max"
    share_of: str | None = None
    complement: bool = False
    timed: bool = True

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names in the catalogue of all that it is made of."""
        return self.pick.metrics if self.share_of is None else (*self.pick.metrics, self.share_of)


def _counter(stem: str, pick: Pick) -> tuple[FastMetric, FastMetric]:
    return (
        FastMetric(f"{stem}_total", pick, "total"),
        FastMetric(f"{stem}_per_second", pick, "rate"),
    )


def _pause(what: str, direction: str) -> Pick:
    return Pick((f"nic_pfc_pause_{what}_total",), only=("direction", (direction,)))


_GPU = ("gpu",)
_BUSY = Pick(("host_cpu_seconds_total",), without=("mode", ("idle", "iowait")))
_RDMA = Pick(("nic_transmit_bytes_total", "nic_receive_bytes_total"))
_NETWORK = Pick(
    ("host_network_transmit_bytes_total", "host_network_receive_bytes_total"),
    without=("interface", ("lo",)),
)
_NVLINK = Pick(("nvlink_transmit_bytes_total", "nvlink_receive_bytes_total"), per=_GPU)
_PCIE = Pick(("gpu_pcie_transmit_bytes_total", "gpu_pcie_receive_bytes_total"), per=_GPU)

TABLE: tuple[FastMetric, ...] = (
    FastMetric("fast_job_info", Pick(("host_job_info",), per=("job_id",)), timed=False),
    FastMetric(
        "fast_heartbeat_age_seconds",
        Pick(("rank_heartbeat_timestamp_seconds",), per=("job_id",)),
        "age",
    ),
    *_counter("fast_pfc_transmit_pause_frames", _pause("frames", "transmit")),
    *_counter("fast_pfc_receive_pause_frames", _pause("frames", "receive")),
    *_counter("fast_pfc_transmit_pause_seconds", _pause("seconds", "transmit")),
    *_counter("fast_pfc_receive_pause_seconds", _pause("seconds", "receive")),
    *_counter("fast_tcp_retransmitted_segments", Pick(("host_tcp_retransmitted_segments_total",))),
    FastMetric("fast_tcp_send_queue_bytes", Pick(("host_tcp_send_queue_bytes",))),
    *_counter("fast_ecn_marked_packets", Pick(("nic_ecn_marked_packets_total",))),
    *_counter("fast_cnp_sent_packets", Pick(("nic_cnp_sent_total",))),
    FastMetric("fast_cpu_usage_ratio", _BUSY, "rate", share_of="host_cpus"),
    *_counter("fast_rdma_bytes", _RDMA),
    *_counter("fast_network_bytes", _NETWORK),
    FastMetric(
        "fast_memory_usage_ratio",
        Pick(("host_memory_available_bytes",)),
        join="sum",
        share_of="host_memory_total_bytes",
        complement=True,
    ),
    FastMetric("fast_gpu_job_info", Pick(("gpu_job_info",), per=("gpu", "job_id")), timed=False),
    FastMetric("fast_gpu_utilization_ratio", Pick(("gpu_utilization_ratio",), per=_GPU)),
    FastMetric("fast_gpu_power_watts", Pick(("gpu_power_watts",), per=_GPU)),
    FastMetric(
        "fast_gpu_sm_clock_hertz", Pick(("gpu_clock_hertz",), per=_GPU, only=("domain", ("sm",)))
    ),
    FastMetric("fast_gpu_tensor_active_ratio", Pick(("gpu_tensor_active_ratio",), per=_GPU)),
    FastMetric("fast_gpu_graphics_active_ratio", Pick(("gpu_graphics_active_ratio",), per=_GPU)),
    *_counter("fast_nvlink_bytes", _NVLINK),
    *_counter("fast_gpu_pcie_bytes", _PCIE),
    FastMetric(
        "fast_gpu_memory_used_ratio",
        Pick(("gpu_memory_used_bytes",), per=_GPU),
        join="sum",
        share_of="gpu_memory_total_bytes",
    ),
)

UNTIMED = frozenset({"fast_up", *(metric.name for metric in TABLE if not metric.timed)})

# Forms whose values change although nothing that they are made of does.
_CLOCKED = frozenset({"age", "rate"})

_Readings = dict[str, list[tuple[Family, float]]]


def fast_up() -> Family:
    """Return the family that is on the page whatever else is not."""
    result = family("fast_up")
    result.add_metric((), 1)
    return result


@dataclass(slots=True)
class _Groups:
    """The group of every series of a pick seen so far."""

    pick: Pick
    known: dict[tuple[str, Labels], Labels | None] = field(default_factory=dict)

    def __call__(self, metric: str, labels: Labels) -> Labels | None:
        key = (metric, labels)
        try:
            return self.known[key]
        except KeyError:
            if len(self.known) >= _MAX_GROUPS:
                self.known.clear()
            group = self.known[key] = self.pick.group(metric, labels)
            return group


class FastPage:
    """Makes the fast page's values from what the collectors gave at each tick.

    Parameters
    ----------
    table
        The metrics of the page.
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
        self._groups: dict[Pick, _Groups] = {}
        self._sums: dict[Pick, CounterSum] = {}
        self._wanted: set[str] = set()
        self._made: dict[str, tuple[list[Family], Family]] = {}
        for metric in table:
            self._add(metric)

    def families(self, held: Iterable[Held], time: float) -> tuple[Family, ...]:
        """Return every fast metric that has a value.

        Parameters
        ----------
        held
            What the collectors gave; one that failed gives nothing, never an old value.
        time
            Unix time now, for ages.
        """
        readings: _Readings = {}
        for one in held:
            for item in one.families:
                if item.spec.name in self._wanted:
                    readings.setdefault(item.spec.name, []).append((item, one.started))
        rises = {pick: total.update(readings) for pick, total in self._sums.items()}
        made = (self._family(metric, readings, rises, time) for metric in self._table)
        return (fast_up(), *(item for item in made if item.rows))

    def _add(self, metric: FastMetric) -> None:
        pick = metric.pick
        shared = () if metric.share_of is None else (Pick((metric.share_of,), per=pick.per),)
        for each in (pick, *shared):
            self._groups.setdefault(each, _Groups(each))
            self._wanted.update(each.metrics)
        if metric.form in {"total", "rate"} and pick not in self._sums:
            self._sums[pick] = CounterSum(
                pick.metrics, self._groups[pick], self._longest_step_seconds
            )

    def _family(
        self,
        metric: FastMetric,
        readings: _Readings,
        rises: Mapping[Pick, Mapping[Labels, Rise]],
        time: float,
    ) -> Family:
        if metric.form in _CLOCKED:
            return self._made_of(metric, readings, rises, time)
        sources = [item for name in metric.metrics for item, _ in readings.get(name, ())]
        before = self._made.get(metric.name)
        # A family that did not change is the same object.
        if before is None or before[0] != sources:
            before = sources, self._made_of(metric, readings, rises, time)
            self._made[metric.name] = before
        return before[1]

    def _made_of(
        self,
        metric: FastMetric,
        readings: _Readings,
        rises: Mapping[Pick, Mapping[Labels, Rise]],
        time: float,
    ) -> Family:
        values = self._values(metric, readings, rises, time)
        if metric.share_of is not None:
            whole = self._joined(Pick((metric.share_of,), per=metric.pick.per), readings, sum)
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
        rises: Mapping[Pick, Mapping[Labels, Rise]],
        time: float,
    ) -> dict[Labels, float]:
        match metric.form:
            case "total":
                return {group: rise.total for group, rise in rises[metric.pick].items()}
            case "rate":
                return {
                    group: rise.rate
                    for group, rise in rises[metric.pick].items()
                    if rise.rate is not None
                }
            case "age":
                # The oldest time is the greatest age.
                oldest = self._joined(metric.pick, readings, min)
                return {group: max(0.0, time - value) for group, value in oldest.items()}
        return self._joined(metric.pick, readings, _JOINS[metric.join])

    def _joined(
        self, pick: Pick, readings: _Readings, join: Callable[[list[float]], float]
    ) -> dict[Labels, float]:
        group_of = self._groups[pick]
        values: dict[Labels, list[float]] = {}
        for metric in pick.metrics:
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
