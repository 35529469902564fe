"""The windows of method ``minder``, embedded and compared only where that matters.

A deviation as long as the continuity threshold holds a window at every multiple of that threshold.
So it is enough to compare in one window of so many, and to go on to both sides where it has a
candidate for as long as the candidate stays the same; what was skipped can be compared later. A
job without a fault costs some windows in place of hundreds, and what is found is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.preprocess import fill_nearest, min_max, windows
from peerwatch_detector.detection.similarity import (
    Distance,
    Mask,
    Scores,
    distance_sums,
    normal_score,
    single_candidates,
)
from peerwatch_detector.detection.time_grid import elapsed, to_milliseconds
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.models.base import Model
from peerwatch_detector.models.identity import Identity

# Distances between single metrics, where the job is compared by another one over all of them.
_OF_ONE_METRIC: dict[Distance, Distance] = {"mahalanobis": "euclidean"}
# In ``Candidates.found``: nobody is the candidate, or the window was not compared.
NOBODY, NOT_COMPARED = -1, -2
# Nodes that are searched at a time for somebody who is there.
_SOME_NODES = 16
# By so much a node's distances must be longer than another's, for certain.
_CERTAINLY = 1e-4


@dataclass(frozen=True, slots=True)
class Points:
    """What the nodes are compared by in one window.

    Parameters
    ----------
    values
        Shape (n_nodes, n_features), 0 where not present.
    present
        Which nodes take part, shape (n_nodes,).
    """

    values: NDArray[np.float32]
    present: Mask

    def scores(self, distance: Distance) -> Scores:
        """Return the nodes' normal scores, shape (n_nodes,); NaN where not present."""
        sums = distance_sums(self.values[None], self.present[None], distance)
        scores: Scores = normal_score(sums)[0]
        return scores

    def another_is_further(self, node: int) -> bool:
        """Whether some node is further from all others than ``node``, which is easily seen."""
        here, away = self._seen_from_the_middle()
        own, other = (_distances(here, point) for point in (self.values[node], here[away.argmax()]))
        return other > (1 + _CERTAINLY) * own

    def stands_out(self, node: int, threshold: float) -> bool:
        """Whether ``node`` is the candidate for certain, as one far from all others is.

        With a nodes' mean at distance a of a node, all nodes' distances to it adding up to A, the
        node's distances to the n nodes add up to at least n a, or A - n a, and at most
        (n - 2) a + A: the first because a norm is convex, the rest by the triangle's inequality.
        """
        here, away = self._seen_from_the_middle()
        count, total = len(here), away.sum()
        if count < 3:
            return False
        own = _distances(here, self.values[node])
        others = np.delete(away, int(self.present[:node].sum()))
        most = (count - 2) * others + total
        least = np.maximum(count * others, total - count * others)
        middle = (most + least).mean() / 2
        # The variance is the least mean square, about whatever number that is taken.
        square = (own - middle) ** 2 + (np.maximum(most - middle, middle - least) ** 2).sum()
        above = own - (own + most.sum()) / count
        enough = (1 + _CERTAINLY) * threshold * np.sqrt(square / count)
        return bool(own > (1 + _CERTAINLY) * most.max() and above > enough)

    def _seen_from_the_middle(self) -> tuple[Scores, Scores]:
        """Return the points of those present, and their distances to the mean of them."""
        here = self.values[self.present].astype(np.float64)
        away: Scores = np.linalg.norm(here - here.mean(axis=0), axis=1)
        return here, away


def _distances(points: Scores, point: NDArray[np.floating]) -> float:
    """Add up the distances of one point to all."""
    return float(np.linalg.norm(points - point, axis=1).sum())


