"""Whether a worker is slow, or its stage of the pipeline has more to do than the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# From which ratio on a difference counts; the same as for groups and for iterations.
_SLOW_RATIO = 1.2


@dataclass(frozen=True, slots=True)
class Imbalance:
    """What makes some workers take longer.

    Parameters
    ----------
    workers
        (replica, stage) of those that are slower than the same stage of other replicas.
    stages
        Those that take longer in every replica: uneven work, and no node's fault.
    """

    workers: tuple[tuple[int, int], ...]
    stages: tuple[int, ...]


def imbalance(seconds: NDArray[np.float64]) -> Imbalance:
    """Tell slow workers from long stages.

    Parameters
    ----------
    seconds
        Compute time of a step, shape (replicas, stages).
    """
    usual = np.median(seconds, axis=0)
    workers = np.argwhere(seconds >= _SLOW_RATIO * usual)
    shortest = seconds.min(axis=0)
    stages = np.flatnonzero(shortest >= _SLOW_RATIO * np.median(usual))
    return Imbalance(
        tuple((int(replica), int(stage)) for replica, stage in workers),
        tuple(int(stage) for stage in stages),
    )
