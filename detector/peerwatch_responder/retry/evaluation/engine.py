"""What ``advise`` says as a whole: rules and the model together, each by what it has not seen.

Each text is the only log of a job without a history and without a diagnosis. The model has seen no
text of its mechanism, and its chance and its limit are set from the answers about all the others.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_responder.retry.answer import RETRIES
from peerwatch_responder.retry.assessment.assess import Sources, assess
from peerwatch_responder.retry.assessment.knowledge import load_knowledge
from peerwatch_responder.retry.corpus.read import read_files
from peerwatch_responder.retry.evaluation.folds import rest_of
from peerwatch_responder.retry.evaluation.operating_point import Answers, calibrated
from peerwatch_responder.retry.evidence.observed import observe
from peerwatch_responder.retry.history.recurrence import Recurrence
from peerwatch_responder.retry.model.linear import LinearModel
from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.retry.reading.log_text import LogText
from peerwatch_responder.retry.training.examples import prepare_texts
from peerwatch_responder.retry.training.learners import LinearLearner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_responder.retry.answer import RetryAdvice
    from peerwatch_responder.retry.assessment.knowledge import Knowledge
    from peerwatch_responder.retry.corpus.text import Text
    from peerwatch_responder.retry.evaluation.measures import Floats, Numbers
    from peerwatch_responder.retry.opinion import ModelOpinion, RetryModel
    from peerwatch_responder.retry.training.examples import Examples

# Written after the last change of the rules, of mechanisms that the corpus does not have.
UNSEEN = Path(__file__).with_name("unseen.jsonl")


def engine_advice(texts: Sequence[Text], folds: list[Numbers], scores: Floats) -> list[RetryAdvice]:
    """Return the advice on each text, in their order.

    Parameters
    ----------
    texts
        The corpus.
    folds
        What is left out together.
    scores
        Of each text by the simple model, learnt without its fold.
    """
    knowledge = load_knowledge()
    examples = prepare_texts(texts)
    found: dict[int, RetryAdvice] = {}
    for fold in folds:
        rest = rest_of(fold, len(texts))
        model = _LearntOnDemand(examples.part(rest), scores[rest])
        for at in map(int, fold):
            found[at] = _advice(texts[at], knowledge, model)
    return [found[at] for at in range(len(texts))]


def unseen_advice(texts: Sequence[Text], scores: Floats) -> list[tuple[Text, RetryAdvice]]:
    """Return the advice on each of the texts that neither rules nor corpus were written with.

    Parameters
    ----------
    texts
        The corpus, of which the model learns all.
    scores
        Of each text of it by the simple model, learnt without its fold.
    """
    knowledge = load_knowledge()
    model = _LearntOnDemand(prepare_texts(texts), scores)
    return [(each, _advice(each, knowledge, model)) for each in read_files([UNSEEN])]


class _LearntOnDemand:
    """A model that is learnt once it is asked: the rules know all texts of most mechanisms."""

    def __init__(self, known: Examples, scores: Floats) -> None:
        self._known, self._scores = known, scores

    def assess(self, lines: Sequence[str]) -> ModelOpinion | None:
        return self._model.assess(lines)

    @cached_property
    def _model(self) -> LinearModel:
        scorer = LinearLearner().learn(self._known)
        line, limit = calibrated(self._scores, self._known.truths)
        return LinearModel(scorer.ngrams, scorer.weights, scorer.intercept, line, limit)


def _advice(text: Text, knowledge: Knowledge, model: RetryModel) -> RetryAdvice:
    log = LogText(text.id, text.text.encode() + b"\n")
    observed = observe([log], knowledge.table, "")
    sources = Sources(lambda *_: Recurrence(), model=model)
    return assess(observed, JobFacts(), knowledge, sources)


def engine_answers(advice: Sequence[RetryAdvice]) -> Answers:
    """Return whether each starts the job again; what is asked does not.

    The chance is the confidence of the advice, whichever way; one half where it asks.
    """
    retries = np.array([each.kind in RETRIES for each in advice], bool)
    chances = [
        0.5 if each.kind == "ask_user" else abs((each.kind not in RETRIES) - each.confidence)
        for each in advice
    ]
    return Answers(np.array(chances), retries, retries)
