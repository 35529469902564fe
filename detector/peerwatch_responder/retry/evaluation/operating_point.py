"""From which chance on a job is started again: set where few are stopped that were worth it.

Chance and limit of a fold are set from the answers about all other folds, which were given by
models that had not seen the texts they were asked about.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peerwatch_responder.retry.evaluation.folds import rest_of
from peerwatch_responder.retry.evaluation.measures import Bools, Floats, Numbers
from peerwatch_responder.retry.model.calibration import Calibration, fit_calibration

# Of the jobs that are worth another attempt at most so many may be stopped: the goal that
# docs/retry-model.md names.
MOST_FALSE_STOPS = 0.05


@dataclass(frozen=True, slots=True)
class Answers:
    """What a method says of each text, when it has not seen its mechanism.

    Parameters
    ----------
    chances
        That another attempt is worth it.
    likelier
        Whether it is started again where the likelier of the two counts.
    careful
        Whether it is started again where few may be stopped that are worth it.
    """

    chances: Floats
    likelier: Bools
    careful: Bools


def limit_for(truths: Bools, chances: Floats, most: float = MOST_FALSE_STOPS) -> float:
    """Return the chance below which a job is stopped: the highest at which few false stops happen.

    Parameters
    ----------
    truths, chances
        Of texts that were not learnt from.
    most
        Share of those that are worth another attempt.
    """
    worth = np.sort(chances[truths])
    if not len(worth):
        return 0.0
    return float(worth[min(int(most * len(worth)), len(worth) - 1)])


def calibrated(scores: Floats, truths: Bools) -> tuple[Calibration, float]:
    """Return from score to chance, and the chance below which a job is stopped.

    Parameters
    ----------
    scores, truths
        Of texts by models that had not seen their mechanism.
    """
    line = fit_calibration(scores, truths)
    return line, limit_for(truths, line.chances(scores))


def answers(scores: Floats, truths: Bools, folds: list[Numbers]) -> Answers:
    """Return the answers that follow from the scores of texts, each given without its fold."""
    chances = np.empty(len(scores))
    careful = np.empty(len(scores), bool)
    for fold in folds:
        rest = rest_of(fold, len(scores))
        line, limit = calibrated(scores[rest], truths[rest])
        chances[fold] = line.chances(scores[fold])
        careful[fold] = chances[fold] >= limit
    return Answers(chances, chances >= 0.5, careful)
