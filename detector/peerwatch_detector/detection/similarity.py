"""How unlike its peers a node is: distances, their sums, and two ways to standardise the sums.

Minder (NSDI'25, section 4.3) sums each node's Euclidean distances to all others and standardises
the sums over the job's nodes; the other distances are variants of it and its baseline. That score
cannot exceed sqrt(n - 1), so a fixed threshold is never passed in a small job; ``peer_score``
measures a node against the others only and has no such bound. Everywhere: higher is less like its
peers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.detection import distances

Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]
Distance = Literal["euclidean", "manhattan", "chebyshev", "mahalanobis"]

# Nodes in one block of the distance matrix, so that it stays in the cache at any job size.
_BLOCK = 512
# A median absolute deviation times this estimates a normal standard deviation.
_MAD_TO_STD = 1.4826
# With how many others a node is compared whose score is shown and decides nothing. In simulated
# jobs of 600 to 12,500 nodes the scores differ from those by all pairs by 0.035 (root mean square),
# and by 0.3 at most.
_SHOWN_OTHERS = 256
# Nobody stands out who is not this share further from the others than they are from each other.
_RELATIVE_FLOOR = 0.15


def distance_sums(
    embeddings: NDArray[np.float32], present: Mask, distance: Distance = "euclidean"
) -> Scores:
    """Sum the distances of every node to all other present nodes.

    Parameters
    ----------
    embeddings
        Shape (n_windows, n_nodes, n_features).
    present
        Shape (n_windows, n_nodes): nodes that take part in the window.
    distance
        How far two nodes are apart; ``mahalanobis`` takes the covariance from ``whiten``.

    Returns
    -------
    Scores
        Shape (n_windows, n_nodes); NaN where a node is not present.
    """
    sums = np.full(present.shape, np.nan)
    for window, here in enumerate(present):
        points = embeddings[window, here]
        if distance == "euclidean" and compiled.ready():
            columns = np.ascontiguousarray(points.T)
            sums[window, here] = distances.distance_sums(columns, columns)
            continue
        points = points.astype(np.float64)
        if distance == "mahalanobis":
            points = whiten(points)
        # Seen from one of them, so that equal nodes lie on one another to the last bit.
        points -= points[:1].copy()
        sums[window, here] = _ALL_PAIRS[distance](points)
    return sums


def sums_over_some(points: NDArray[np.float32], most: int = _SHOWN_OTHERS) -> Scores:
    """Sum the Euclidean distances of every node to all others, in large jobs to some of them.

    What all pairs cost grows with the square of the nodes, and is more than everything else from
    some thousand on. The same others for all nodes, spread over the job, tell who is unlike the
    rest as well; equal nodes have equal sums here, too.

    Parameters
    ----------
    points
        Shape (n_nodes, n_features), finite.
    most
        Others that a node is compared with. Up to so many nodes the sums are those over all.

    Returns
    -------
    Scores
        Shape (n_nodes,).
    """
    count = len(points)
    if count <= most:
        sums: Scores = distance_sums(points[None], np.ones((1, count), np.bool_))[0]
        return sums
    places = (2 * np.arange(most) + 1) * count // (2 * most)
    chosen = np.argsort(points.sum(axis=1), kind="stable")[places]
    if compiled.ready():
        columns = np.ascontiguousarray(points.T)
        return distances.distance_sums(columns, np.ascontiguousarray(columns[:, chosen]))
    sums = np.zeros(count)
    for other in points[chosen]:
        sums += np.sqrt(((points - other) ** 2).sum(axis=1))
    return sums


def whiten(points: Scores) -> Scores:
    """Turn and stretch points so that their Euclidean distance is the Mahalanobis distance.

    A job has fewer nodes than a covariance has entries, so the covariance over the nodes is
    shrunk towards a multiple of the identity, as far as Ledoit and Wolf (2004, "A
    well-conditioned estimator for large-dimensional covariance matrices", J. Multivariate
    Analysis 88) find best for the sample.

    Parameters
    ----------
    points
        Shape (n_nodes, n_features).
    """
    centred = points - points.mean(axis=0) if len(points) else points
    values, axes = np.linalg.eigh(_shrunk_covariance(centred))
    # Nodes that agree in a direction, whatever it is, have no distance along it.
    kept = values > 1e-12 * max(float(values.max(initial=0.0)), 1e-12)
    whitened: Scores = centred @ axes[:, kept] / np.sqrt(values[kept])
    return whitened


def _shrunk_covariance(centred: Scores) -> Scores:
    """Covariance of centred points after Ledoit and Wolf, shape (n_features, n_features)."""
    count, width = centred.shape
    covariance: Scores = centred.T @ centred / max(count, 1)
    target: Scores = np.trace(covariance) / max(width, 1) * np.eye(width)
    away = float(((covariance - target) ** 2).sum())
    # The mean of |x x' - S|^2 over the points x, spelt out without the matrices x x'.
    lengths = np.einsum("nf,nf->n", centred, centred)
    error = float((lengths**2).sum() / max(count, 1) - (covariance**2).sum()) / max(count, 1)
    share = min(max(error, 0.0), away) / away if away > 0 else 0.0
    shrunk: Scores = share * target + (1 - share) * covariance
    return shrunk


def _euclidean(points: Scores) -> Scores:
    """Sum of the distances of every point to all, shape (n_points,)."""
    squares = np.einsum("nf,nf->n", points, points)
    total = np.empty(len(points))
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        squared = squares[start : start + _BLOCK, None] + squares - 2 * block @ points.T
        # Rounding can leave a tiny negative square; a node's distance to itself is exactly 0.
        squared[np.arange(len(block)), start + np.arange(len(block))] = 0
        total[start : start + _BLOCK] = np.sqrt(np.maximum(squared, 0)).sum(axis=1)
    return total


def _by_feature(points: Scores, combine: np.ufunc) -> Scores:
    """Sum the distances that combine the differences of one feature after the other."""
    total = np.empty(len(points))
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        apart = np.zeros((len(block), len(points)))
        for feature in range(points.shape[1]):
            combine(apart, np.abs(block[:, feature, None] - points[:, feature]), out=apart)
        total[start : start + _BLOCK] = apart.sum(axis=1)
    return total


_ALL_PAIRS: dict[Distance, Callable[[Scores], Scores]] = {
    "euclidean": _euclidean,
    "manhattan": partial(_by_feature, combine=np.add),
    "chebyshev": partial(_by_feature, combine=np.maximum),
    "mahalanobis": _euclidean,
}


def normal_score(sums: Scores) -> Scores:
    """Standardise distance sums over the nodes of each window (Minder's normal score).

    Parameters
    ----------
    sums
        Shape (n_windows, n_nodes), NaN = not present.

    Returns
    -------
    Scores
        (x - mean) / std with the population standard deviation; 0 where all nodes are equal.
    """
    count = np.isfinite(sums).sum(axis=1, keepdims=True)
    known = np.where(np.isfinite(sums), sums, 0)
    mean = known.sum(axis=1, keepdims=True) / np.maximum(count, 1)
    centred = sums - mean
    spread = np.sqrt(np.nansum(centred**2, axis=1, keepdims=True) / np.maximum(count, 1))
    # Relative to the mean: sums of equal nodes still differ in their last bits.
    flat = spread <= 1e-9 * np.maximum(np.abs(mean), 1e-9)
    return np.where(flat & np.isfinite(sums), 0.0, centred / np.where(flat, 1, spread))


def peer_score(sums: Scores, floor: Scores) -> Scores:
    """Standardise each node's distance sum by the sums of the *other* nodes.

    Parameters
    ----------
    sums
        Shape (n_windows, n_nodes), NaN = not present.
    floor
        Shape (n_windows, 1): smallest scale, in units of the sums times ``_RELATIVE_FLOOR``;
        keeps a job of identical nodes from turning rounding into evidence.

    Returns
    -------
    Scores
        (x - median of the others) / scale, where the scale is the largest of the robust spread
        of all nodes, a share of the others' median, and the floor.
    """
    others = leave_one_out_median(sums)
    with np.errstate(all="ignore"):
        middle = _nanmedian(sums)
        spread = _MAD_TO_STD * _nanmedian(np.abs(sums - middle))
    scale = np.maximum(spread, _RELATIVE_FLOOR * np.maximum(others, floor))
    return (sums - others) / np.maximum(scale, 1e-12)


def leave_one_out_median(values: Scores) -> Scores:
    """Return for every node the median of the other nodes' values.

    Parameters
    ----------
    values
        Shape (n_windows, n_nodes), NaN = not present.

    Returns
    -------
    Scores
        Same shape; NaN where the node is not present or alone.
    """
    result = np.full(values.shape, np.nan)
    for rows, columns in _by_presence(np.isfinite(values)):
        count = len(columns)
        if count < 2:
            continue
        part = values[np.ix_(rows, columns)]
        order = np.argsort(part, axis=1, kind="stable")
        ranked = np.take_along_axis(part, order, axis=1)
        rank = np.argsort(order, axis=1, kind="stable")
        # Of the count-1 others in order, position k is ranked[k], or ranked[k + 1] from rank k on.
        low, high = (count - 2) // 2, (count - 1) // 2
        picked = [
            np.where(rank > k, ranked[:, k : k + 1], ranked[:, k + 1 : k + 2]) for k in (low, high)
        ]
        result[np.ix_(rows, columns)] = (picked[0] + picked[1]) / 2
    return result


def single_candidates(scores: Scores, threshold: float) -> Mask:
    """Mark Minder's candidate: the node with the highest score, if it is over the threshold.

    Parameters
    ----------
    scores
        Shape (n_windows, n_nodes), NaN = not present.
    threshold
        Similarity threshold.
    """
    filled = np.where(np.isfinite(scores), scores, -np.inf)
    best = filled.argmax(axis=1) if scores.shape[1] else np.zeros(len(scores), dtype=int)
    mask = np.zeros(scores.shape, dtype=bool)
    rows = np.flatnonzero(filled.max(axis=1, initial=-np.inf) > threshold)
    mask[rows, best[rows]] = True
    return mask


def _nanmedian(values: Scores) -> Scores:
    """Median over the present nodes, shape (n_windows, 1); NaN where none is present."""
    result = np.full((len(values), 1), np.nan)
    has_values = np.isfinite(values).any(axis=1)
    if has_values.any():
        result[has_values, 0] = np.nanmedian(values[has_values], axis=1)
    return result


def _by_presence(present: Mask) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Group windows with the same nodes present; yields (window indices, node indices)."""
    if present.all():
        yield np.arange(present.shape[0]), np.arange(present.shape[1])
        return
    patterns, group = np.unique(present, axis=0, return_inverse=True)
    for index, pattern in enumerate(patterns):
        yield np.flatnonzero(group.reshape(-1) == index), np.flatnonzero(pattern)
