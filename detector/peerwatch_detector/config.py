"""Every setting of the detector, declared once: type, default, limits, meaning.

The YAML file, the error texts and the table in ``docs/configuration.md`` all follow from here.
"""

from __future__ import annotations

import difflib
import math
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import jinja2
import jinja2.meta
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from peerwatch_detector.errors import ConfigError
from peerwatch_detector.judgement_config import (
    AbsentConfig,
    ContinuityConfig,
    MinderConfig,
    PeerwatchConfig,
    Section,
    SimilarityConfig,
    ZScoreConfig,
)

Method = Literal["peerwatch", "minder", "zscore"]
Scope = Literal["node", "gpu"]
Direction = Literal["high", "low", "both"]
Kind = Literal["work", "load", "network"]


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


class PrometheusConfig(Section):
    """Where the ranges come from."""

    url: str = Field(
        default="http://127.0.0.1:9090",
        pattern=r"^https?://[^\s]+$",
        description="Base URL of any server with the Prometheus query API.",
    )
    timeout_seconds: float = Field(
        default=10.0, gt=0, le=300, description="Longest wait for one answer."
    )
    recorded: bool = Field(
        default=True,
        description="Read the series of rules/recording.rules.yaml; false sends the joined "
        "expressions instead, for servers without the rules.",
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Extra HTTP headers, such as Authorization."
    )
    lag_seconds: float = Field(
        default=2.0,
        ge=0,
        le=60,
        description="How far behind the clock a range ends, so that late scrapes are in it.",
    )


class ListenConfig(Section):
    """Where the detector serves its page and its metrics."""

    address: str = Field(default="127.0.0.1", description="Address to bind.")
    port: int = Field(default=9401, ge=0, le=65535, description="TCP port; 0 takes a free one.")


