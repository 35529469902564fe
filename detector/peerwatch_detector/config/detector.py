"""Every setting of the detector, declared once: type, default, limits, meaning.

The YAML file, the error texts and the table in ``docs/configuration.md`` all follow from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from peerwatch_common.settings.load import validated, with_changes
from peerwatch_common.settings.section import Section
from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_detector.config.detection import (
    AbsentConfig,
    ContinuityConfig,
    PeersConfig,
    SimilarityConfig,
)
from peerwatch_detector.config.exporters import ExportersConfig
from peerwatch_detector.config.methods import (
    EVALUATED_EVERY,
    MethodConfig,
    MinderConfig,
    PeerwatchConfig,
    ZScoreConfig,
)
from peerwatch_detector.config.metric import (
    MetricConfig,
    MetricsConfig,
    Overrides,
    ReadMetric,
)
from peerwatch_detector.config.metric_names import wrong_names
from peerwatch_detector.config.preset import (
    Discovery,
    PresetName,
    ProgressMetric,
    load_preset,
)
from peerwatch_detector.config.prometheus import PrometheusConfig
from peerwatch_detector.config.section import Seconds
from peerwatch_detector.config.service import (
    DiagnosisConfig,
    LinksConfig,
    ListenConfig,
    ReplicasConfig,
    SchedulingConfig,
    WebConfig,
)

Method = Literal["peerwatch", "minder", "zscore"]

# Steps of history that are kept of every series: 15 minutes at 10 ms.
_MOST_STEPS = 100_000
# A frame reaches so many samples, and seconds, before the newest: a deviating GPU is looked for in
# as many samples, and progress is told in whole seconds.
_CONTEXT = 30


def _as_detail(item: ErrorDetails) -> InitErrorDetails:
    """Return one of pydantic's errors so that it can be raised again."""
    return InitErrorDetails(
        type=item["type"], loc=item["loc"], input=item["input"], ctx=item.get("ctx", {})
    )


def _is_step(seconds: float) -> float:
    whole = seconds if seconds >= 1 else 1 / seconds
    if abs(whole - round(whole)) > 1e-6 * whole:
        raise ValueError(
            f"{seconds:g} must be whole seconds or divide a second, as 0.1 and 0.05 do, so that "
            "all nodes share the instants"
        )
    if seconds < 1 and 1000 % round(whole):
        raise ValueError(
            f"{seconds:g} must be whole milliseconds, as 0.125 and 0.05 are: samples have no finer "
            "times"
        )
    return seconds


def _is_bundle(models: object) -> object:
    if models is None:
        return "default"
    if not isinstance(models, (str, Path)) or not str(models):
        raise ValueError(f"{models!r} must be default, none, or the path of a model bundle")
    return models


Models = Annotated[Literal["default", "none"] | Path, BeforeValidator(_is_bundle)]
Step = Annotated[float, AfterValidator(_is_step)]


