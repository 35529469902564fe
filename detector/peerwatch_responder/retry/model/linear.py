"""The simple model: logistic regression on TF-IDF of n-grams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_responder.retry.model.ngrams import counts_of
from peerwatch_responder.retry.model.opinions import opinion, selected
from peerwatch_responder.retry.text.words import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from peerwatch_responder.retry.model.calibration import Calibration
    from peerwatch_responder.retry.model.ngrams import NGrams
    from peerwatch_responder.retry.opinion import ModelOpinion

NAME = "tfidf"


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Assesses logs by n-grams.

    Parameters
    ----------
    ngrams
        Those it knows.
    weights
        What each adds to the score, float32 ``(columns,)``.
    intercept
        The score of a log without any of them.
    calibration
        From score to chance.
    stops_below
        The chance below which a job is stopped.
    """

    ngrams: NGrams
    weights: NDArray[np.float32]
    intercept: float
    calibration: Calibration
    stops_below: float

    def assess(self, lines: Sequence[str]) -> ModelOpinion | None:
        """Return its opinion; None if it knows no word of the lines."""
        chosen = selected(lines)
        if not chosen:
            return None
        columns = self.ngrams.columns()
        words = {word for line in chosen for word in words_of(line)}
        known = sum(word in columns for word in words)
        if not known:
            return None
        counts = [counts_of([line]) for line in chosen]
        total = counts_of(chosen)
        row = self.ngrams.matrix([total])[0]
        score = float(row @ self.weights) + self.intercept
        effects = []
        for each in counts:
            parts = [
                (columns[gram], count / total[gram])
                for gram, count in each.items()
                if gram in columns
            ]
            effects.append(sum(float(row[at] * self.weights[at]) * part for at, part in parts))
        return opinion(
            self.calibration.chance(score),
            effects,
            chosen,
            (len(words), known),
            NAME,
            stops_below=self.stops_below,
        )
