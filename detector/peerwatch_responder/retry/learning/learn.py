"""Learns the models from labelled texts and from logs that the models themselves label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_responder.retry.evaluation.methods import NEURAL
from peerwatch_responder.retry.evaluation.operating_point import calibrated
from peerwatch_responder.retry.evaluation.run import by_mechanism, score_texts
from peerwatch_responder.retry.model.calibration import Calibration
from peerwatch_responder.retry.model.ensemble import Ensemble
from peerwatch_responder.retry.model.linear import LinearModel
from peerwatch_responder.retry.training.examples import prepare, prepare_texts
from peerwatch_responder.retry.training.learners import LinearLearner
from peerwatch_responder.retry.training.voting import vote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from peerwatch_responder.retry.corpus.text import Text
    from peerwatch_responder.retry.evaluation.run import Scored
    from peerwatch_responder.retry.training.examples import Examples
    from peerwatch_responder.retry.training.learners import NeuralLearner

LINEAR = "TF-IDF + logistic regression"
# Chosen: the second learns from what the first has labelled; votes changed nothing measurably
# (docs/retry-model.md).
_VOTERS_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Learnt:
    """What came of it.

    Parameters
    ----------
    linear, ensemble
        The models; the ensemble is None where it was not asked for.
    scored
        The scores of all labelled texts by models that had not seen their mechanism.
    voted
        How many logs without a label got one, by whether another attempt is worth it.
    """

    linear: LinearModel
    ensemble: Ensemble | None
    scored: Scored
    voted: dict[bool, int]


def learn(
    texts: Sequence[Text],
    logs: Sequence[Sequence[str]],
    learner: NeuralLearner | None,
    folds: int,
    kept: Path | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Learnt:
    """Return the models.

    Parameters
    ----------
    texts
        With labels; at least two mechanisms.
    logs
        The lines of logs without a label. They need the networks: they vote.
    learner
        How networks learn; None: only the simple model is learnt.
    folds
        Groups of mechanisms that are left out in turn, to calibrate the models.
    kept
        A file in which what is done is kept, so that a run that was broken off goes on.
    advance
        Called after each fold and after each model: ``steps_of`` says how often.
    """
    scored = score_texts(texts, by_mechanism(texts, folds), learner, kept, advance)
    known = prepare_texts(texts)
    truths = known.truths
    voted = {True: 0, False: 0}
    if logs and learner is not None:
        known, voted = _with_votes(known, prepare(logs, [False] * len(logs)), learner)
        advance()
    scorer = LinearLearner().learn(known)
    linear = LinearModel(
        scorer.ngrams,
        scorer.weights,
        scorer.intercept,
        *calibrated(scored.scores[LINEAR], truths),
    )
    advance()
    if learner is None:
        return Learnt(linear, None, scored, voted)
    networks = learner.learn(known)
    mean = np.mean([scored.scores[name] for name in NEURAL], axis=0)
    ensemble = Ensemble(networks.vectors, networks.classifiers, *calibrated(mean, truths))
    advance()
    return Learnt(linear, ensemble, scored, voted)


def steps_of(folds: int, logs: int, *, neural: bool) -> int:
    """Return how often ``learn`` says that it got on."""
    return folds + 1 + (neural and bool(logs)) + neural


def _with_votes(
    known: Examples, unlabelled: Examples, learner: NeuralLearner
) -> tuple[Examples, dict[bool, int]]:
    """Return what is known with the logs on whose labels all classifiers agree."""
    more, voted = known, {True: 0, False: 0}
    for _ in range(_VOTERS_ROUNDS):
        linear = LinearLearner().learn(more)
        networks = learner.learn(more)
        each = [replace(networks, classifiers=(classifier,)) for classifier in networks.classifiers]
        chances = [Calibration().chances(voter.scores(unlabelled)) for voter in each]
        votes = vote(chances)
        # The simple model need not be as sure, but it must not contradict.
        agreed = (linear.scores(unlabelled)[votes.chosen] >= 0) == votes.labels
        chosen, labels = votes.chosen[agreed], votes.labels[agreed]
        more = known + unlabelled.part(chosen).labelled(labels)
        voted = {True: int(labels.sum()), False: int((~labels).sum())}
    return more, voted
