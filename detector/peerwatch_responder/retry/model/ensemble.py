"""The neural model: the mean score of the recurrent classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_responder.retry.model.opinions import opinion, selected
from peerwatch_responder.retry.text.words import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from peerwatch_responder.retry.model.calibration import Calibration
    from peerwatch_responder.retry.model.recurrent import Classifier
    from peerwatch_responder.retry.model.vectors import WordVectors
    from peerwatch_responder.retry.opinion import ModelOpinion

NAME = "sibylla"


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Assesses logs by the order of lines' meanings.

    Parameters
    ----------
    vectors
        Of words.
    classifiers
        An LSTM and a GRU with attention.
    calibration
        From mean score to chance.
    stops_below
        The chance below which a job is stopped.
    """

    vectors: WordVectors
    classifiers: tuple[Classifier, ...]
    calibration: Calibration
    stops_below: float

    def assess(self, lines: Sequence[str]) -> ModelOpinion | None:
        """Return its opinion; None if it knows no word of the lines."""
        chosen = selected(lines)
        words = [words_of(line) for line in chosen]
        rows = self.vectors.rows()
        distinct = {word for each in words for word in each}
        known = sum(word in rows for word in distinct)
        if not known:
            return None
        sequence = self.vectors.sequence(words, rows)
        score = self.score(sequence)
        # What a line adds is what the score loses without it.
        effects = [score - self._without(sequence, number) for number in range(len(chosen))]
        return opinion(
            self.calibration.chance(score),
            effects,
            chosen,
            (len(distinct), known),
            NAME,
            stops_below=self.stops_below,
        )

    def score(self, sequence: NDArray[np.float32]) -> float:
        """Return the mean score of a log's lines."""
        return sum(each.score(sequence) for each in self.classifiers) / len(self.classifiers)

    def _without(self, sequence: NDArray[np.float32], number: int) -> float:
        kept = [at for at in range(len(sequence)) if at != number]
        return self.score(sequence[kept]) if kept else 0.0
