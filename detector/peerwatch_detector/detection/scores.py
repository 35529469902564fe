"""What the newest windows tell of every node of one metric, to be shown beside the findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.places import places_of
from peerwatch_detector.detection.preprocess import fill_nearest, min_max, windows
from peerwatch_detector.detection.similarity import Mask, Scores, distance_sums, normal_score
from peerwatch_detector.detection.zscores import zscores
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.models.base import Model


@dataclass(slots=True)
class NodeScores:
    """The newest scores of one metric, in the order of ``nodes``; NaN = could not be evaluated.

    Parameters
    ----------
    nodes
        Names.
    normal, zscores
        Shape (n_nodes,).
    coverage
        Share of the nodes with a sample in the newest window.
    """

    nodes: tuple[str, ...] = ()
    normal: Scores = field(default_factory=lambda: np.empty(0))
    zscores: Scores = field(default_factory=lambda: np.empty(0))
    coverage: float = 0.0

    def follow(self, nodes: tuple[str, ...]) -> None:
        """Go on with these nodes."""
        if nodes == self.nodes:
            return
        places = places_of(nodes, self.nodes)
        for name in ("normal", "zscores"):
            setattr(self, name, np.append(getattr(self, name), np.nan)[places])
        self.nodes = nodes

    def take(self, windows: WindowScores) -> None:
        """Take in the last of some windows."""
        self.normal, self.zscores = windows.normal[-1], windows.zscores[-1]
        self.coverage = float(windows.present[-1].mean())

    def by_node(self, values: NDArray[np.float64]) -> Mapping[str, float]:
        """Return values by node."""
        return dict(zip(self.nodes, values.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class WindowScores:
    """Windows of one metric, compared.

    Parameters
    ----------
    ends
        Unix times of their last samples, shape (n_windows,).
    present
        Who takes part, shape (n_windows, n_nodes).
    normal, zscores
        Same shape.
    """

    ends: NDArray[np.float64]
    present: Mask
    normal: Scores
    zscores: Scores


def score_windows(
    frame: JobFrame,
    metric: MetricConfig,
    model: Model,
    config: DetectorConfig,
    after: float | None = None,
) -> WindowScores | None:
    """Embed and compare the windows that end later than a time; None if there is none.

    Parameters
    ----------
    frame, metric, model
        Whose windows, and what embeds them.
    config
        Settings.
    after
        Unix time; None for the newest window only.
    """
    length, limit = config.window_length, config.steps_in(config.fill_limit_seconds)
    if after is None:
        filled = _newest(frame.values[:, -(length + limit) :], length, limit)
    else:
        filled = fill_nearest(frame.values, limit)
    ends = frame.times[-filled.shape[1] :][length - 1 :]
    new = ends == ends[-1:] if after is None else ends > after
    cut = windows(filled, length)[new]
    if not len(cut):
        return None
    present: Mask = np.asarray(np.isfinite(cut).all(axis=2))
    sums = distance_sums(_embed(cut, present, metric, model), present)
    # The paper has no other smoothing than the window, so neither have the additions.
    levels = np.where(present, cut.mean(axis=2, dtype=np.float64), np.nan)
    return WindowScores(ends[new], present, normal_score(sums), zscores(levels))


def _newest(values: NDArray[np.float32], length: int, limit: int) -> NDArray[np.float32]:
    """Return the newest samples with their gaps filled; nearly all nodes have none."""
    newest = values[:, -length:].copy()
    gaps = ~np.isfinite(newest).all(axis=1)
    newest[gaps] = fill_nearest(values[gaps], limit)[:, -length:]
    return newest


def _embed(
    cut: NDArray[np.float32], present: Mask, metric: MetricConfig, model: Model
) -> NDArray[np.float32]:
    """Embed the present windows; shape (n_windows, n_nodes, n_features), 0 where not present."""
    points = model.embed(min_max(cut[present], metric.bounds))
    embeddings = np.zeros((*present.shape, points.shape[1]), dtype=np.float32)
    embeddings[present] = points
    return embeddings
