"""What a person calls a metric, or whatever else a finding is of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from peerwatch_detector.config.metric import ReadMetric
from peerwatch_detector.config.preset import load_preset
from peerwatch_detector.units import metric_words


def metric_title(name: str, metrics: Iterable[ReadMetric] = ()) -> str:
    """Return the title of a metric.

    Parameters
    ----------
    name
        Of a metric, or of what a job itself says, such as ``rank_exited``, which has no title and
        is written out.
    metrics
        Those in force, where they are known; else the shipped ones say what they are called.
    """
    own = {metric.name: metric.shown_title for metric in metrics}
    return own.get(name) or _shipped().get(name) or metric_words(name)


def finding_words(name: str) -> str:
    """Return what a finding is of, within a sentence: the title of a metric, or "rank exited"."""
    return _shipped().get(name) or name.replace("_", " ")


@cache
def _shipped() -> Mapping[str, str]:
    preset = load_preset("peerwatch")
    return {metric.name: metric.shown_title for metric in (*preset.metrics, *preset.progress)}