class MetricWindows:
    """One metric's new windows.

    Parameters
    ----------
    metric, frame, model
        Whose windows, and what embeds them.
    config
        Settings.
    evaluated_until
        Windows that end later are new.
    """

    def __init__(
        self,
        metric: MetricConfig,
        frame: JobFrame,
        model: Model,
        config: DetectorConfig,
        evaluated_until: float,
    ) -> None:
        self.metric, self.frame = metric, frame
        switches, self._length = config.minder, config.window_length
        self._limit = config.steps_in(switches.fill_seconds)
        self._means = switches.distance == "mahalanobis"
        # The model of all metrics reads windows, not what models of single metrics make of them.
        raw = switches.model == "raw" or switches.join == "integrated"
        self._model = Identity() if raw else model
        self.distance = _OF_ONE_METRIC.get(switches.distance, switches.distance)
        ends = frame.times[self._length - 1 :]
        self._first = int(np.searchsorted(ends, evaluated_until, side="right"))
        self.ends = ends[self._first :]

    def cut(self, row: int) -> NDArray[np.float32]:
        """Return the samples of a window, gaps filled, shape (n_nodes, window_length)."""
        end = self._first + row + self._length
        return causal_window(self.frame.values, end, self._length, self._limit)

    def points(self, row: int) -> Points:
        """Return what the nodes are compared by in a window."""
        cut = self.cut(row)
        present: Mask = np.asarray(np.isfinite(cut).all(axis=1))
        if self._means:
            cut = np.where(present, cut.mean(axis=1), np.nan).astype(np.float32)[:, None]
        found = self._model.embed(min_max(cut[present], self.metric.bounds))
        values = np.zeros((len(cut), found.shape[1]), dtype=np.float32)
        values[present] = found
        return Points(values, present)

    def scores(self, row: int) -> Scores:
        """Return the normal scores of a window by this metric alone, shape (n_nodes,)."""
        return self.points(row).scores(self.distance)

    def observed(self) -> Mask:
        """Return in which windows anybody takes part, shape (n_windows,)."""
        found: Mask = np.zeros(len(self.ends), dtype=bool)
        values = self.frame.values
        known = values[np.isfinite(values).any(axis=1)]
        for start in range(0, len(known), _SOME_NODES):
            if found.all():
                break
            batch = causal_windows(known[start : start + _SOME_NODES], self._length, self._limit)
            present: Mask = np.asarray(np.isfinite(batch[self._first :]).all(axis=2))
            found |= present.any(axis=1)
        return found


class Candidates:
    """The candidate of every window, determined where it matters.

    Parameters
    ----------
    ends
        Unix times of the windows' last samples, shape (n_windows,).
    observed
        In which of them anybody takes part, shape (n_windows,).
    points
        Returns what nodes are compared by in a window.
    distance, threshold
        How, and the normal score over which a node is the candidate.
    hole_seconds
        A hole in the data longer than this ends a deviation.
    """

    def __init__(
        self,
        ends: NDArray[np.float64],
        observed: Mask,
        points: Callable[[int], Points],
        distance: Distance,
        threshold: float,
        hole_seconds: float,
    ) -> None:
        self.ends, self.observed = ends, observed
        self._hole_seconds = hole_seconds
        self._points, self._distance, self._threshold = points, distance, threshold
        self.found = np.full(len(ends), NOT_COMPARED)
        self._score = np.full(len(ends), np.nan)

    def candidate(self, row: int) -> int:
        """Return a window's candidate, or NOBODY."""
        if self.found[row] == NOT_COMPARED:
            self._compare(row, self._points(row))
        return int(self.found[row])

    def score(self, row: int) -> float:
        """Return the normal score of a window's candidate; NaN for nobody."""
        if self.found[row] >= 0 and np.isnan(self._score[row]):
            self._compare(row, self._points(row))
        return float(self._score[row])

    def is_candidate(self, row: int, node: int) -> bool:
        """Whether a node is a window's candidate; it mostly needs no comparison of all."""
        if self.found[row] != NOT_COMPARED:
            return bool(self.found[row] == node)
        points = self._points(row)
        if not points.present[node]:
            return False
        if self._distance == "euclidean":
            if points.another_is_further(node):
                return False
            if points.stands_out(node, self._threshold):
                self.found[row] = node
                return True
        self._compare(row, points)
        return bool(self.found[row] == node)

    def _compare(self, row: int, points: Points) -> None:
        """Compare all nodes of a window with each other."""
        scores = points.scores(self._distance)
        chosen = np.flatnonzero(single_candidates(scores[None], self._threshold)[0])
        self.observed[row] = points.present.any()
        self.found[row] = chosen[0] if len(chosen) else NOBODY
        self._score[row] = scores[chosen[0]] if len(chosen) else np.nan

    def compare_all(self) -> None:
        """Compare the nodes in every window."""
        for row in range(len(self.ends)):
            self.candidate(row)

    def find_deviations(self, needed: float, since: float) -> None:
        """Compare in all windows of every deviation as long as needed, and in those of the last.

        Parameters
        ----------
        needed
            Length of a deviation that counts.
        since
            When the deviation began that ran before these windows; NaN = none did.
        """
        rows = np.flatnonzero(self.observed)
        for place in anchors(self.ends[rows], needed, since):
            node = self.candidate(int(rows[place]))
            if node != NOBODY:
                self._follow(rows[place::-1], node)
                self._follow(rows[place:], node)

    def _follow(self, rows: NDArray[np.intp], node: int) -> None:
        """Go on from one window to the next while the candidate stays the same."""
        for before, row in pairwise(rows):
            apart = abs(elapsed(float(self.ends[before]), float(self.ends[row])))
            hole = apart > self._hole_seconds
            if hole or not self.is_candidate(int(row), node):
                break


