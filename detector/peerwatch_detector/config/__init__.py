"""Every setting of the detector: type, default, limits, meaning."""

from peerwatch_detector.config.detector import DetectorConfig, Method, load_config
from peerwatch_detector.config.metric import (
    Direction,
    Kind,
    MetricConfig,
    MetricsConfig,
    Overrides,
    ReadMetric,
    Scope,
    SeriesName,
)
from peerwatch_detector.config.preset import Discovery, Preset, load_preset, names_by_alias
from peerwatch_detector.config.prometheus import PrometheusConfig, ReadingConfig
from peerwatch_detector.config.service import ListenConfig

__all__ = [
    "DetectorConfig",
    "Direction",
    "Discovery",
    "Kind",
    "ListenConfig",
    "Method",
    "MetricConfig",
    "MetricsConfig",
    "Overrides",
    "Preset",
    "PrometheusConfig",
    "ReadMetric",
    "ReadingConfig",
    "Scope",
    "SeriesName",
    "load_config",
    "load_preset",
    "names_by_alias",
]
