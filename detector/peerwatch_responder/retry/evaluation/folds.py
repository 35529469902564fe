"""Splits the corpus by mechanism or by source, never by line or by text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Any number does; the same one gives the same groups.
_ORDER_SEED = 17


def split_by(names: list[str], folds: int) -> list[NDArray[np.int64]]:
    """Return the numbers of the texts of each fold: all texts of a name are in one.

    Parameters
    ----------
    names
        Of each text: its mechanism, or its source.
    folds
        How many; 0: each name is one by itself.
    """
    distinct = sorted(set(names))
    order = np.random.default_rng(_ORDER_SEED).permutation(len(distinct))
    count = len(distinct) if folds == 0 else min(folds, len(distinct))
    fold_of = {distinct[at]: place % count for place, at in enumerate(order)}
    places = np.array([fold_of[name] for name in names])
    return [np.flatnonzero(places == fold) for fold in range(count)]


def rest_of(fold: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the numbers of the texts that are not in a fold."""
    return np.setdiff1d(np.arange(count), fold)
