"""TF-IDF over words, pairs of words and parts of words: what the simple model sees of a log."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_responder.retry.text.words import words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

# Chosen: stems and endings of words; fastText's default is 3 to 6.
_SHORTEST, _LONGEST = 3, 5


def grams_of(line: str) -> Iterator[str]:
    """Yield the words of a line, pairs of them, and parts of three to five letters of each.

    Parts begin with ``#``, pairs hold a space: neither is ever a word.
    """
    words = words_of(line)
    yield from words
    yield from (f"{first} {second}" for first, second in pairwise(words))
    for word in words:
        bounded = f"<{word}>"
        for length in range(_SHORTEST, _LONGEST + 1):
            for start in range(len(bounded) - length + 1):
                yield f"#{bounded[start : start + length]}"


def counts_of(lines: Iterable[str]) -> Counter[str]:
    """Return how often some lines have each n-gram."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(grams_of(line))
    return counts


@dataclass(frozen=True, slots=True)
class NGrams:
    """The n-grams that are known, and how much each says.

    Parameters
    ----------
    names
        Of the n-grams; their position is their column.
    weights
        Inverse document frequency of each, float32 ``(columns,)``.
    """

    names: tuple[str, ...]
    weights: NDArray[np.float32]

    @classmethod
    def learn(cls, texts: Sequence[Mapping[str, int]], least: int = 2) -> NGrams:
        """Return those that at least so many texts have, from each text's counts."""
        having: Counter[str] = Counter()
        for counts in texts:
            having.update(counts.keys())
        names = tuple(sorted(name for name, count in having.items() if count >= least))
        idf = [math.log((1 + len(texts)) / (1 + having[name])) + 1 for name in names]
        return cls(names, np.array(idf, np.float32))

    def columns(self) -> dict[str, int]:
        """Return the column of each n-gram."""
        return {name: number for number, name in enumerate(self.names)}

    def matrix(self, texts: Sequence[Mapping[str, int]]) -> NDArray[np.float32]:
        """Return a row of unit length for each text's counts, float32 ``(texts, columns)``.

        A text without any known n-gram is a row of zeros.
        """
        columns = self.columns()
        rows = np.zeros((len(texts), len(self.names)), np.float32)
        for row, counts in zip(rows, texts, strict=True):
            for gram, count in counts.items():
                column = columns.get(gram)
                if column is not None:
                    row[column] = math.log1p(count)
        rows *= self.weights
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.maximum(lengths, np.float32(1e-12))
        return rows
