"""What the newest windows tell of every node of one metric, to be shown beside the findings."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.places import places_of
from peerwatch_detector.detection.preprocess import fill_nearest, min_max, windows
from peerwatch_detector.detection.similarity import (
    Mask,
    Scores,
    distance_sums,
    normal_score,
    sums_over_some,
)
from peerwatch_detector.detection.zscores import zscores
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.models.base import Model


class NodeValues(Mapping[str, float]):
    """A value of every node, looked up by its name.

    A large job has hundreds of thousands in a cycle, of which few are ever looked up.

    Parameters
    ----------
    nodes
        Names.
    values
        Shape (n_nodes,).
    """

    def __init__(self, nodes: tuple[str, ...], values: NDArray[np.float64]) -> None:
        self.nodes, self.values_in_order = nodes, values
        self._found: dict[str, float] | None = None

    def __getitem__(self, node: str) -> float:
        if self._found is None:
            self._found = dict(self.items())
        return self._found[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return repr(dict(self.items()))

    def items(self) -> ItemsView[str, float]:
        """Return nodes and values, without looking each of them up."""
        return _Items(self)


class _Items(ItemsView[str, float]):
    def __init__(self, values: NodeValues) -> None:
        super().__init__(values)
        self._values = values

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return zip(self._values.nodes, self._values.values_in_order.tolist(), strict=True)


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

    def take(self, newest: WindowScores) -> None:
        """Take in the last of some windows."""
        self.normal, self.zscores = newest.normal[-1], newest.zscores[-1]
        self.coverage = float(newest.present[-1].mean())

    def by_node(self, values: NDArray[np.float64]) -> Mapping[str, float]:
        """Return values by node."""
        return NodeValues(self.nodes, values)


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
    frame: JobFrame, metric: MetricConfig, model: Model, config: DetectorConfig, after: float
) -> WindowScores | None:
    """Embed and compare the windows that end later than a time; None if there is none.

    Parameters
    ----------
    frame, metric, model
        Whose windows, and what embeds them.
    config
        Settings.
    after
        Unix time.
    """
    length = config.window_length
    filled = fill_nearest(frame.values, config.steps_in(config.fill_limit_seconds))
    ends = frame.times[length - 1 :]
    new = ends > after
    cut = windows(filled, length)[new]
    if not len(cut):
        return None
    present: Mask = np.asarray(np.isfinite(cut).all(axis=2))
    points = _embed(cut[present], metric, model)
    embeddings = np.zeros((*present.shape, points.shape[1]), dtype=np.float32)
    embeddings[present] = points
    sums = distance_sums(embeddings, present)
    normal, others = normal_score(sums), zscores(_levels(cut, present))
    return WindowScores(ends[new], present, normal, others)


def score_newest(
    frame: JobFrame, metric: MetricConfig, model: Model, config: DetectorConfig
) -> WindowScores | None:
    """Embed and compare the newest window, to be shown; None if there is none.

    In a large job a node is compared with some hundred others, see ``sums_over_some``.

    Parameters
    ----------
    frame, metric, model, config
        As for ``score_windows``.
    """
    length, limit = config.window_length, config.steps_in(config.fill_limit_seconds)
    samples = frame.values[:, -(length + limit) :]
    newest = samples[:, -length:]
    if newest.shape[1] < length:
        return None
    present: Mask = np.asarray(np.isfinite(newest).all(axis=1))
    if not present.all():
        gaps = ~present
        newest = newest.copy()
        newest[gaps] = fill_nearest(samples[gaps], limit)[:, -length:]
        present[gaps] = np.isfinite(newest[gaps]).all(axis=1)
    sums = np.full(len(present), np.nan)
    sums[present] = sums_over_some(_embed(newest[present], metric, model))
    # Both are standardised in the same way.
    normal, others = normal_score(np.array((sums, _levels(newest, present))))
    return WindowScores(frame.times[-1:], present[None], normal[None], others[None])


def _levels(cut: NDArray[np.float32], present: Mask) -> NDArray[np.float64]:
    # The paper has no other smoothing than the window, so neither have the additions.
    return np.where(present, cut.mean(axis=-1, dtype=np.float64), np.nan)


def _embed(cut: NDArray[np.float32], metric: MetricConfig, model: Model) -> NDArray[np.float32]:
    """Embed windows; shape (n_windows, n_features)."""
    return model.embed(min_max(cut, metric.bounds))
