"""What a catalogue says about one metric, and the family of samples it publishes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Sample(NamedTuple):
    """One sample as prometheus_client's registries and parsers know it."""

    name: str
    labels: Mapping[str, str]
    value: float
    timestamp: float | None = None
    exemplar: None = None
    native_histogram: None = None


class Family:
    """The samples of one metric at one time: label values and a value each.

    Filled up to once a second with thousands of samples, so it holds nothing but them. It also
    looks like a metric of prometheus_client, whose registries take it as it is.

    Parameters
    ----------
    spec
        The metric's entry in the catalogue.

    Attributes
    ----------
    rows
        Label values in the order of ``spec.labels``, and the value.
    """

    __slots__ = ("rows", "spec")

    def __init__(self, spec: MetricSpec) -> None:
        self.spec = spec
        self.rows: list[tuple[tuple[str, ...], float]] = []

    def add_metric(self, labels: Sequence[str], value: float) -> None:
        """Add a sample; ``labels`` are values in the catalogue's order."""
        # Plus 0: a bool becomes the number it stands for.
        self.rows.append((tuple(labels), value + 0))

    @property
    def name(self) -> str:
        """The metric's name, without a counter's ``_total``."""
        return self.spec.name.removesuffix("_total") if self.type == "counter" else self.spec.name

    @property
    def documentation(self) -> str:
        """The metric's help text."""
        return self.spec.help

    @property
    def type(self) -> str:
        """``counter`` or ``gauge``."""
        return self.spec.kind

    @property
    def unit(self) -> str:
        """Empty: the unit is part of the name, no piece of metadata."""
        return ""

    @property
    def samples(self) -> list[Sample]:
        """The samples with their labels by name; made anew at every access."""
        names = self.spec.labels
        return [
            Sample(self.spec.name, dict(zip(names, labels, strict=True)), float(value))
            for labels, value in self.rows
        ]


@dataclass(frozen=True, slots=True)
class TimedFamily:
    """Samples of one metric with the time of each.

    Parameters
    ----------
    spec
        The metric's entry in the catalogue.
    rows
        Label values, value and Unix time; the samples of a series together, by rising time.
    """

    spec: MetricSpec
    rows: Sequence[tuple[tuple[str, ...], float, float]]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric, declared once; exporter, detector, docs, rules and dashboards read it.

    Parameters
    ----------
    name
        Full name as scraped; counters end in ``_total``.
    kind
        ``counter`` or ``gauge``. Facts (value always 1) are gauges ending in ``_info``.
    unit
        Base unit in words: ``seconds``, ``bytes``, ``ratio``, ``celsius``, ``1`` for none.
    labels
        Label names in the order collectors pass their values.
    help
        What the value means for a person, and the raw counter's own name where it has one.
    source
        Where the raw value comes from: file, NVML function, or the detector's stage.
    hardware
        The smallest hardware or software that has it, a key of the exporter's ``HARDWARE``;
        empty if every Linux node does.
    swings
        Whether it goes up and down with the steps of a job, so that ``/metrics`` has its mean.
    not_drawn
        Why no dashboard and no rule uses it; empty if one does.
    every_seconds
        How often it is read, where that is less often than its collector runs.
    """

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    labels: tuple[str, ...]
    help: str
    source: str
    hardware: str = ""
    swings: bool = False
    not_drawn: str = ""
    every_seconds: float = 0

    def family(self) -> Family:
        """Return an empty metric family; collectors fill it with ``add_metric``."""
        return Family(self)
