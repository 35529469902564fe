"""Fits decision trees to labelled windows and validates them on cases that they have not seen.

Every case counts the same, however long its fault, and both labels count the same, however rare
faults are. Windows of one case look alike, so a case is held out as a whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.tree import DecisionTreeClassifier

Labels = list[NDArray[np.bool_]]

# Scikit-learn's own default: each tree learns from four fifths of the cases.
_FOLDS = 5
# A leaf holds at least this share of the weight, about one of 25 faults: less is one case's oddity.
_MIN_LEAF_WEIGHT = 0.02
# A split must gain this much of the one bit that the labels hold; less is rounding or luck.
_MIN_GAIN = 1e-3


class TreeFitter:
    """Fits trees to the same windows under several labels; they split by entropy.

    Parameters
    ----------
    features
        Of every case, shape (n_windows, n_metrics).
    depth
        Most splits from the root to a leaf.
    seed
        Breaks ties between splits.
    """

    def __init__(self, features: list[NDArray[np.float64]], depth: int, seed: int) -> None:
        self._features = features
        self._depth = depth
        self._seed = seed

    def fit(self, labels: Labels, cases: Sequence[int]) -> DecisionTreeClassifier:
        """Fit a tree to some cases, given by their indices."""
        picked = [labels[case] for case in cases]
        tree = DecisionTreeClassifier(
            criterion="entropy",
            max_depth=self._depth,
            min_weight_fraction_leaf=_MIN_LEAF_WEIGHT,
            min_impurity_decrease=_MIN_GAIN,
            random_state=self._seed,
        )
        windows = np.concatenate([self._features[case] for case in cases])
        return tree.fit(windows, np.concatenate(picked), sample_weight=window_weights(picked))

    def validate(self, labels: Labels, seed: int) -> tuple[float, list[DecisionTreeClassifier]]:
        """Return the balanced accuracy on held-out cases, and the trees of the folds."""
        predicted: Labels = [np.zeros(len(label), dtype=bool) for label in labels]
        trees = []
        for learnt, held_out in folds([bool(label.any()) for label in labels], seed):
            trees.append(self.fit(labels, learnt))
            for case in held_out:
                predicted[case] = trees[-1].predict(self._features[case])
        accuracy = balanced_accuracy_score(
            np.concatenate(labels), np.concatenate(predicted), sample_weight=window_weights(labels)
        )
        return float(accuracy), trees


def folds(faulty: Sequence[bool], seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the cases to learn from and those held out, faulty and healthy ones in every fold."""
    count = max(2, min(_FOLDS, sum(faulty)))
    deal = StratifiedKFold(count, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # It warns of fewer healthy cases than folds; faulty ones have healthy windows too.
        warnings.simplefilter("ignore", UserWarning)
        parts = list(deal.split(faulty, faulty))
    for learnt, held_out in parts:
        yield learnt.tolist(), held_out.tolist()


def window_weights(labels: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
    """Return a weight for every window: both labels weigh the same, within each all its cases."""
    weights = [np.zeros(len(label)) for label in labels]
    for value in (True, False):
        cases = [index for index, label in enumerate(labels) if (label == value).any()]
        for index in cases:
            windows = labels[index] == value
            weights[index][windows] = 0.5 / len(cases) / windows.sum()
    return np.concatenate(weights)


def permuted(labels: Labels, random: np.random.Generator) -> Labels:
    """Give every case the labels of another one, stretched to its length.

    What is kept is that faulty windows stand together and late; what is lost is what they show.
    """
    order = random.permutation(len(labels))
    return [
        labels[other][np.arange(len(label)) * len(labels[other]) // len(label)]
        for label, other in zip(labels, order, strict=True)
    ]
