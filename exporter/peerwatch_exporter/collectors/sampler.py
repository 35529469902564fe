"""What the sampler saw within the last seconds: the largest rates, not only their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.sampler.layout import SampledSeries
    from peerwatch_exporter.sampler.process import SamplerState
    from peerwatch_exporter.sampler.window import Statistics
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_PORT_LABELS = ("device", "port")
_RATE_LABELS = (*_PORT_LABELS, "statistic")
_STATISTIC = (
    "statistic: max, p99 (99 % of the samples were not above it) or mean of the last "
    "sampler.window_seconds."
)
_DIRECTED_LABELS = (*_PORT_LABELS, "direction", "statistic")
_PROCESS = "sampler process"

SPECS = (
    MetricSpec(
        "nic_burst_transmit_bytes_per_second",
        "gauge",
        "bytes per second",
        _RATE_LABELS,
        f"Rate of bytes sent between two samples of the sampler; {_STATISTIC} A max far above the "
        "mean is traffic in bursts that a scrape does not show (port_xmit_data, times 4).",
        "ports/N/counters/port_xmit_data, every sampler.interval_milliseconds",
        "RDMA NIC",
    ),
    MetricSpec(
        "nic_burst_receive_bytes_per_second",
        "gauge",
        "bytes per second",
        _RATE_LABELS,
        f"Rate of bytes received between two samples; {_STATISTIC} (port_rcv_data, times 4).",
        "ports/N/counters/port_rcv_data, every sampler.interval_milliseconds",
        "RDMA NIC",
    ),
    MetricSpec(
        "nic_burst_transmit_packets_per_second",
        "gauge",
        "packets per second",
        _RATE_LABELS,
        f"Rate of packets sent between two samples; {_STATISTIC} (port_xmit_packets). Only if "
        "named in sampler.counters.",
        "ports/N/counters/port_xmit_packets, every sampler.interval_milliseconds",
        "RDMA NIC",
        not_drawn="only if named in sampler.counters",
    ),
    MetricSpec(
        "nic_burst_receive_packets_per_second",
        "gauge",
        "packets per second",
        _RATE_LABELS,
        f"Rate of packets received between two samples; {_STATISTIC} (port_rcv_packets). Only if "
        "named in sampler.counters.",
        "ports/N/counters/port_rcv_packets, every sampler.interval_milliseconds",
        "RDMA NIC",
        not_drawn="only if named in sampler.counters",
    ),
    MetricSpec(
        "nic_burst_cnp_packets_per_second",
        "gauge",
        "packets per second",
        _DIRECTED_LABELS,
        "Rate of congestion notifications between two samples: transmit, this node received "
        f"marked packets (np_cnp_sent); receive, it had to slow down (rp_cnp_handled). "
        f"{_STATISTIC}",
        "ports/N/hw_counters/{np_cnp_sent,rp_cnp_handled}, once per lifespan",
        "mlx5, RoCE",
    ),
    MetricSpec(
        "nic_burst_ecn_marked_packets_per_second",
        "gauge",
        "packets per second",
        _RATE_LABELS,
        "Rate of packets received with the congestion mark, between two samples "
        f"(np_ecn_marked_roce_packets); {_STATISTIC}",
        "ports/N/hw_counters/np_ecn_marked_roce_packets, once per lifespan",
        "mlx5, RoCE",
    ),
    MetricSpec(
        "nic_burst_pfc_pause_frames_per_second",
        "gauge",
        "frames per second",
        _DIRECTED_LABELS,
        "Rate of PFC pause frames of all priorities between two samples: receive, the peer "
        f"stopped this port; transmit, this port stopped its peer. {_STATISTIC}",
        "ETHTOOL_GSTATS, as for nic_pfc_pause_frames_total, every 10 ms or as its cost allows",
        "NIC statistics",
    ),
    MetricSpec(
        "nic_burst_line_rate_ratio",
        "gauge",
        "ratio",
        (*_PORT_LABELS, "direction"),
        "Part of the samples in which the port was at line rate: at or above "
        "sampler.line_rate_ratio of its negotiated speed.",
        "the byte counters above, ports/N/rate",
        "RDMA NIC",
    ),
    MetricSpec(
        "nic_burst_active_ratio",
        "gauge",
        "ratio",
        (*_PORT_LABELS, "counter"),
        "Part of the samples in which the counter rose: of receive_pause_frames, how often the "
        "port was being stopped.",
        "the counters above",
        "NIC statistics",
    ),
    MetricSpec(
        "nic_burst_update_interval_seconds",
        "gauge",
        "seconds",
        (*_PORT_LABELS, "counter"),
        "Median time between two changes of the counter in the last second in which it changed. "
        "Well above sampler_interval_seconds on a busy port: the NIC refreshes the counter only "
        "that often, and what happens within that time cannot be told apart.",
        "the counters above",
        "RDMA NIC",
        not_drawn="for choosing sampler.interval_milliseconds, once",
    ),
    MetricSpec(
        "sampler_interval_seconds",
        "gauge",
        "seconds",
        (),
        "Time between two samples of the fastest counters, as achieved in the last second.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_interval_stretched",
        "gauge",
        "1",
        (),
        "1 while the sampler reads less often than configured, because it would use more CPU time "
        "than sampler.max_cpu_ratio allows.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_samples_total",
        "counter",
        "1",
        (),
        "Times the fastest counters were read.",
        _PROCESS,
        not_drawn="the interval as achieved is drawn",
    ),
    MetricSpec(
        "sampler_late_samples_total",
        "counter",
        "1",
        (),
        "Samples skipped, or taken more than half an interval late: the node's CPUs are busy, or "
        "a counter is slow to read.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_cpu_ratio",
        "gauge",
        "ratio",
        (),
        "CPU time per second that the sampler process used in the last second; 1 is one CPU.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_window_seconds",
        "gauge",
        "seconds",
        (),
        "What the statistics cover; sampler.window_seconds once it has run that long.",
        _PROCESS,
        not_drawn="a setting",
    ),
    MetricSpec(
        "sampler_series",
        "gauge",
        "1",
        (),
        "Counters that are sampled, all ports together.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_missing_series",
        "gauge",
        "1",
        (),
        "Counters of them that cannot be read now; they are tried again.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_restarts_total",
        "counter",
        "1",
        (),
        "Times the sampler process was started again: it had ended, had hung, or the node has new "
        "ports.",
        "exporter",
    ),
    MetricSpec(
        "sampler_stuck_seconds",
        "gauge",
        "seconds",
        (),
        "For how long the sampler process has not answered, if that is 5 s or more: a counter's "
        "reading does not return. Else 0.",
        "exporter",
    ),
)


# Key of the process's message by metric.
_OWN = {
    "sampler_interval_seconds": "interval",
    "sampler_interval_stretched": "stretched",
    "sampler_samples_total": "samples",
    "sampler_late_samples_total": "late",
    "sampler_cpu_ratio": "cpu",
    "sampler_missing_series": "missing",
}


@register(
    "sampler",
    "Bursts within the last seconds, if the sampler is on (RDMA ports).",
    is_configured=lambda config: config.sampler.interval_milliseconds is not None,
    topic="Millisecond sampling",
    metrics=SPECS,
)
class SamplerCollector:
    """Copies the numbers that the sampler process worked out; it reads nothing itself."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._sources = sources

    def collect(self) -> Iterable[Family]:
        """Return the statistics of the sampler's window, and how the sampler fares.

        Raises
        ------
        NoData
            If the sampler is off.
        PartialData
            If it does not sample, ends again and again, or has not answered for seconds.
        """
        # A node without the sampler need not load it.
        from peerwatch_exporter.sampler.layout import MemoryLimitError  # noqa: PLC0415
        from peerwatch_exporter.sampler.process import (  # noqa: PLC0415
            SamplerEndedError,
            SamplerStuckError,
            sampler_of,
        )

        sampler = sampler_of(self._sources)
        if sampler is None or sampler.settings is None:
            raise NoData("The sampler is off.")
        state = sampler.state()
        yield from _own(state)
        if state.refused is not None:
            raise PartialData("The sampler does not run.") from MemoryLimitError(state.refused)
        if state.stuck_seconds:
            text = f"The sampler has not answered for {state.stuck_seconds:.0f} s."
            raise PartialData("There are no statistics.") from SamplerStuckError(text)
        if state.restarts and state.second is None:
            text = f"The sampler ended {state.restarts} times; the log says why."
            raise PartialData("There are no statistics.") from SamplerEndedError(text)
        yield from _statistics(state)


