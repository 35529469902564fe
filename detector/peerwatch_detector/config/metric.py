"""The settings of one metric to compare nodes by, as presets and configuration files have them."""

from __future__ import annotations

from typing import Annotated, Literal

import jinja2
import jinja2.meta
from pydantic import AfterValidator, Field

from peerwatch_common.settings.section import Section
from peerwatch_detector.config.section import Seconds
from peerwatch_detector.units import metric_words

Scope = Literal["node", "gpu"]
Direction = Literal["high", "low", "both"]
Kind = Literal["work", "load", "memory", "network", "own"]
Select = Literal["job_id", "node"]


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    if not low < high:
        raise ValueError(f"{[low, high]!r} must be [low, high] with low < high")
    return bounds


def _is_template(expression: str) -> str:
    environment = jinja2.Environment(autoescape=False)  # noqa: S701 - PromQL, not HTML
    try:
        names = jinja2.meta.find_undeclared_variables(environment.parse(expression))
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"{expression!r} is no Jinja2 template: {error}") from error
    if unknown := sorted(names - {"job", "window"}):
        raise ValueError(f"unknown name {unknown[0]!r} in {{{{ }}}}; there are job and window")
    return expression


Bounds = Annotated[tuple[float, float], AfterValidator(_ordered)]
Expression = Annotated[str, Field(min_length=1), AfterValidator(_is_template)]
SeriesName = Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")]


class ReadMetric(Section):
    """What is read of a training job under one name: one value per node, or per GPU of a node."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Label value of ``metric``.")
    aliases: tuple[str, ...] = Field(
        default=(), description="Other names of the metric in recorded cases."
    )
    title: str | None = Field(
        default=None,
        min_length=1,
        description="What people read instead. Default: the name, written out.",
    )
    unit: str = Field(min_length=1, description="Base unit of the values, in words.")
    scope: Scope = Field(default="node", description="One value per node, or per GPU of a node.")
    recorded: SeriesName = Field(description="Series of the recording rules.")
    select: Select = Field(
        default="job_id",
        description="The label that selects a job's recorded series: job_id, or node for series "
        "of the nodes themselves, which have no job.",
    )
    expression: Expression = Field(
        description="The same in PromQL; a Jinja2 template over job and window."
    )

    @property
    def shown_title(self) -> str:
        """The title in force."""
        return metric_words(self.name) if self.title is None else self.title


class MetricConfig(ReadMetric):
    """One metric to compare nodes by; an entry of a preset."""

    bounds: Bounds = Field(description="Limits of the Min-Max scaling, in the unit.")
    min_effect_size: float = Field(
        gt=0, description="Deviation from the peers below which a node is never a candidate."
    )
    direction: Direction = Field(default="both", description="Which deviation means harm.")
    floor: float | None = Field(
        default=None,
        gt=0,
        description="Added to values before they are compared by factors, so that two values next "
        "to nothing are alike. Default: min_effect_size.",
    )
    min_ratio: float | None = Field(
        default=None,
        gt=1,
        le=1000,
        description="Factor between a node and its peers below which it is never a candidate of "
        "method peerwatch. Default: min_effect_size seen from the job's usual level.",
    )
    kind: Kind = Field(
        default="work",
        description="work: what the node does for the job; load: other programs raise it too, so a "
        "high value alone is no sign; memory: as load, and less of it than others is a sign only "
        "where the job stops, as what processes hold sets no speed; network: congestion, which "
        "spreads to other nodes; own: what the job's own processes do on the host, load as long as "
        "the job trains, but a sign while it waits for long.",
    )
    warns: bool = Field(
        default=False,
        description="Whether a lasting deviation that costs the job no progress is a warning.",
    )
    peak_seconds: Seconds | None = Field(
        default=None,
        gt=0,
        le=120,
        description="Compare the highest value of the last so many seconds in place of each value: "
        "what moves a fixed volume in bursts has the same mean however fast it is. Longer than an "
        "iteration, with a step_seconds shorter than a burst. Default: the values themselves.",
    )

    @property
    def level_floor(self) -> float:
        """The floor in force."""
        return self.min_effect_size if self.floor is None else self.floor


class Overrides(Section):
    """Changes to one metric of the preset; what is left out stays."""

    bounds: Bounds | None = Field(default=None, description="See bounds.")
    min_effect_size: float | None = Field(default=None, gt=0, description="See min_effect_size.")
    direction: Direction | None = Field(default=None, description="See direction.")
    floor: float | None = Field(default=None, gt=0, description="See floor.")
    min_ratio: float | None = Field(default=None, gt=1, le=1000, description="See min_ratio.")
    kind: Kind | None = Field(default=None, description="See kind.")
    warns: bool | None = Field(default=None, description="See warns.")
    peak_seconds: Seconds | None = Field(
        default=None, gt=0, le=120, description="See peak_seconds."
    )
    recorded: SeriesName | None = Field(default=None, description="See recorded.")
    select: Select | None = Field(default=None, description="See select.")
    expression: Expression | None = Field(default=None, description="See expression.")


class MetricsConfig(Section):
    """Which metrics of the preset are used, and what differs from it."""

    enabled: list[str] | None = Field(
        default=None,
        min_length=1,
        description="Names of the metrics to use, in this order. Default: all; with method minder "
        "those of minder.metrics.",
    )
    overrides: dict[str, Overrides] = Field(
        default_factory=dict,
        description="Changes to a metric's declaration (bounds, min_ratio, ...), by metric name.",
    )
    extra: list[MetricConfig] = Field(
        default_factory=list, description="Metrics of your own, with the lowest priority."
    )
