"""Texts of the corpus as the models learn from them, prepared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_responder.retry.model.ngrams import counts_of
from peerwatch_responder.retry.model.opinions import selected
from peerwatch_responder.retry.text.words import words_of

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from peerwatch_responder.retry.corpus.text import Text


@dataclass(frozen=True, slots=True)
class Examples:
    """Logs, prepared.

    Parameters
    ----------
    words
        The words of each selected line of each log.
    counts
        How often each log has each n-gram.
    truths
        Whether another attempt is worth it; of logs without a label it says nothing.
    """

    words: tuple[list[list[str]], ...]
    counts: tuple[Counter[str], ...]
    truths: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.words)

    def part(self, chosen: NDArray[np.int64]) -> Examples:
        """Return some of them, by number."""
        return Examples(
            tuple(self.words[at] for at in chosen),
            tuple(self.counts[at] for at in chosen),
            self.truths[chosen],
        )

    def labelled(self, truths: NDArray[np.bool_]) -> Examples:
        """Return the same logs with other labels."""
        return Examples(self.words, self.counts, truths)

    def __add__(self, other: Examples) -> Examples:
        return Examples(
            self.words + other.words,
            self.counts + other.counts,
            np.concatenate([self.truths, other.truths]),
        )


def prepare(logs: Sequence[Sequence[str]], truths: Sequence[bool]) -> Examples:
    """Return logs, prepared; one without a single word keeps an empty line."""
    chosen = [selected(lines) for lines in logs]
    words = tuple([words_of(line) for line in lines] or [["empty"]] for lines in chosen)
    return Examples(words, tuple(map(counts_of, chosen)), np.array(truths, bool))


def prepare_texts(texts: Sequence[Text]) -> Examples:
    """Return texts of the corpus, prepared."""
    return prepare([each.lines for each in texts], [each.retry for each in texts])
