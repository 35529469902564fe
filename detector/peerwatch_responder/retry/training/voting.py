"""Labels logs that nobody has labelled, where all voters agree and are sure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Chosen: how sure each voter must be; less, and wrong labels are learnt as if a person had given
# them. Votes changed nothing measurably (docs/retry-model.md).
SURE = 0.8


@dataclass(frozen=True, slots=True)
class Votes:
    """What came of a vote.

    Parameters
    ----------
    chosen
        Numbers of the logs that got a label.
    labels
        Whether another attempt is worth it, of each of those.
    """

    chosen: NDArray[np.int64]
    labels: NDArray[np.bool_]


def vote(chances: Sequence[NDArray[np.float64]], sure: float = SURE) -> Votes:
    """Return the labels on which all voters agree.

    Parameters
    ----------
    chances
        Of each voter: how likely another attempt is worth it, of each log.
    sure
        How sure every one of them must be, 0.5 to 1.
    """
    stacked = np.stack(list(chances))
    yes: NDArray[np.bool_] = np.all(stacked >= sure, axis=0)
    no: NDArray[np.bool_] = np.all(stacked <= 1 - sure, axis=0)
    chosen = np.flatnonzero(yes | no)
    return Votes(chosen, yes[chosen])
