"""The decision tree over labelled windows, and the order of the metrics it gives.

Minder (NSDI'25, section 4.3) lets a tree separate faulty windows from healthy ones by the largest
Z-score of each metric: what the tree splits by first is what faults show in most, and is compared
first by the detection too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.errors import TrainingError
from peerwatch_detector.priority.fit import Labels, TreeFitter, permuted
from peerwatch_detector.priority.windows import LabelledWindows

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

# Enough to see how far chance goes: their largest is exceeded by chance once in 21 times.
PERMUTATIONS = 20
# From this share of its importance on a metric counts as read from one side only. Chosen: a tenth
# may be splits deep in the tree that fit noise.
_ONE_SIDED = 0.9


@dataclass(frozen=True, slots=True)
class RankedMetric:
    """One metric in the order.

    Parameters
    ----------
    metric
        Its name.
    depth
        How many splits come before its first; None if the tree never splits by it.
    importance
        Its share of what all splits of the tree gain.
    side
        Where the faulty windows are: ``above`` its thresholds, ``below`` them, or ``both``; empty
        if the tree never splits by it.
    folds
        How many of the trees of the cross-validation split by it.
    lacking
        How many cases have no sample of it; there it counts as no deviation.
    """

    metric: str
    depth: int | None
    importance: float
    side: str
    folds: int
    lacking: int


@dataclass(frozen=True, slots=True)
class Priority:
    """What was learnt.

    Parameters
    ----------
    ranking
        All metrics, first in the order first.
    metrics
        Their names in the order of the tree's features.
    cases, faults
        How many cases were used, and how many of them have windows within a fault.
    windows, faulty_windows
        How many windows there were.
    folds
        Parts of the cross-validation.
    accuracy
        Balanced accuracy on cases that the tree had not seen.
    permuted
        The same for labels permuted among the cases, in rising order.
    tree
        The tree over all cases.
    """

    ranking: tuple[RankedMetric, ...]
    metrics: tuple[str, ...]
    cases: int
    faults: int
    windows: int
    faulty_windows: int
    folds: int
    accuracy: float
    permuted: tuple[float, ...]
    tree: DecisionTreeClassifier = field(compare=False)

    @property
    def order(self) -> tuple[str, ...]:
        """The metrics' names in order."""
        return tuple(ranked.metric for ranked in self.ranking)


def learn(
    cases: Sequence[LabelledWindows],
    metrics: Sequence[str],
    *,
    depth: int,
    seed: int,
    progress: Callable[[], None] = lambda: None,
) -> Priority:
    """Fit the tree and order the metrics.

    Metrics come by the depth of their first split, of those the one with more importance first,
    and then as they are given; metrics that are never split by come last, as they are given.

    Parameters
    ----------
    cases
        Labelled windows; cases without any do not count.
    metrics
        Names of the features, in the order that stands where the tree says nothing.
    depth
        Most splits from the root to a leaf.
    seed
        Deals cases to the folds, breaks ties between splits, permutes labels.
    progress
        Called after each of the cross-validations, ``1 + PERMUTATIONS`` times.

    Raises
    ------
    TrainingError
        If fewer than two cases have windows within a fault, none has healthy ones, or nothing in
        the windows separates them.
    """
    used = [case for case in cases if len(case.faulty)]
    labels = [case.faulty for case in used]
    _check(len(cases), labels)
    fitter = TreeFitter([case.features for case in used], depth, seed)
    tree = fitter.fit(labels, range(len(used)))
    if tree.get_depth() == 0:
        raise TrainingError(
            "No metric's Z-scores tell faulty windows from healthy ones; the order stays. Check "
            "the onsets of the cases and metrics.enabled."
        )
    accuracy, trees, chance = _validated(fitter, labels, seed, progress)
    lacking = np.sum([case.lacking for case in used], axis=0)
    return Priority(
        _ranking(tree, trees, metrics, lacking),
        tuple(metrics),
        len(used),
        sum(bool(label.any()) for label in labels),
        sum(map(len, labels)),
        int(sum(label.sum() for label in labels)),
        len(trees),
        accuracy,
        chance,
        tree,
    )


def _check(given: int, labels: Labels) -> None:
    faulty = sum(bool(label.any()) for label in labels)
    if faulty < 2:
        raise TrainingError(
            f"Of {given} usable case(s) {faulty} have a whole window within a fault; at least 2 "
            "are needed, one to learn from and one to check with: give more labelled cases."
        )
    if all(label.all() for label in labels):
        raise TrainingError(
            f"None of {given} usable case(s) has a healthy window; give healthy cases, or cases "
            "that begin before the onset."
        )


def _validated(
    fitter: TreeFitter, labels: Labels, seed: int, progress: Callable[[], None]
) -> tuple[float, list[DecisionTreeClassifier], tuple[float, ...]]:
    """Return the held-out accuracy, the trees of its folds, and the accuracies by chance."""
    accuracy, trees = fitter.validate(labels, seed)
    progress()
    chance = []
    for random in np.random.default_rng(seed).spawn(PERMUTATIONS):
        dealt = int(random.integers(2**32))
        chance.append(fitter.validate(permuted(labels, random), dealt)[0])
        progress()
    return accuracy, trees, tuple(sorted(chance))


def _ranking(
    tree: DecisionTreeClassifier,
    trees: Sequence[DecisionTreeClassifier],
    metrics: Sequence[str],
    lacking: NDArray[np.int64],
) -> tuple[RankedMetric, ...]:
    """Return all metrics in order."""
    depths = _split_depths(tree)
    used = [set(fold.tree_.feature.tolist()) for fold in trees]
    ranking = [
        RankedMetric(
            metric,
            depths.get(column),
            float(tree.feature_importances_[column]),
            _side(tree, column),
            sum(column in features for features in used),
            int(lacking[column]),
        )
        for column, metric in enumerate(metrics)
    ]
    return tuple(sorted(ranking, key=_sort_key))


def _split_depths(tree: DecisionTreeClassifier) -> dict[int, int]:
    """Return the depth of the first split by every feature that the tree splits by."""
    inner, depths = tree.tree_, {0: 0}
    first: dict[int, int] = {}
    # Scikit-learn numbers a tree's nodes from the root down.
    for node in np.flatnonzero(inner.feature >= 0).tolist():
        feature = int(inner.feature[node])
        first[feature] = min(depths[node], first.get(feature, depths[node]))
        for child in (inner.children_left[node], inner.children_right[node]):
            depths[int(child)] = depths[node] + 1
    return first


def _side(tree: DecisionTreeClassifier, feature: int) -> str:
    """Return on which side of a metric's thresholds the faulty windows are, by what splits gain."""
    inner = tree.tree_
    disorder = inner.weighted_n_node_samples * inner.impurity
    healthy, faulty = inner.value[:, 0, 0], inner.value[:, 0, 1]
    share = faulty / (healthy + faulty)
    splits = np.flatnonzero(inner.feature == feature)
    below, above = inner.children_left[splits], inner.children_right[splits]
    gains = disorder[splits] - disorder[below] - disorder[above]
    if gains.sum() <= 0:
        return ""
    upward = gains[share[above] > share[below]].sum() / gains.sum()
    return "above" if upward >= _ONE_SIDED else "below" if upward <= 1 - _ONE_SIDED else "both"


def _sort_key(ranked: RankedMetric) -> tuple[float, float]:
    return (np.inf if ranked.depth is None else ranked.depth, -ranked.importance)
