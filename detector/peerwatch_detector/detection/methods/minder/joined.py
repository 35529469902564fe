"""The paper's variants that compare a node's windows of all metrics together (CON and INT)."""

from __future__ import annotations

import numpy as np

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.methods.minder.tracking import MetricTracking
from peerwatch_detector.detection.methods.minder.windows import Candidates, Points
from peerwatch_detector.detection.similarity import Mask
from peerwatch_detector.errors import ModelError
from peerwatch_detector.models.base import Model
from peerwatch_detector.models.integrated import IntegratedLstmVae


def join(parts: list[MetricTracking], integrated: Model | None, config: DetectorConfig) -> None:
    """Give all metrics the candidates of their joined points.

    Evaluated are the windows that all metrics have. A metric that no node has does not count; a
    node takes part if it has all others.

    Parameters
    ----------
    parts
        The metrics.
    integrated
        The model of all metrics, if there is one.
    config
        Settings.
    """
    if not parts:
        return
    ends = parts[0].windows.ends
    for part in parts[1:]:
        ends = np.intersect1d(ends, part.windows.ends)

    def points(row: int) -> Points:
        rows = [int(np.searchsorted(part.windows.ends, ends[row])) for part in parts]
        single = [part.windows.points(row) for part, row in zip(parts, rows, strict=True)]
        return _joined(parts, single, integrated, config)

    candidates = Candidates(
        ends,
        np.ones(len(ends), dtype=bool),
        points,
        config.minder.distance,
        config.similarity_threshold,
        parts[0].memory.tracker.hole_seconds,
    )
    candidates.compare_all()
    for part in parts:
        part.candidates = candidates


def _joined(
    parts: list[MetricTracking],
    single: list[Points],
    integrated: Model | None,
    config: DetectorConfig,
) -> Points:
    """Join what all metrics tell of the nodes in one window."""
    known = [points.present for points in single]
    complete = [mask | (not mask.any()) for mask in known]
    present: Mask = np.any(known, axis=0) & np.all(complete, axis=0)
    if config.minder.join == "integrated":
        return _through_one_model(parts, single, present, integrated)
    return Points(np.concatenate([points.values for points in single], axis=1), present)


def _through_one_model(
    parts: list[MetricTracking], single: list[Points], present: Mask, model: Model | None
) -> Points:
    """Embed the scaled windows of all metrics together (INT); 0 where a node takes no part.

    Raises
    ------
    ModelError
        If there is no model of all metrics.
    """
    if not isinstance(model, IntegratedLstmVae):
        raise ModelError(
            "minder.join integrated needs a model of all metrics; take the shipped one (models: "
            "default) or train one with `peerwatch-detector train --integrated`."
        )
    by_metric = {
        # In a window in which nobody has a metric it stands at its usual level for all.
        part.metric.name: points.values
        if points.present.any()
        else np.full_like(points.values, model.levels[part.metric.name])
        for part, points in zip(parts, single, strict=True)
    }
    stacked = model.stack(by_metric, single[0].values.shape)
    found = model.embed(stacked[present])
    joined = np.zeros((len(present), found.shape[1]), dtype=np.float32)
    joined[present] = found
    return Points(joined, present)
