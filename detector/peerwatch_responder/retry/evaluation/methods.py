"""What is compared: each method learns from some texts and scores others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_responder.retry.training.learners import LinearLearner, NeuralLearner, NeuralScorer
from peerwatch_responder.retry.training.skipgram import learn_vectors
from peerwatch_responder.retry.training.voting import vote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_responder.retry.evaluation.measures import Floats, Numbers
    from peerwatch_responder.retry.training.examples import Examples

# One network each, so that the mean of two is had for nothing.
NEURAL = ("lstm", "gru")
PLAIN = tuple(f"{kind}, no augmentation" for kind in NEURAL)
HALF = tuple(f"{kind}, half the labels" for kind in NEURAL)
VOTED = tuple(f"{kind}, half the labels and votes" for kind in NEURAL)


def linear_scores(examples: Examples, learnt: Numbers, asked: Numbers) -> dict[str, Floats]:
    """Return the scores of the simple methods."""
    truths = examples.truths[learnt]
    majority = 1.0 if truths.mean() >= 0.5 else -1.0
    linear = LinearLearner().learn(examples.part(learnt)).scores(examples.part(asked))
    return {"majority": np.full(len(asked), majority), "TF-IDF + logistic regression": linear}


def neural_scores(
    examples: Examples,
    learnt: Numbers,
    asked: Numbers,
    learner: NeuralLearner,
    mechanisms: Sequence[str] | None = None,
) -> dict[str, Floats]:
    """Return the scores of each network: whole, and without parts of Sibylla.

    Word vectors are learnt from the texts that are learnt from, once for all.

    Parameters
    ----------
    examples
        All.
    learnt, asked
        Numbers of those that are learnt from, and of those that are scored.
    learner
        How; its kinds are replaced.
    mechanisms
        Of all texts: every second one of those that are learnt from loses its label where votes
        are tried. None: only whole networks are tried.
    """
    known, unseen = examples.part(learnt), examples.part(asked)
    vectors = learn_vectors(known.words, learner.skipgram)
    learner = replace(learner, vectors=vectors)
    found = _each(learner, known, unseen, NEURAL)
    if mechanisms is None:
        return found
    names = [mechanisms[at] for at in learnt]
    kept = set(sorted(set(names))[::2])
    labelled = np.array([name in kept for name in names])
    half, rest = known.part(np.flatnonzero(labelled)), known.part(np.flatnonzero(~labelled))
    found |= _each(replace(learner, copies=0), known, unseen, PLAIN)
    scorers = _scorers(learner, half)
    found |= dict(zip(HALF, (each.scores(unseen) for each in scorers), strict=True))
    votes = vote([1 / (1 + np.exp(-each.scores(rest))) for each in scorers])
    more = half + rest.part(votes.chosen).labelled(votes.labels)
    return found | _each(learner, more, unseen, VOTED)


def _scorers(learner: NeuralLearner, known: Examples) -> list[NeuralScorer]:
    return [replace(learner, kinds=(kind,)).learn(known) for kind in ("lstm", "gru")]


def _each(
    learner: NeuralLearner, known: Examples, unseen: Examples, names: Sequence[str]
) -> dict[str, Floats]:
    scorers = _scorers(learner, known)
    return dict(zip(names, (each.scores(unseen) for each in scorers), strict=True))
