"""Word vectors by skip-gram with negative sampling, trained on the logs themselves.

The five words before and after a word of a log are its neighbours. Logs are short and few, so the
vectors are small, and some seconds of one processor are enough.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_responder.retry.model.vectors import WordVectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

# Chosen: large enough for NumPy to be fast, small enough for many steps in a pass.
_BATCH = 2048


@dataclass(frozen=True, slots=True)
class SkipGram:
    """How vectors are trained.

    Parameters
    ----------
    size
        Of a vector.
    window
        Words before and after one that are its neighbours.
    negatives
        Words drawn at random beside each neighbour.
    passes
        Over all pairs of neighbours.
    rate
        Learning rate at the start; it falls to nothing along a line.
    least
        Words that fewer logs have get no vector.
    seed
        Makes it repeatable.
    """

    size: int = 32
    window: int = 5
    negatives: int = 5
    passes: int = 3
    rate: float = 0.05
    least: int = 2
    seed: int = 0


def learn_vectors(
    texts: Sequence[Sequence[Sequence[str]]],
    settings: SkipGram,
    advance: Callable[[], None] = lambda: None,
) -> WordVectors:
    """Return the vectors of the words of some logs.

    Parameters
    ----------
    texts
        The words of each line of each log.
    settings
        How they are trained.
    advance
        Called after each pass.
    """
    having: Counter[str] = Counter()
    for text in texts:
        having.update({word for line in text for word in line})
    names = tuple(sorted(word for word, count in having.items() if count >= settings.least))
    rows = {name: number for number, name in enumerate(names)}
    weights = [math.log((1 + len(texts)) / (1 + having[name])) + 1 for name in names]
    idf = np.array(weights, np.float32)
    if not names:
        return WordVectors((), idf, np.zeros((0, settings.size), np.float32))
    streams = [[rows[word] for line in text for word in line if word in rows] for text in texts]
    pairs = _pairs(streams, settings.window)
    counts = np.bincount(
        np.concatenate([np.array(each, int) for each in streams]), minlength=len(names)
    )
    vectors = _train(pairs, counts, settings, advance)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return WordVectors(names, idf, vectors / np.maximum(lengths, np.float32(1e-9)))


def _pairs(streams: Sequence[Sequence[int]], window: int) -> NDArray[np.int64]:
    found = []
    for stream in streams:
        words = np.array(stream, np.int64)
        for distance in range(1, window + 1):
            first, second = words[:-distance], words[distance:]
            found += [np.stack([first, second], 1), np.stack([second, first], 1)]
    return np.concatenate(found) if found else np.zeros((0, 2), np.int64)


def _train(
    pairs: NDArray[np.int64],
    counts: NDArray[np.int64],
    settings: SkipGram,
    advance: Callable[[], None],
) -> NDArray[np.float32]:
    rng = np.random.default_rng(settings.seed)
    shape = (len(counts), settings.size)
    vectors = ((rng.random(shape) - 0.5) / settings.size).astype(np.float32)
    contexts = np.zeros(shape, np.float32)
    # As in word2vec: frequent words are drawn less often than they occur.
    drawn = np.cumsum(counts**0.75)
    drawn /= drawn[-1]
    steps = max(1, settings.passes * math.ceil(len(pairs) / _BATCH))
    step = 0
    for _ in range(settings.passes):
        order = rng.permutation(len(pairs))
        for start in range(0, len(pairs), _BATCH):
            chosen = pairs[order[start : start + _BATCH]]
            negatives = np.searchsorted(drawn, rng.random((len(chosen), settings.negatives)))
            _step(vectors, contexts, chosen, negatives, settings.rate * (1 - step / steps))
            step += 1
        advance()
    return vectors


def _step(
    vectors: NDArray[np.float32],
    contexts: NDArray[np.float32],
    pairs: NDArray[np.int64],
    negatives: NDArray[np.int64],
    rate: float,
) -> None:
    centre = vectors[pairs[:, 0]]
    others = np.concatenate([pairs[:, 1:], negatives], axis=1)
    beside = contexts[others]
    wanted = np.zeros(others.shape, np.float32)
    wanted[:, 0] = 1
    value = np.clip(np.einsum("ns,nks->nk", centre, beside), -30, 30)
    error = (np.float32(rate) * (wanted - 1 / (1 + np.exp(-value)))).astype(np.float32)
    _add(vectors, pairs[:, 0], np.einsum("nk,nks->ns", error, beside))
    flat = (error[:, :, None] * centre[:, None, :]).reshape(-1, centre.shape[1])
    _add(contexts, others.ravel(), flat)


def _add(rows: NDArray[np.float32], at: NDArray[np.int64], values: NDArray[np.float32]) -> None:
    """Add values to rows; one that is there many times moves by less than their sum."""
    order = np.argsort(at, kind="stable")
    first = np.flatnonzero(np.diff(at[order], prepend=-1))
    sums = np.add.reduceat(values[order], first, axis=0)
    times = np.diff(np.append(first, len(at)))[:, None]
    # One step of a batch stands for many small ones: without a limit it would overshoot.
    rows[at[order][first]] += sums / np.sqrt(times).astype(np.float32)
