"""The decision tree over labelled windows, and the order of the metrics it gives.

Minder (NSDI'25, section 4.3) lets a tree tell faulty windows from healthy ones by the largest
Z-score of each metric: what the tree asks first is what faults show in most, and is asked first by
the detection too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_detector.errors import TrainingError
from peerwatch_detector.priority.fit import Fitting, Labels, dealt_anew
from peerwatch_detector.priority.windows import LabelledWindows

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

_PERMUTATIONS = 20
# From this share of its importance on a metric counts as read from one side only.
_ONE_SIDED = 0.9


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of the tree with all that is below it.

    Parameters
    ----------
    windows
        How many windows come here.
    weight
        Their share of all weight.
    faulty
        Share of that weight which is faulty.
    metric, threshold
        What is asked; empty and 0 for a leaf.
    below, above
        Where windows go with a Z-score up to the threshold, and beyond it; None for a leaf.
    """

    windows: int
    weight: float
    faulty: float
    metric: str = ""
    threshold: float = 0.0
    below: Branch | None = None
    above: Branch | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One metric in the order.

    Parameters
    ----------
    metric
        Its name.
    depth
        How many questions come before its first; None if the tree never asks it.
    importance
        Its share of what all splits of the tree gain.
    side
        Where the faulty windows are: ``above`` its thresholds, ``below`` them, or ``both``; empty
        if it is never asked.
    folds
        How many of the trees of the cross-validation ask it.
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
    places
        All metrics, first in the order first.
    root
        The tree over all cases.
    cases, faults
        How many cases were used, and how many of them have windows within a fault.
    windows, faulty_windows
        How many windows there were.
    folds
        Parts of the cross-validation.
    accuracy
        Balanced accuracy on cases that the tree had not seen.
    permuted
        The same for labels dealt anew among the cases, in rising order.
    """

    places: tuple[Place, ...]
    root: Branch
    cases: int
    faults: int
    windows: int
    faulty_windows: int
    folds: int
    accuracy: float
    permuted: tuple[float, ...]

    @property
    def order(self) -> tuple[str, ...]:
        """The metrics' names in order."""
        return tuple(place.metric for place in self.places)


def learn(
    cases: Sequence[LabelledWindows],
    metrics: Sequence[str],
    *,
    depth: int,
    seed: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Priority:
    """Fit the tree and order the metrics.

    Metrics come by the depth of their first question, of those the one with more importance
    first, and then as they are given; metrics that are never asked come last, as they are given.

    Parameters
    ----------
    cases
        Labelled windows; cases without any do not count.
    metrics
        Names of the features, in the order that stands where the tree says nothing.
    depth
        Most questions from the root to a leaf.
    seed
        Deals cases to the folds, breaks ties between splits, permutes labels.
    progress
        Told how many of the cross-validations are done.

    Raises
    ------
    TrainingError
        If fewer than two cases have windows within a fault, none has healthy ones, or nothing in
        the windows tells them apart.
    """
    used = [case for case in cases if len(case.faulty)]
    labels = [case.faulty for case in used]
    _check(len(cases), labels)
    features = [case.features for case in used]
    fit = Fitting(features, depth, seed)
    tree = fit.tree(labels, np.ones(len(used), dtype=bool))
    if tree.tree_.feature[0] < 0:
        raise TrainingError(
            "No metric's Z-scores tell faulty windows from healthy ones; the order stays. Check "
            "the onsets of the cases and metrics.enabled."
        )
    total = 1 + _PERMUTATIONS
    progress(0, total)
    accuracy, trees = fit.validated(labels, np.random.default_rng(seed))
    permuted = []
    for round_, random in enumerate(np.random.default_rng(seed).spawn(_PERMUTATIONS), start=1):
        progress(round_, total)
        permuted.append(fit.validated(dealt_anew(labels, random), random)[0])
    progress(total, total)
    asked = [set(one.tree_.feature) for one in trees]
    lacking = np.sum([case.lacking for case in used], axis=0)
    root = _branch(tree, metrics, 0)
    places = [
        Place(
            name,
            _first_depth(root, name),
            float(tree.feature_importances_[column]),
            _side(root, name),
            sum(column in features_asked for features_asked in asked),
            int(lacking[column]),
        )
        for column, name in enumerate(metrics)
    ]
    return Priority(
        tuple(sorted(places, key=_rank)),
        root,
        len(used),
        sum(bool(label.any()) for label in labels),
        sum(map(len, labels)),
        int(sum(label.sum() for label in labels)),
        len(trees),
        accuracy,
        tuple(sorted(permuted)),
    )


def _check(given: int, labels: Labels) -> None:
    sick = sum(bool(label.any()) for label in labels)
    if sick < 2:
        raise TrainingError(
            f"Of {given} usable case(s) {sick} have a whole window within a fault; at least 2 are "
            "needed, one to learn from and one to check with: give more labelled cases."
        )
    if all(label.all() for label in labels):
        raise TrainingError(
            f"None of {given} usable case(s) has a healthy window; give healthy cases, or cases "
            "that begin before the onset."
        )


def _branch(tree: DecisionTreeClassifier, metrics: Sequence[str], index: int) -> Branch:
    """Return a node of scikit-learn's tree with all that is below it."""
    inner = tree.tree_
    healthy, faulty = (float(value) for value in inner.value[index][0])
    windows, weight = int(inner.n_node_samples[index]), float(inner.weighted_n_node_samples[index])
    share = faulty / (healthy + faulty)
    if inner.feature[index] < 0:
        return Branch(windows, weight, share)
    below, above = int(inner.children_left[index]), int(inner.children_right[index])
    return Branch(
        windows,
        weight,
        share,
        metrics[inner.feature[index]],
        float(inner.threshold[index]),
        _branch(tree, metrics, below),
        _branch(tree, metrics, above),
    )


def _splits(branch: Branch, depth: int = 0) -> Iterator[tuple[int, Branch, Branch, Branch]]:
    """Yield every split: its depth, itself, what is below and above its threshold."""
    if branch.below is None or branch.above is None:
        return
    yield depth, branch, branch.below, branch.above
    yield from _splits(branch.below, depth + 1)
    yield from _splits(branch.above, depth + 1)


def _first_depth(root: Branch, metric: str) -> int | None:
    return min((depth for depth, one, *_ in _splits(root) if one.metric == metric), default=None)


def _side(root: Branch, metric: str) -> str:
    """Return on which side of a metric's thresholds the faulty windows are, by what splits gain."""
    gains = {True: 0.0, False: 0.0}
    for _, one, below, above in _splits(root):
        if one.metric == metric:
            gains[above.faulty > below.faulty] += _disorder(one) - _disorder(below, above)
    total = sum(gains.values())
    if total <= 0:
        return ""
    rising = gains[True] / total
    return "above" if rising >= _ONE_SIDED else "below" if rising <= 1 - _ONE_SIDED else "both"


def _disorder(*branches: Branch) -> float:
    """Return the weighted entropy of some branches."""
    shares = [(one.weight, np.array([one.faulty, 1 - one.faulty])) for one in branches]
    return sum(
        -weight * float((share[share > 0] * np.log2(share[share > 0])).sum())
        for weight, share in shares
    )


def _rank(place: Place) -> tuple[float, float]:
    return (np.inf if place.depth is None else place.depth, -place.importance)
