"""The fast endpoint's metrics: the few series per node and GPU that the detector compares.

One table says of which catalogued metrics each is made, and how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peerwatch_exporter.catalog import CATALOG

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """Which series count, and into which groups they go.

    Parameters
    ----------
    metrics
        Names in the catalogue.
    per
        Labels that are kept, with a value for each; none: one value for the node.
    only, without
        A label and the values with which a series counts, or with which it does not.
    """

    metrics: tuple[str, ...]
    per: tuple[str, ...] = ()
    only: tuple[str, tuple[str, ...]] | None = None
    without: tuple[str, tuple[str, ...]] | None = None

    def group(self, metric: str, labels: Labels) -> Labels | None:
        """Return the group of a series, or ``None`` if it does not count."""
        by_name = dict(zip(CATALOG[metric].labels, labels, strict=False))
        if self.only is not None and by_name.get(self.only[0]) not in self.only[1]:
            return None
        if self.without is not None and by_name.get(self.without[0]) in self.without[1]:
            return None
        return tuple(by_name.get(label, "") for label in self.per)


@dataclass(frozen=True, slots=True)
class FastMetric:
    """How one metric of the fast endpoint is made.

    Parameters
    ----------
    name
        Its name in the catalogue.
    selector
        What it is made of.
    form
        ``value``: of gauges. ``age``: seconds since Unix times. ``total``, ``rate``: of counters,
        added up; ``join`` does not apply.
    join
        How the values of several series are joined.
    share_of
        A gauge by whose sum it is divided, in the same groups.
    complement
        1 less that share.
    timed
        Whether its samples may carry timestamps. What joins other series, or says that the node
        is there, must vanish at once, and samples with timestamps do not.
    """

    name: str
    selector: Selector
    form: Literal["value", "age", "total", "rate"] = "value"
    join: Literal["sum", "max", "min", "mean"] = "max"
    share_of: str | None = None
    complement: bool = False
    timed: bool = True

    @property
    def divisor(self) -> Selector | None:
        """What it is divided by, in the same groups; None if it is no share."""
        return None if self.share_of is None else Selector((self.share_of,), per=self.selector.per)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names in the catalogue of all that it is made of."""
        return (
            self.selector.metrics
            if self.share_of is None
            else (*self.selector.metrics, self.share_of)
        )


def _counter(stem: str, selector: Selector) -> tuple[FastMetric, FastMetric]:
    return (
        FastMetric(f"{stem}_total", selector, "total"),
        FastMetric(f"{stem}_per_second", selector, "rate"),
    )


def _pause(what: str, direction: str) -> Selector:
    return Selector((f"nic_pfc_pause_{what}_total",), only=("direction", (direction,)))


_GPU = ("gpu",)
_BUSY = Selector(("host_cpu_seconds_total",), without=("mode", ("idle", "iowait")))
_RDMA = Selector(("nic_transmit_bytes_total", "nic_receive_bytes_total"))
_NETWORK = Selector(
    ("host_network_transmit_bytes_total", "host_network_receive_bytes_total"),
    without=("interface", ("lo",)),
)
_NVLINK = Selector(("nvlink_transmit_bytes_total", "nvlink_receive_bytes_total"), per=_GPU)
_PCIE = Selector(("gpu_pcie_transmit_bytes_total", "gpu_pcie_receive_bytes_total"), per=_GPU)

TABLE: tuple[FastMetric, ...] = (
    FastMetric("fast_job_info", Selector(("host_job_info",), per=("job_id",)), timed=False),
    FastMetric(
        "fast_heartbeat_age_seconds",
        Selector(("rank_heartbeat_timestamp_seconds",), per=("job_id",)),
        "age",
    ),
    *_counter("fast_pfc_transmit_pause_frames", _pause("frames", "transmit")),
    *_counter("fast_pfc_receive_pause_frames", _pause("frames", "receive")),
    *_counter("fast_pfc_transmit_pause_seconds", _pause("seconds", "transmit")),
    *_counter("fast_pfc_receive_pause_seconds", _pause("seconds", "receive")),
    *_counter(
        "fast_tcp_retransmitted_segments", Selector(("host_tcp_retransmitted_segments_total",))
    ),
    FastMetric("fast_tcp_send_queue_bytes", Selector(("host_tcp_send_queue_bytes",))),
    *_counter("fast_ecn_marked_packets", Selector(("nic_ecn_marked_packets_total",))),
    *_counter("fast_cnp_sent_packets", Selector(("nic_cnp_sent_total",))),
    FastMetric("fast_cpu_usage_ratio", _BUSY, "rate", share_of="host_cpus"),
    *_counter("fast_rdma_bytes", _RDMA),
    *_counter("fast_network_bytes", _NETWORK),
    FastMetric(
        "fast_memory_usage_ratio",
        Selector(("host_memory_available_bytes",)),
        join="sum",
        share_of="host_memory_total_bytes",
        complement=True,
    ),
    FastMetric(
        "fast_gpu_job_info", Selector(("gpu_job_info",), per=("gpu", "job_id")), timed=False
    ),
    FastMetric("fast_gpu_utilization_ratio", Selector(("gpu_utilization_ratio",), per=_GPU)),
    FastMetric("fast_gpu_power_watts", Selector(("gpu_power_watts",), per=_GPU)),
    FastMetric(
        "fast_gpu_sm_clock_hertz",
        Selector(("gpu_clock_hertz",), per=_GPU, only=("domain", ("sm",))),
    ),
    FastMetric("fast_gpu_tensor_active_ratio", Selector(("gpu_tensor_active_ratio",), per=_GPU)),
    FastMetric(
        "fast_gpu_graphics_active_ratio", Selector(("gpu_graphics_active_ratio",), per=_GPU)
    ),
    *_counter("fast_nvlink_bytes", _NVLINK),
    *_counter("fast_gpu_pcie_bytes", _PCIE),
    FastMetric(
        "fast_gpu_memory_used_ratio",
        Selector(("gpu_memory_used_bytes",), per=_GPU),
        join="sum",
        share_of="gpu_memory_total_bytes",
    ),
)

UNTIMED = frozenset({"fast_up", *(metric.name for metric in TABLE if not metric.timed)})
