"""Learns from prepared logs, and scores others: what training and evaluation have in common."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from peerwatch_responder.retry.model.ngrams import NGrams
from peerwatch_responder.retry.training.augment import Augmentation, near_words
from peerwatch_responder.retry.training.logistic import fit_logistic
from peerwatch_responder.retry.training.skipgram import SkipGram, learn_vectors
from peerwatch_responder.retry.training.synonyms import load_synonyms
from peerwatch_responder.retry.training.wordnet import WordNet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from peerwatch_responder.retry.model.recurrent import Classifier
    from peerwatch_responder.retry.model.vectors import WordVectors
    from peerwatch_responder.retry.training.examples import Examples
    from peerwatch_responder.retry.training.networks import Kind
    from peerwatch_responder.retry.training.settings import FitSettings

    Scores = NDArray[np.float64]

# Chosen: C = 10 of scikit-learn; not tuned on what docs/retry-model.md evaluates.
PENALTY = 0.1


class Scorer(Protocol):
    """What was learnt."""

    def scores(self, examples: Examples) -> Scores:
        """Return a score of each log, positive where another attempt is worth it."""
        ...


class Learner(Protocol):
    """How it is learnt."""

    def learn(self, examples: Examples) -> Scorer:
        """Return what can be learnt from some logs."""
        ...


@dataclass(frozen=True, slots=True)
class LinearScorer:
    """Logistic regression on n-grams.

    Parameters
    ----------
    ngrams, weights, intercept
        As of ``LinearModel``.
    """

    ngrams: NGrams
    weights: NDArray[np.float32]
    intercept: float

    def scores(self, examples: Examples) -> Scores:
        """Return the logarithm of the odds of each log."""
        found = self.ngrams.matrix(examples.counts) @ self.weights + self.intercept
        return found.astype(np.float64)


@dataclass(frozen=True, slots=True)
class LinearLearner:
    """Learns logistic regression on TF-IDF of n-grams.

    Parameters
    ----------
    penalty
        Of the squared weights.
    least
        N-grams that fewer logs have are not known.
    """

    penalty: float = PENALTY
    least: int = 2

    def learn(self, examples: Examples) -> LinearScorer:
        """Return what can be learnt; the same every time."""
        ngrams = NGrams.learn(examples.counts, self.least)
        rows = ngrams.matrix(examples.counts)
        weights, intercept = fit_logistic(rows, examples.truths, self.penalty)
        return LinearScorer(ngrams, weights.astype(np.float32), intercept)


@dataclass(frozen=True, slots=True)
class NeuralScorer:
    """Recurrent classifiers on vectors of lines.

    Parameters
    ----------
    vectors
        Of words.
    classifiers
        Their scores' mean counts.
    """

    vectors: WordVectors
    classifiers: tuple[Classifier, ...]

    def scores(self, examples: Examples) -> Scores:
        """Return the mean score of each log."""
        rows = self.vectors.rows()
        found = []
        for lines in examples.words:
            sequence = self.vectors.sequence(lines, rows)
            found.append(np.mean([each.score(sequence) for each in self.classifiers]))
        return np.array(found, np.float64)


@dataclass(frozen=True, slots=True)
class NeuralLearner:
    """Learns recurrent classifiers; needs torch.

    Parameters
    ----------
    kinds
        Which.
    fit, skipgram
        How classifiers and word vectors are trained.
    copies
        Augmented copies of each log beside itself; 0: no augmentation.
    vectors
        Of words, where they are known already; None: they are learnt from the logs.
    """

    fit: FitSettings
    kinds: Sequence[Kind] = ("lstm", "gru")
    skipgram: SkipGram = field(default_factory=SkipGram)
    copies: int = 1
    vectors: WordVectors | None = None

    def learn(self, examples: Examples) -> NeuralScorer:
        """Return what can be learnt; the same every time on one machine."""
        from peerwatch_responder.retry.training.fit import fit_classifier  # noqa: PLC0415 - torch

        vectors = self.vectors or learn_vectors(examples.words, self.skipgram)
        logs, truths = self._augmented(examples, vectors)
        rows = vectors.rows()
        sequences = [vectors.sequence(lines, rows) for lines in logs]
        classifiers = [fit_classifier(kind, sequences, truths, self.fit) for kind in self.kinds]
        return NeuralScorer(vectors, tuple(classifiers))

    def seeded(self, seed: int) -> NeuralLearner:
        """Return one that draws other first weights."""
        return replace(self, fit=replace(self.fit, seed=seed))

    def _augmented(
        self, examples: Examples, vectors: WordVectors
    ) -> tuple[list[list[list[str]]], NDArray[np.bool_]]:
        logs = list(examples.words)
        if self.copies:
            rng = np.random.default_rng(self.fit.seed)
            how = Augmentation(load_synonyms(WordNet()), near_words(vectors))
            for _ in range(self.copies):
                logs += [how.copy(lines, rng) for lines in examples.words]
        return logs, np.tile(examples.truths, self.copies + 1)
