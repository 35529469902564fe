"""Every setting of the detector: type, default, limits, meaning."""

from peerwatch_detector.config.detector import (
    DetectorConfig,
    Direction,
    Discovery,
    Kind,
    ListenConfig,
    Method,
    MetricConfig,
    MetricsConfig,
    Overrides,
    Preset,
    PrometheusConfig,
    ReadingConfig,
    Scope,
    SeriesName,
    load_config,
    load_preset,
)

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
    "ReadingConfig",
    "Scope",
    "SeriesName",
    "load_config",
    "load_preset",
]
