"""Fits decision trees to labelled windows and checks them on cases that they have not seen.

Every case counts the same, however long its fault, and both labels count the same, however rare
faults are. Windows of one case look alike, so a case is held out as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

Labels = list[NDArray[np.bool_]]

_FOLDS = 5
# A leaf holds at least this share of the weight, about one of 25 faults: less is one case's oddity.
_SMALLEST_LEAF = 0.02
# A question must gain this much of the one bit that the labels hold; less is rounding or luck.
_SMALLEST_GAIN = 1e-3


class Fitting:
    """Fits trees to the same windows under several labels; they split by entropy.

    Parameters
    ----------
    features
        Of every case, shape (n_windows, n_metrics).
    depth
        Most questions from the root to a leaf.
    seed
        Breaks ties between splits.
    """

    def __init__(self, features: list[NDArray[np.float64]], depth: int, seed: int) -> None:
        self._features = features
        self._depth = depth
        self._seed = seed

    def tree(self, labels: Labels, picked: NDArray[np.bool_]) -> DecisionTreeClassifier:
        """Fit a tree to the picked cases."""
        here = np.flatnonzero(picked)
        some = [labels[index] for index in here]
        tree = DecisionTreeClassifier(
            criterion="entropy",
            max_depth=self._depth,
            min_weight_fraction_leaf=_SMALLEST_LEAF,
            min_impurity_decrease=_SMALLEST_GAIN,
            random_state=self._seed,
        )
        windows = np.concatenate([self._features[index] for index in here])
        return tree.fit(windows, np.concatenate(some), sample_weight=window_weights(some))

    def validated(
        self, labels: Labels, random: np.random.Generator
    ) -> tuple[float, list[DecisionTreeClassifier]]:
        """Return the balanced accuracy on held-out cases, and the trees of the folds."""
        sick = [bool(label.any()) for label in labels]
        folds = deal_folds(sick, max(2, min(_FOLDS, sum(sick))), random)
        said: Labels = [np.zeros(len(label), dtype=bool) for label in labels]
        trees = []
        for fold in np.unique(folds):
            trees.append(self.tree(labels, folds != fold))
            for index in np.flatnonzero(folds == fold):
                said[index] = trees[-1].predict(self._features[index])
        whole = np.concatenate(labels), np.concatenate(said)
        return balanced_accuracy(*whole, window_weights(labels)), trees


def balanced_accuracy(
    faulty: NDArray[np.bool_], said: NDArray[np.bool_], weight: NDArray[np.float64]
) -> float:
    """Return the mean of the weighted shares of faulty and of healthy windows told rightly."""
    rights = [
        float(weight[(faulty == label) & (said == label)].sum() / weight[faulty == label].sum())
        for label in (True, False)
        if (faulty == label).any()
    ]
    return sum(rights) / len(rights)


def window_weights(labels: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
    """Return a weight for every window: both labels weigh the same, within each all its cases."""
    weights = [np.zeros(len(label)) for label in labels]
    for value in (True, False):
        having = [index for index, label in enumerate(labels) if (label == value).any()]
        for index in having:
            here = labels[index] == value
            weights[index][here] = 0.5 / len(having) / here.sum()
    return np.concatenate(weights)


def deal_folds(sick: Sequence[bool], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Deal cases to folds, faulty and healthy ones apart, so that every fold has some of both."""
    folds = np.zeros(len(sick), dtype=np.int64)
    for kind in (True, False):
        drawn = random.permutation(np.flatnonzero(np.asarray(sick) == kind))
        folds[drawn] = np.arange(len(drawn)) % count
    return folds


def dealt_anew(labels: Labels, random: np.random.Generator) -> Labels:
    """Give every case the labels of another one, stretched to its length.

    What is kept is that faulty windows stand together and late; what is lost is what they show.
    """
    drawn = random.permutation(len(labels))
    return [
        labels[other][np.arange(len(label)) * len(labels[other]) // len(label)]
        for label, other in zip(labels, drawn, strict=True)
    ]