class MetricConfig(Section):
    """One metric to compare nodes by; an entry of a preset."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Label value of ``metric``.")
    unit: str = Field(min_length=1, description="Base unit of the values, in words.")
    scope: Scope = Field(default="node", description="One value per node, or per GPU of a node.")
    recorded: SeriesName = Field(description="Series of the recording rules.")
    expression: Expression = Field(
        description="The same as PromQL; a Jinja2 template over job and window."
    )
    bounds: Bounds = Field(description="Limits of the Min-Max scaling, in the unit.")
    smallest_effect: float = Field(
        gt=0, description="Deviation from the peers below which a node is never a candidate."
    )
    direction: Direction = Field(default="both", description="Which deviation means harm.")
    floor: float | None = Field(
        default=None,
        gt=0,
        description="Added to values before they are compared by factors, so that two values next "
        "to nothing are alike. Default: smallest_effect.",
    )
    smallest_ratio: float | None = Field(
        default=None,
        gt=1,
        le=1000,
        description="Factor between a node and its peers below which it is never a candidate of "
        "method peerwatch. Default: smallest_effect seen from the job's usual level.",
    )
    kind: Kind = Field(
        default="work",
        description="work: what the node does for the job; load: other programs raise it too, so a "
        "high value alone is no sign; network: congestion, which spreads to other nodes.",
    )
    warns: bool = Field(
        default=False,
        description="Whether a lasting deviation that costs the job no progress is a warning.",
    )

    @property
    def level_floor(self) -> float:
        """The floor in force."""
        return self.smallest_effect if self.floor is None else self.floor


class Overrides(Section):
    """Changes to one metric of the preset; what is left out stays."""

    bounds: Bounds | None = Field(default=None, description="See bounds.")
    smallest_effect: float | None = Field(default=None, gt=0, description="See smallest_effect.")
    direction: Direction | None = Field(default=None, description="See direction.")
    floor: float | None = Field(default=None, gt=0, description="See floor.")
    smallest_ratio: float | None = Field(
        default=None, gt=1, le=1000, description="See smallest_ratio."
    )
    kind: Kind | None = Field(default=None, description="See kind.")
    warns: bool | None = Field(default=None, description="See warns.")
    recorded: SeriesName | None = Field(default=None, description="See recorded.")
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
        default_factory=dict, description="Changes by metric name."
    )
    extra: list[MetricConfig] = Field(
        default_factory=list, description="Metrics of your own, asked after the preset's."
    )


class Discovery(Section):
    """The series that tell which node works for which training job."""

    job_info: str = Field(description="Info series with job_id and node.")
    presence: str = Field(description="Series that exists while a node can be scraped.")


class Preset(Section):
    """A shipped set of metrics for one family of exporters."""

    discovery: Discovery
    metrics: list[MetricConfig] = Field(min_length=1)


class DetectorConfig(Section):
    """The whole configuration file."""

    prometheus: PrometheusConfig = Field(default_factory=PrometheusConfig)
    listen: ListenConfig = Field(default_factory=ListenConfig)
    preset: Literal["peerwatch"] = Field(
        default="peerwatch", description="Which exporters' metrics to read."
    )
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    method: Method = Field(default="peerwatch", description="How nodes are judged.")
    models: Path | None = Field(
        default=None,
        description="Model bundle written by `peerwatch-detector train`. A metric without a model "
        "is compared by its raw windows.",
    )
    cycle_seconds: float = Field(
        default=15.0, ge=0.5, le=600, description="Time between two cycles over all jobs."
    )
    history_seconds: int = Field(
        default=900, ge=60, le=7200, description="Range read at start and kept in memory."
    )
    window_length: int = Field(default=8, ge=2, le=128, description="Samples of one window.")
    fill_limit_seconds: int = Field(
        default=10, ge=0, le=300, description="A gap up to this long is filled by its neighbour."
    )
    smallest_job: int = Field(
        default=3, ge=2, le=1000, description="Jobs with fewer nodes are not compared."
    )
    rate_window_seconds: int = Field(
        default=15, ge=2, le=900, description="Rate window of the joined expressions."
    )
    similarity: SimilarityConfig = Field(default_factory=SimilarityConfig)
    continuity: ContinuityConfig = Field(default_factory=ContinuityConfig, validate_default=True)
    zscore: ZScoreConfig = Field(default_factory=ZScoreConfig)
    peerwatch: PeerwatchConfig = Field(default_factory=PeerwatchConfig)
    minder: MinderConfig = Field(default_factory=MinderConfig)
    absent: AbsentConfig = Field(default_factory=AbsentConfig)

    # Both compare fields, yet each runs whatever else is wrong, so that all mistakes show at once.
    @field_validator("continuity")
    @classmethod
    def _history_holds_a_streak(
        cls, continuity: ContinuityConfig, info: ValidationInfo
    ) -> ContinuityConfig:
        history = info.data.get("history_seconds", math.inf)
        needed = continuity.threshold_seconds + info.data.get("window_length", 0)
        if needed > history:
            raise ValueError(
                f"threshold_seconds + window_length = {needed:g} must be at most history_seconds "
                f"{history!r}, or a restart would lose streaks; raise history_seconds"
            )
        return continuity

    @field_validator("metrics")
    @classmethod
    def _metric_names_fit(cls, metrics: MetricsConfig, info: ValidationInfo) -> MetricsConfig:
        if "preset" not in info.data:
            return metrics
        shipped = [metric.name for metric in load_preset(info.data["preset"]).metrics]
        extra, enabled = [metric.name for metric in metrics.extra], metrics.enabled or []
        known = shipped + extra
        asked = [("enabled", name) for name in enabled]
        asked += [("overrides", name) for name in metrics.overrides]
        wrong = [f"{where}: unknown metric {name!r}" for where, name in asked if name not in known]
        twice = {name for name in enabled if enabled.count(name) > 1}
        wrong += [f"enabled: {name!r} is there twice" for name in sorted(twice)]
        taken = {name for name in extra if known.count(name) > 1}
        wrong += [f"extra: metric {name!r} exists already" for name in sorted(taken)]
        if wrong:
            raise ValueError("; ".join(wrong) + f"; known metrics are {', '.join(known)}")
        return metrics

    @field_validator("minder")
    @classmethod
    def _minder_metrics_fit(cls, minder: MinderConfig, info: ValidationInfo) -> MinderConfig:
        # The default may name metrics that a preset lacks; what was written down may not.
        if "metrics" not in minder.model_fields_set or not {"preset", "metrics"} <= set(info.data):
            return minder
        known = [metric.name for metric in load_preset(info.data["preset"]).metrics]
        known += [metric.name for metric in info.data["metrics"].extra]
        wrong = [
            f"metrics: unknown metric {name!r}" for name in minder.metrics if name not in known
        ]
        twice = {name for name in minder.metrics if minder.metrics.count(name) > 1}
        wrong += [f"metrics: {name!r} is there twice" for name in sorted(twice)]
        if wrong:
            raise ValueError("; ".join(wrong) + f"; known metrics are {', '.join(known)}")
        return minder

    @property
    def discovery(self) -> Discovery:
        """The preset's discovery series."""
        return load_preset(self.preset).discovery

    @property
    def similarity_threshold(self) -> float:
        """The similarity threshold in force for the method."""
        if self.similarity.threshold is not None:
            return self.similarity.threshold
        return 2.0 if self.method == "minder" else 5.0

    @property
    def margin_seconds(self) -> int:
        """How far before the first new step a cycle's samples must begin."""
        fill = self.minder.fill_seconds if self.method == "minder" else self.fill_limit_seconds
        return max(self.window_length - 1 + fill, self.peerwatch.level_seconds)

    def detection_metrics(self) -> tuple[MetricConfig, ...]:
        """Return the metrics to compare, in priority order, overrides applied."""
        by_name = {m.name: m for m in (*load_preset(self.preset).metrics, *self.metrics.extra)}
        names = list(by_name)
        if self.metrics.enabled is not None:
            names = self.metrics.enabled
        elif self.method == "minder":
            extra = [metric.name for metric in self.metrics.extra]
            names = list(dict.fromkeys(n for n in (*self.minder.metrics, *extra) if n in by_name))
        merged = []
        for name in names:
            change = self.metrics.overrides.get(name, Overrides()).model_dump(exclude_none=True)
            merged.append(MetricConfig.model_validate(by_name[name].model_dump() | change))
        return tuple(merged)


