"""The shipped sets of metrics: each is declared once, in ``presets/peerwatch.yaml``.

The other two presets compare the same metrics in the same way and only read them from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from peerwatch_common.settings.section import Section
from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_detector.config.metric import (
    Bounds,
    MetricConfig,
    ReadMetric,
    Select,
    SeriesName,
)

PresetName = Literal["peerwatch", "fast", "dcgm"]
Side = Literal["high", "low"]
Weight = Literal["decisive", "supporting"]

_PRESETS = Path(__file__).with_name("presets")

_JOIN = "max by ({labels}) ({info}{{ {{{{- job -}}}} }} * on ({of_node}) group_left () "
_FROM_JOB = "max by ({labels}) ({series}{{ {{{{- job -}}}} }})"
_FROM_NODE = _JOIN + "max by ({of_node}) ({series}))"


class Discovery(Section):
    """The series that tell which node works for which training job."""

    job_info: str = Field(description="Info series with job_id and node.")
    presence: str = Field(description="Series that exists while a node can be scraped.")


# The info series has one series per (job, node), never with a timestamp of its own.
_FAST_DISCOVERY = Discovery(job_info="fast_job_info", presence="fast_up")


class FastSeries(Section):
    """Where the fast endpoint has a metric, and what differs there."""

    series: SeriesName = Field(description="Name on the fast endpoint.")
    select: Select = Field(default="node", description="See MetricConfig.")
    unit: str | None = Field(default=None, description="See MetricConfig.")
    bounds: Bounds | None = Field(default=None, description="See MetricConfig.")
    min_effect_size: float | None = Field(default=None, gt=0, description="See MetricConfig.")
    floor: float | None = Field(default=None, gt=0, description="See MetricConfig.")


class PresetMetric(MetricConfig):
    """The entry of a shipped metric: all that is said of it anywhere comes from here."""

    meaning: str = Field(pattern=r"\.$", description="What a difference means, for people.")
    check: str = Field(min_length=1, description="What to check on the node first.")
    commands: str = Field(min_length=1, description="What shows it, in Markdown.")
    fast: FastSeries | None = Field(
        default=None,
        description="Series of the fast endpoint; without one the preset fast lacks it.",
    )
    faults: dict[Side, dict[str, Weight]] = Field(
        default_factory=dict, description="Fault families that a deviation speaks for."
    )

    def on_the_fast_endpoint(self) -> PresetMetric:
        """Return the metric as preset ``fast`` reads it."""
        assert self.fast is not None
        changes = self.fast.model_dump(exclude_none=True, exclude={"series"})
        per_gpu = ["gpu"] if self.scope == "gpu" else []
        expression = _FROM_JOB if self.fast.select == "job_id" else _FROM_NODE
        changes["expression"] = expression.format(
            labels=", ".join(["cluster", "job_id", "node", *per_gpu]),
            of_node=", ".join(["cluster", "node", *per_gpu]),
            info="fast_gpu_job_info" if per_gpu else "fast_job_info",
            series=self.fast.series,
        )
        return self.model_copy(update={"recorded": self.fast.series} | changes)


class ProgressMetric(ReadMetric):
    """A counter of what the job itself has finished: its rate is read, nodes are not compared."""

    meaning: str = Field(pattern=r"\.$", description="What it counts, for people.")
    sets_step_rate: bool = Field(
        default=True,
        description="Whether its rate is the job's step rate, compared with its usual one.",
    )


class Preset(Section):
    """A shipped set of metrics for one family of exporters."""

    discovery: Discovery
    progress: list[ProgressMetric] = Field(default_factory=list)
    metrics: list[PresetMetric] = Field(min_length=1)


class _OtherSource(Section):
    """A file that says where else the metrics come from."""

    discovery: Discovery
    expressions: dict[str, str]


@cache
def load_preset(name: str) -> Preset:
    """Return a preset that ships with the package; parsing it takes longer than a cycle."""
    if name == "peerwatch":
        return Preset.model_validate(_read(name))
    whole = load_preset("peerwatch")
    metrics = whole.metrics
    if name == "fast":
        carried = [metric.on_the_fast_endpoint() for metric in metrics if metric.fast is not None]
        return Preset(discovery=_FAST_DISCOVERY, metrics=carried)
    source = _OtherSource.model_validate(_read(name))
    read = [metric for metric in metrics if metric.name in source.expressions]
    return Preset(
        discovery=source.discovery,
        progress=[
            counter.model_copy(update={"expression": source.expressions[counter.name]})
            for counter in whole.progress
            if counter.name in source.expressions
        ],
        metrics=[
            PresetMetric.model_validate(
                metric.model_dump() | {"expression": source.expressions[metric.name]}
            )
            for metric in read
        ],
    )


def _read(name: str) -> object:
    return read_yaml(_PRESETS / f"{name}.yaml", is_shipped=True)


@cache
def names_by_alias() -> Mapping[str, str]:
    """Return the name of a shipped metric by each of its aliases."""
    metrics = load_preset("peerwatch").metrics
    return {alias: metric.name for metric in metrics for alias in metric.aliases}
