"""The collector contract: one file, one subsystem, one registration.

A collector is a small class with ``collect()``. It declares its metrics and registers itself in its
own file, so adding one needs no second list; the runner in ``schedule`` times it, and turns
whatever it raises into ``exporter_collector_success 0`` for itself alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, get_args

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import CATALOG, Topic, declare, declared

if TYPE_CHECKING:
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources


class Collector(Protocol):
    """Reads one subsystem of the node."""

    def collect(self) -> Iterable[Family]:
        """Return the metric families as they stand now.

        Raises
        ------
        NoData
            If the node has no such hardware.
        PartialData
            After the last family, if a part of the source could not be read.
        Exception
            Anything else counts as this collector's failure; the others are not concerned.
        """


Factory = Callable[["ExporterConfig", "Sources"], Collector]
F = TypeVar("F", bound=Factory)
ProcessName = Literal["main", "driver"]


@dataclass(frozen=True, slots=True)
class Registration:
    """What the runner must know of a collector.

    Parameters
    ----------
    name, summary
        What it is called and what it reads, in a line.
    default_enabled
        Whether it runs unless asked.
    interval_seconds
        How often it runs: 1, 5, 10 or 60 s, by who needs it, how fast its source changes and what
        it costs. What of it may wait longer says so itself (``MetricSpec.every_seconds``).
    process
        ``main``: a thread of the main process. ``driver``: the process that alone calls NVML,
        because a call into the driver may never return.
    factory
        Makes it.
    metrics
        What it publishes besides metrics of the exporter itself.
    is_configured
        Returns whether the settings give it anything to do.
    """

    name: str
    summary: str
    default_enabled: bool
    interval_seconds: float
    process: ProcessName
    factory: Factory
    metrics: tuple[MetricSpec, ...] = ()
    is_configured: Callable[[ExporterConfig], bool] = lambda _: True


_REGISTRY: dict[str, Registration] = {}


def register(
    name: str,
    summary: str,
    *,
    topic: Topic,
    metrics: Sequence[MetricSpec],
    default_enabled: bool = True,
    interval_seconds: float = 1.0,
    process: ProcessName = "main",
    is_configured: Callable[[ExporterConfig], bool] = lambda _: True,
) -> Callable[[F], F]:
    """Register a collector class (or factory) taking ``(config, sources)`` under ``name``.

    Parameters
    ----------
    name, summary, default_enabled, interval_seconds, process, is_configured
        As in ``Registration``.
    topic
        Where its metrics stand in the documentation.
    metrics
        What it publishes; collectors make families of them with ``catalog.family``.
    """

    def add(factory: F) -> F:
        if name in _REGISTRY:
            raise ValueError(f"Collector {name!r} is registered twice.")
        declare(topic, metrics)
        _REGISTRY[name] = Registration(
            name,
            summary,
            default_enabled,
            interval_seconds,
            process,
            factory,
            tuple(metrics),
            is_configured,
        )
        return factory

    return add


def registrations() -> dict[str, Registration]:
    """Import every module of ``peerwatch_exporter.collectors`` and return what registered."""
    package = importlib.import_module("peerwatch_exporter.collectors")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_REGISTRY.items()))


def all_metrics() -> Mapping[str, MetricSpec]:
    """Import every collector and return each metric of the exporter by name."""
    registrations()
    return CATALOG


def metrics_by_topic() -> dict[Topic, tuple[MetricSpec, ...]]:
    """Import every collector and return each metric of the exporter, topic by topic."""
    registrations()
    return {topic: declared(topic) for topic in get_args(Topic)}


def registered(name: str) -> Registration:
    """Return a collector whose module was imported.

    Raises
    ------
    KeyError
        If no imported module registered it.
    """
    return _REGISTRY[name]
