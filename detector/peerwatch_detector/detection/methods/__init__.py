"""The methods of detection, by the name that the configuration calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.config import Method as MethodName
from peerwatch_detector.detection.methods.base import Method
from peerwatch_detector.detection.methods.minder.method import MinderMethod
from peerwatch_detector.detection.methods.peerwatch.method import PeerwatchMethod
from peerwatch_detector.detection.methods.zscore.method import ZscoreMethod
from peerwatch_detector.detection.state import JobState
from peerwatch_detector.models.base import Model

__all__ = ["Method", "create_method"]

Factory: TypeAlias = Callable[[DetectorConfig, Mapping[str, Model], JobState], Method]

_METHODS: Mapping[MethodName, Factory] = {
    "peerwatch": PeerwatchMethod,
    "minder": MinderMethod,
    "zscore": ZscoreMethod,
}


def create_method(config: DetectorConfig, models: Mapping[str, Model], state: JobState) -> Method:
    """Return the configured method for one job.

    Parameters
    ----------
    config
        Settings.
    models
        By metric.
    state
        Of the job; the method lets its findings stand there.
    """
    return _METHODS[config.method](config, models, state)