def anchors(times: NDArray[np.float64], needed: float, since: float) -> list[int]:
    """Return places in ``times`` of which every deviation as long as needed holds at least one.

    Parameters
    ----------
    times
        Unix times of the windows in which anybody takes part, rising.
    needed
        Length of a deviation from its first window to its last.
    since
        When the deviation began that ran before the first window; NaN = none did.

    Returns
    -------
    list[int]
        The last place is among them.
    """
    if not len(times):
        return []
    places = {len(times) - 1}
    # Ends of windows are whole milliseconds, and so must be what they are compared with.
    latest = to_milliseconds(times + needed)
    sustained = int(np.searchsorted(times, round(since + needed, 3)))
    if sustained < len(times):
        # The one that ran is long enough if it reaches this window.
        places.add(sustained)
    place = int(np.searchsorted(times, latest[0], side="right")) - 1
    while place < len(times):
        places.add(place)
        following = int(np.searchsorted(times, latest[place], side="right")) - 1
        place = max(place + 1, following)
    return sorted(places)


def causal_windows(values: NDArray[np.float32], length: int, limit: int) -> NDArray[np.float32]:
    """Cut windows whose gaps are filled with the nearest sample that is not after the window.

    Parameters
    ----------
    values
        Shape (n_nodes, n_steps), NaN = missing.
    length
        Samples per window.
    limit
        Most steps from a gap to the sample that fills it.

    Returns
    -------
    NDArray[np.float32]
        Shape (n_windows, n_nodes, length); of two equally near samples the earlier one.
    """
    steps = np.where(np.isfinite(values), np.arange(values.shape[1]), np.nan).astype(np.float32)
    nearest = windows(fill_nearest(values, limit, lookahead=limit), length)
    source = windows(fill_nearest(steps, limit, lookahead=limit), length)
    before = windows(fill_nearest(values, limit), length)
    ends = np.arange(length - 1, length - 1 + len(nearest))[:, None, None]
    return np.where(source > ends, before, nearest)


def causal_window(
    values: NDArray[np.float32], end: int, length: int, limit: int
) -> NDArray[np.float32]:
    """Cut one of the ``causal_windows``, shape (n_nodes, length).

    Parameters
    ----------
    values, length, limit
        As there.
    end
        The step after the window's last.
    """
    window = values[:, end - length : end].copy()
    if compiled.ready():
        _fill(values, end, limit, window)
        return window
    gaps = np.flatnonzero(~np.isfinite(window).all(axis=1))
    past = values[gaps, max(0, end - length - limit) : end]
    window[gaps] = fill_nearest(past, limit, lookahead=limit)[:, -length:]
    return window


@compiled.compiled
def _fill(values: NDArray[np.float32], end: int, limit: int, window: NDArray[np.float32]) -> None:
    """Fill the gaps of a window that ends before step ``end``."""
    first = end - window.shape[1]
    for node in range(len(window)):
        for place in range(window.shape[1]):
            if np.isfinite(window[node, place]):
                continue
            for away in range(1, limit + 1):
                before, after = first + place - away, first + place + away
                if before < 0 and after >= end:
                    break
                if before >= 0 and np.isfinite(values[node, before]):
                    window[node, place] = values[node, before]
                    break
                if after < end and np.isfinite(values[node, after]):
                    window[node, place] = values[node, after]
                    break
