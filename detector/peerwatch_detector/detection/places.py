"""Where what is known of a job's nodes stands when nodes have come or gone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def places_of(nodes: tuple[str, ...], before: tuple[str, ...]) -> NDArray[np.intp]:
    """Return where nodes were before, -1 for new ones: they take the blank, behind all others."""
    if not before:
        return np.full(len(nodes), -1)
    known = {node: index for index, node in enumerate(before)}
    return np.array([known.get(node, -1) for node in nodes], np.intp)
