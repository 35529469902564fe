"""Further examples from the ones there are: words replaced by synonyms and by near vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_responder.retry.model.vectors import WordVectors

# Chosen, without a measurement: augmentation changes nothing measurably (docs/retry-model.md).
_NEAR = 0.75
_MOST_NEIGHBOURS = 3


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How examples are made from others.

    Parameters
    ----------
    synonyms
        What may stand for a word.
    neighbours
        Words with near vectors; they may be opposites, so they are drawn less often.
    share
        Of the words that have a synonym: so many are replaced.
    neighbour_share
        Of the others that have a neighbour.
    dropped
        Of all words: so many are left out, so that no single one decides.
    """

    synonyms: Mapping[str, Sequence[str]]
    neighbours: Mapping[str, Sequence[str]]
    share: float = 0.3
    neighbour_share: float = 0.1
    dropped: float = 0.1

    def copy(self, lines: Sequence[Sequence[str]], rng: np.random.Generator) -> list[list[str]]:
        """Return the words of a log's lines, some of them replaced or left out."""
        return [
            [self._word(word, rng) for word in line if rng.random() >= self.dropped] or [*line]
            for line in lines
        ]

    def _word(self, word: str, rng: np.random.Generator) -> str:
        for others, share in (
            (self.synonyms.get(word), self.share),
            (self.neighbours.get(word), self.neighbour_share),
        ):
            if others and rng.random() < share:
                return others[int(rng.integers(len(others)))]
        return word


def near_words(vectors: WordVectors) -> dict[str, tuple[str, ...]]:
    """Return the up to three nearest words of each, with a cosine of at least 0.75."""
    if not vectors.names:
        return {}
    cosine = vectors.vectors @ vectors.vectors.T
    np.fill_diagonal(cosine, -1)
    found = {}
    for number, name in enumerate(vectors.names):
        order = np.argsort(-cosine[number], kind="stable")[:_MOST_NEIGHBOURS]
        near = tuple(vectors.names[at] for at in order if cosine[number, at] >= _NEAR)
        if near:
            found[name] = near
    return found
