"""A vector for each line of a log: the vectors of its words, weighted by TF-IDF and summed up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_responder.retry.text.words import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class WordVectors:
    """The words that have a vector.

    Parameters
    ----------
    names
        The words; their position is their row.
    weights
        Inverse document frequency of each, float32 ``(words,)``.
    vectors
        Of unit length, float32 ``(words, size)``.
    """

    names: tuple[str, ...]
    weights: NDArray[np.float32]
    vectors: NDArray[np.float32]

    def rows(self) -> dict[str, int]:
        """Return the row of each word."""
        return {name: number for number, name in enumerate(self.names)}

    def sequence(
        self, lines: Sequence[Sequence[str]], rows: dict[str, int] | None = None
    ) -> NDArray[np.float32]:
        """Return the lines' vectors, of unit length, float32 ``(lines, size)``.

        A line none of whose words has a vector is zeros: what was never seen says nothing.

        Parameters
        ----------
        lines
            The words of each line.
        rows
            What ``rows`` returns, where it is known already.
        """
        rows = self.rows() if rows is None else rows
        found = np.zeros((len(lines), self.vectors.shape[1]), np.float32)
        for number, words in enumerate(lines):
            counts = Counter(word for word in words if word in rows)
            if not counts:
                continue
            at = [rows[word] for word in counts]
            shares = np.array(list(counts.values()), np.float32) * self.weights[at]
            vector = shares @ self.vectors[at]
            found[number] = vector / max(float(np.linalg.norm(vector)), 1e-9)
        return found


def words_of_lines(lines: Sequence[str]) -> list[list[str]]:
    """Return the words of each line that has any."""
    return [words for words in map(words_of, lines) if words]
