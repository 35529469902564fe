"""The exporter's metrics by name: what collectors declare, and what belongs to no collector.

A collector's specifications are declared when its module is imported; ``collector.all_metrics``
imports every one, for documents, rules and dashboards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from peerwatch_exporter.catalog.fast import SPECS as FAST
from peerwatch_exporter.catalog.self_metrics import SPECS as SELF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from peerwatch_common.metrics.spec import Family, MetricSpec

# The sections of docs/metrics.md, in its order.
Topic = Literal[
    "Host",
    "Training jobs and ranks",
    "Collectives",
    "Logs",
    "GPU, NVLink, PCIe",
    "XID and SXID",
    "GPU activity",
    "GPU health",
    "NIC and RDMA",
    "NIC flow control, PHY and PCIe",
    "Pings between nodes",
    "PCIe links and errors",
    "Configuration",
    "Checks",
    "The fast endpoint",
    "Millisecond sampling",
    "The exporter itself",
]

CATALOG: dict[str, MetricSpec] = {}
_TOPICS: dict[Topic, list[MetricSpec]] = {topic: [] for topic in get_args(Topic)}


def declare(topic: Topic, specs: Iterable[MetricSpec]) -> None:
    """Add metrics to the catalogue.

    Raises
    ------
    ValueError
        If another metric has the name of one of them.
    """
    for spec in specs:
        if CATALOG.setdefault(spec.name, spec) is not spec:
            raise ValueError(f"Metric {spec.name!r} is declared twice.")
        _TOPICS[topic].append(spec)


def declared(topic: Topic) -> tuple[MetricSpec, ...]:
    """Return the metrics declared so far under a topic."""
    return tuple(_TOPICS[topic])


def family(name: str) -> Family:
    """Return an empty metric family for a catalogued metric.

    Raises
    ------
    KeyError
        If ``name`` is not in the catalogue: its collector declares it.
    """
    return CATALOG[name].family()


def place_in(specs: Iterable[MetricSpec]) -> Callable[[Family], int]:
    """Return what sorts families as their metrics are declared."""
    places = {spec.name: place for place, spec in enumerate(specs)}
    return lambda item: places[item.spec.name]


declare("The fast endpoint", FAST)
declare("The exporter itself", SELF)
