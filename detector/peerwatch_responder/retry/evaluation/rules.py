"""What the rules alone advise: signatures and ways to exit, without history, diagnosis or model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_responder.retry.answer import RETRIES
from peerwatch_responder.retry.assessment.assess import Sources, assess
from peerwatch_responder.retry.assessment.cause import find_cause
from peerwatch_responder.retry.assessment.knowledge import load_knowledge
from peerwatch_responder.retry.evaluation.operating_point import Answers
from peerwatch_responder.retry.evidence.observed import observe
from peerwatch_responder.retry.history.recurrence import Recurrence
from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.retry.reading.log_text import LogText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_responder.retry.corpus.text import Text
    from peerwatch_responder.retry.evaluation.measures import Bools


@dataclass(frozen=True, slots=True)
class RuleAnswers:
    """What the rules say.

    Parameters
    ----------
    answers
        With 1 and 0 as chances; what they do not know is started again.
    decided
        Which texts they know; the others are left to what comes after them.
    """

    answers: Answers
    decided: Bools


def rule_answers(texts: Sequence[Text]) -> RuleAnswers:
    """Return the advice of the rules on each text, as the only log of a job."""
    knowledge = load_knowledge()
    retries, decided = [], []
    for text in texts:
        log = LogText(text.id, text.text.encode() + b"\n")
        observed = observe([log], knowledge.table, "")
        cause = find_cause(observed, JobFacts(), knowledge)
        advice = assess(observed, JobFacts(), knowledge, Sources(lambda *_: Recurrence()))
        retries.append(advice.kind in RETRIES)
        decided.append(cause is not None and cause.ruling.decides)
    found = np.array(retries, bool)
    return RuleAnswers(Answers(found.astype(float), found, found), np.array(decided, bool))


def with_rules(rules: RuleAnswers, model: Answers) -> Answers:
    """Return the answers of the rules where they know a text, and else those of a model."""
    return Answers(
        np.where(rules.decided, rules.answers.chances, model.chances),
        np.where(rules.decided, rules.answers.likelier, model.likelier),
        np.where(rules.decided, rules.answers.careful, model.careful),
    )