@cache
def load_preset(name: str) -> Preset:
    """Return a preset that ships with the package; parsing it takes longer than a cycle."""
    text = resources.files("peerwatch_detector.presets").joinpath(f"{name}.yaml").read_text()
    return Preset.model_validate(yaml.safe_load(text))


def load_config(path: Path | None, changes: dict[str, Any] | None = None) -> DetectorConfig:
    """Read a configuration file and check it.

    Parameters
    ----------
    path
        YAML file; None takes the defaults.
    changes
        Values from the command line, nested as in the file; they win.

    Raises
    ------
    ConfigError
        With every mistake at once, each with its path.
    """
    raw: Any = {}
    if path is not None:
        try:
            raw = yaml.safe_load(path.read_text())
        except OSError as error:
            raise ConfigError([f"{path}: cannot be read: {error.strerror}."]) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError([f"{path}: is not YAML: {' '.join(str(error).split())}."]) from error
    raw = {} if raw is None else raw
    if not isinstance(raw, dict):
        raise ConfigError([f"{path}: must be a mapping of settings, got {type(raw).__name__}."])
    for section, values in (changes or {}).items():
        present = raw.get(section) or {}
        raw[section] = present | values if isinstance(present, dict) else present
    try:
        return DetectorConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError([_mistake(dict(problem)) for problem in error.errors()]) from error


def _mistake(problem: dict[str, Any]) -> str:
    """Turn one pydantic error into a sentence with its path, the value and what to do."""
    path = ".".join(str(part) for part in problem["loc"]) or "configuration"
    if problem["type"] == "extra_forbidden":
        known = _keys_at(problem["loc"][:-1])
        close = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys are {', '.join(known)}."
        return f"{path}: unknown key {problem['loc'][-1]!r}; {hint}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{path}: {message}."
    return f"{path}: {message[0].lower()}{message[1:]}, got {problem['input']!r}."


def _keys_at(location: tuple[Annotated[int | str, "path part"], ...]) -> list[str]:
    """Return the keys that the section at ``location`` knows."""
    section: type[BaseModel] = DetectorConfig
    for part in location:
        field = section.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            section = annotation
        elif str(location[0]) == "metrics" and len(location) > 1:
            return sorted(
                Overrides.model_fields if location[1] == "overrides" else MetricConfig.model_fields
            )
    return sorted(section.model_fields)
