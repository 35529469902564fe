"""Scores every text by models that have not seen its mechanism; goes on where it was broken off."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerwatch_responder.retry.evaluation.folds import rest_of, split_by
from peerwatch_responder.retry.evaluation.kept_scores import KeptScores
from peerwatch_responder.retry.evaluation.methods import NEURAL, VOTED, linear_scores, neural_scores
from peerwatch_responder.retry.training.examples import prepare_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from peerwatch_responder.retry.corpus.text import Text
    from peerwatch_responder.retry.evaluation.measures import Floats, Numbers
    from peerwatch_responder.retry.training.learners import NeuralLearner


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of all texts by each method.

    Parameters
    ----------
    folds
        Numbers of the texts that were left out together.
    scores
        By name of the method, in the order of the texts.
    """

    folds: list[Numbers]
    scores: dict[str, Floats]


def score_texts(
    texts: Sequence[Text],
    folds: list[Numbers],
    learner: NeuralLearner | None,
    kept: Path | None = None,
    advance: Callable[[], None] = lambda: None,
    *,
    ablations: bool = False,
) -> Scored:
    """Return the scores of all texts.

    Parameters
    ----------
    texts
        The corpus.
    folds
        What is left out together.
    learner
        How networks learn; None: only the simple methods are tried.
    kept
        A file in which each fold is kept once it is done; it knows of which corpus and settings.
    advance
        Called after each fold.
    ablations
        Whether networks are tried without parts of Sibylla, too.

    Raises
    ------
    KeptScoresError
        If the file cannot be read or written, or holds something else.
    """
    examples = prepare_texts(texts)
    mechanisms = [each.mechanism for each in texts] if ablations else None
    scores: dict[str, Floats] = {}
    key = _key(texts, learner)
    needed = () if learner is None else (*NEURAL, *(VOTED if ablations else ()))
    done = KeptScores(kept, key)
    for fold in folds:
        name = ",".join(map(str, fold))
        if name not in done.folds or not done.folds[name].keys() >= set(needed):
            rest = rest_of(fold, len(texts))
            found = linear_scores(examples, rest, fold)
            if learner is not None:
                found |= neural_scores(examples, rest, fold, learner, mechanisms)
            done.add(name, {method: list(map(float, each)) for method, each in found.items()})
        for method, values in done.folds[name].items():
            scores.setdefault(method, np.full(len(texts), np.nan))[fold] = values
        advance()
    return Scored(folds, scores)


def by_mechanism(texts: Sequence[Text], folds: int = 0) -> list[Numbers]:
    """Return the folds that leave out mechanisms."""
    return split_by([each.mechanism for each in texts], folds)


def by_source(texts: Sequence[Text], folds: int = 0) -> list[Numbers]:
    """Return the folds that leave out sources."""
    return split_by([each.source for each in texts], folds)


def _key(texts: Sequence[Text], learner: NeuralLearner | None) -> str:
    settings: Any = None
    if learner is not None:
        settings = [asdict(learner.fit), asdict(learner.skipgram), learner.copies]
    held = [settings, [(each.id, each.label, each.text) for each in texts]]
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()[:16]