class DetectorConfig(Section):
    """The whole configuration file."""

    prometheus: PrometheusConfig = Field(default_factory=PrometheusConfig)
    listen: ListenConfig = Field(default_factory=ListenConfig)
    web: WebConfig = Field(default_factory=WebConfig)
    links: LinksConfig = Field(default_factory=LinksConfig)
    preset: PresetName = Field(
        default="peerwatch",
        description="What to read: peerwatch, the series that the recording rules make of "
        "peerwatch-exporter's; fast, its fast endpoint, without rules; dcgm, the series of "
        "dcgm-exporter, node_exporter and rdma_exporter.",
    )
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    method: Method = Field(default="peerwatch", description="How nodes are compared.")
    models: Models = Field(
        default="default",
        description="The LSTM-VAEs of method minder: default or null, those that ship with the "
        "package; none; or a bundle written by `peerwatch-detector train` (FILE, or ./none). A "
        "metric without a model is compared by its raw windows.",
    )
    step_seconds: Step = Field(
        default=1,
        ge=0.01,
        le=60,
        description="Time between two samples: whole seconds, or what divides a second. A recorded "
        "case has its own.",
    )
    resolution_seconds: float = Field(
        default=0.0,
        ge=0,
        le=1,
        validate_default=True,
        description="What the detection counts in samples (five from one evaluation of a job to "
        "the next, sixty of a usual past, an hour of findings to follow) has samples of this "
        "length. 0: step_seconds, at most a second, so that with samples of milliseconds all of it "
        "is as much shorter; other settings named seconds keep their length.",
    )
    cycle_seconds: float = Field(
        default=15.0, ge=0.5, le=600, description="Time between two evaluations of a job."
    )
    history_seconds: Seconds = Field(
        default=900,
        gt=0,
        le=7200,
        validate_default=True,
        description="Range read at startup and kept in memory; 60 steps or more.",
    )
    held_samples: int = Field(
        default=24_000_000,
        ge=0,
        description="Evaluated samples of one metric of a job that are kept for the web UI's "
        "plots, 4 bytes each: of 100,000 GPUs the last 240 s, of up to 26,000 nodes or GPUs all "
        "of history_seconds. What evaluating needs is always kept.",
    )
    window_length: int = Field(
        default=8, ge=2, le=128, description="Number of samples in a window."
    )
    fill_limit_seconds: Seconds = Field(
        default=10,
        ge=0,
        le=300,
        description="Gaps up to this long are filled with the neighbouring value.",
    )
    min_nodes: int = Field(
        default=3, ge=2, le=1000, description="Jobs with fewer nodes are not compared."
    )
    rate_window_seconds: int = Field(
        default=15,
        ge=2,
        le=900,
        validate_default=True,
        description="Rate window of the joined expressions.",
    )
    peers: PeersConfig = Field(default_factory=PeersConfig)
    similarity: SimilarityConfig = Field(default_factory=SimilarityConfig)
    continuity: ContinuityConfig = Field(default_factory=ContinuityConfig, validate_default=True)
    zscore: ZScoreConfig = Field(default_factory=ZScoreConfig)
    peerwatch: PeerwatchConfig = Field(default_factory=PeerwatchConfig, validate_default=True)
    minder: MinderConfig = Field(default_factory=MinderConfig)
    absent: AbsentConfig = Field(default_factory=AbsentConfig)
    scheduling: SchedulingConfig = Field(default_factory=SchedulingConfig)
    diagnosis: DiagnosisConfig = Field(default_factory=DiagnosisConfig)
    replicas: ReplicasConfig = Field(default_factory=ReplicasConfig)
    exporters: ExportersConfig = Field(default_factory=ExportersConfig)

    # These compare fields, yet each runs whatever else is wrong, so that all mistakes show at once.
    @field_validator("resolution_seconds")
    @classmethod
    def _resolution_is_some_steps(cls, resolution: float, info: ValidationInfo) -> float:
        finest: float = min(1.0, info.data.get("step_seconds", 1.0))
        if not resolution:
            return finest
        steps = resolution / finest
        if steps < 1 - 1e-6 or abs(steps - round(steps)) > 1e-6 * steps:
            raise ValueError(
                f"{resolution:g} must be a multiple of step_seconds, at most a second: of "
                f"{finest:g} here; 0 takes that"
            )
        return _is_step(resolution)

    @field_validator("history_seconds")
    @classmethod
    def _history_is_some_steps(cls, history: float, info: ValidationInfo) -> float:
        step, cycle = info.data.get("step_seconds", 1), info.data.get("cycle_seconds", 0)
        # Coarse steps are evaluated on a grid of seconds, so seconds are enough.
        least = 60 * info.data.get("resolution_seconds", min(step, 1))
        most = min(7200, _MOST_STEPS * step)
        if not least <= history <= most:
            raise ValueError(
                f"{history:g} must be between {least:g} and {most:g} with step_seconds {step:g}; "
                "change one of the two"
            )
        if history < cycle:
            raise ValueError(
                f"{history:g} must be at least cycle_seconds {cycle:g}, or samples between two "
                "cycles are lost; shorten cycle_seconds"
            )
        return history

    @field_validator("rate_window_seconds")
    @classmethod
    def _rates_have_two_samples(cls, window: int, info: ValidationInfo) -> int:
        step, server = info.data.get("step_seconds", 1), info.data.get("prometheus")
        if server is not None and not server.recorded and window < 2 * step:
            raise ValueError(
                f"{window} must be at least two steps of {step:g} s, or a rate has no second "
                "sample; raise it"
            )
        return window

    @field_validator("peerwatch")
    @classmethod
    def _levels_have_samples(
        cls, peerwatch: PeerwatchConfig, info: ValidationInfo
    ) -> PeerwatchConfig:
        step = info.data.get("step_seconds", 1)
        least = max(EVALUATED_EVERY * info.data.get("resolution_seconds", min(step, 1)), step)
        if info.data.get("method") == info.field_name and peerwatch.level_seconds < least:
            raise ValueError(
                f"level_seconds {peerwatch.level_seconds:g} must be at least {least:g} with "
                f"step_seconds {step:g}; raise it"
            )
        return peerwatch

    @field_validator("continuity")
    @classmethod
    def _history_holds_a_deviation(
        cls, continuity: ContinuityConfig, info: ValidationInfo
    ) -> ContinuityConfig:
        history = info.data.get("history_seconds", math.inf)
        window = info.data.get("window_length", 0) * info.data.get("step_seconds", 1)
        needed = continuity.threshold_seconds + window
        if needed > history:
            raise ValueError(
                f"threshold_seconds + window_length = {needed:g} must be at most history_seconds "
                f"{history!r}, or a restart would lose deviations; raise history_seconds"
            )
        return continuity

    @model_validator(mode="wrap")
    @classmethod
    def _metric_names_fit(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Tell wrong names of metrics beside all other mistakes."""
        found: list[InitErrorDetails] = []
        config = None
        try:
            config = handler(data)
        except ValidationError as error:
            found += [_as_detail(item) for item in error.errors(include_url=False)]
        found += [
            InitErrorDetails(
                type=PydanticCustomError("value_error", "{sentence}", {"sentence": sentence}),
                loc=(section,),
                input=None,
            )
            for section, sentence in wrong_names(data)
        ]
        if found or config is None:
            raise ValidationError.from_exception_data(cls.__name__, found)
        return config

    @property
    def method_config(self) -> MethodConfig:
        """The section of the method in force."""
        sections: dict[Method, MethodConfig] = {
            "peerwatch": self.peerwatch,
            "minder": self.minder,
            "zscore": self.zscore,
        }
        return sections[self.method]

    @property
    def discovery(self) -> Discovery:
        """The preset's discovery series."""
        return load_preset(self.preset).discovery

    @property
    def similarity_threshold(self) -> float:
        """The similarity threshold in force for the method."""
        if self.similarity.threshold is not None:
            return self.similarity.threshold
        return self.method_config.default_similarity_threshold

    @property
    def margin_seconds(self) -> float:
        """How far before the first new step a cycle's samples must begin, peaks not counted."""
        own = self.method_config.own_fill_seconds
        fill = self.fill_limit_seconds if own is None else own
        window = (self.window_length - 1) * self.step_seconds
        return max(window + fill, self.peerwatch.level_seconds)

    @property
    def evaluation_seconds(self) -> float:
        """Time between two steps at which method peerwatch evaluates a job."""
        return round(EVALUATED_EVERY * self.resolution_seconds, 3)

    @property
    def context_steps(self) -> int:
        """How many samples before the newest a frame reaches back at least."""
        return max(_CONTEXT, self.steps_in(_CONTEXT))

    def steps_in(self, seconds: float) -> int:
        """Return how many samples a length of time has."""
        return round(seconds / self.step_seconds)

    def detection_metrics(self) -> tuple[MetricConfig, ...]:
        """Return the metrics to compare, in priority order, overrides applied."""
        shipped: list[MetricConfig] = [*load_preset(self.preset).metrics]
        by_name = {metric.name: metric for metric in (*shipped, *self.metrics.extra)}
        names = list(by_name)
        if self.metrics.enabled is not None:
            names = self.metrics.enabled
        elif (default := self.method_config.default_metrics) is not None:
            extra = [metric.name for metric in self.metrics.extra]
            names = list(dict.fromkeys(n for n in (*default, *extra) if n in by_name))
        merged = []
        for name in names:
            change = self.metrics.overrides.get(name, Overrides()).model_dump(exclude_none=True)
            metric = by_name[name]
            if change:
                # Checked again, which takes a thousand times as long as taking it as it is.
                metric = type(metric).model_validate(metric.model_dump() | change)
            merged.append(metric)
        return tuple(merged)

    def progress_counters(self) -> tuple[ProgressMetric, ...]:
        """Return the counters of the job's own work that the method reads beside the metrics."""
        wanted = self.method_config.counters
        return tuple(each for each in load_preset(self.preset).progress if each.name in wanted)

    def read_metrics(self) -> tuple[ReadMetric, ...]:
        """Return all that is read of a job: what nodes are compared by, and its own counters."""
        return (*self.detection_metrics(), *self.progress_counters())


def load_config(
    path: Path | None, changes: Mapping[str, Mapping[str, object]] | None = None
) -> DetectorConfig:
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
    data = {} if path is None else read_yaml(path)
    return validated(DetectorConfig, with_changes(data, changes or {}))