def _own(state: SamplerState) -> Iterable[Family]:
    """Return the state of the sampler."""
    for name, value in (
        ("sampler_stuck_seconds", state.stuck_seconds),
        ("sampler_restarts_total", state.restarts),
        ("sampler_series", sum(len(group.series) for group in state.layout.groups)),
    ):
        item = family(name)
        item.add_metric([], value)
        yield item
    second = state.second
    if second is None:
        return
    for name, key in _OWN.items():
        item = family(name)
        item.add_metric([], second[key])
        yield item
    window = family("sampler_window_seconds")
    window.add_metric([], (second["end"] - second["begin"]) / 1e9)
    yield window


def _statistics(state: SamplerState) -> Iterable[Family]:
    if state.second is None:
        return ()
    from peerwatch_exporter.sampler.window import Statistics  # noqa: PLC0415 - see above

    families: dict[str, Family] = {}
    series = [item for group in state.layout.groups for item in group.series]
    for item, values in zip(series, state.second["statistics"], strict=True):
        if values is not None:
            _add(families, item, Statistics(*values))
    return families.values()


def _add(families: dict[str, Family], series: SampledSeries, statistics: Statistics) -> None:
    counter, port = series.counter, (series.device, series.port)
    direction = (counter.direction,) if counter.direction else ()
    rates = families.setdefault(counter.family, family(counter.family))
    for name, value in (
        ("max", statistics.maximum),
        ("p99", statistics.p99),
        ("mean", statistics.mean),
    ):
        rates.add_metric((*port, *direction, name), value)

    def add(name: str, label: str, value: float) -> None:
        item = families.setdefault(name, family(name))
        item.add_metric((*port, label), value)

    if series.line_rate is not None:
        add("nic_burst_line_rate_ratio", counter.link, statistics.line_ratio)
    if counter.is_event:
        add("nic_burst_active_ratio", counter.name, statistics.active_ratio)
    if statistics.update_seconds:
        add("nic_burst_update_interval_seconds", counter.name, statistics.update_seconds)
