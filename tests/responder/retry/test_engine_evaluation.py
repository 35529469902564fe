"""``advise`` as a whole, evaluated on what its model has not seen."""

import numpy as np
import pytest

from peerwatch_responder.retry.answer import Line, RetryAdvice
from peerwatch_responder.retry.corpus.read import shipped
from peerwatch_responder.retry.corpus.text import Text
from peerwatch_responder.retry.evaluation.engine import engine_advice, engine_answers, unseen_advice

# The models are trained once for all.
pytestmark = pytest.mark.xdist_group("engine_evaluation")

STAYS, PASSES = "the frobnicator was sulking", "the gizmo took a nap"


def text(number, mechanism, label, line):
    return Text(
        id=f"t{number}",
        mechanism=mechanism,
        source="made up",
        origin="written",
        label=label,
        deterministic=label == "do_not_retry",
        text=f"starting\nerror {number}: {line}\nerror: giving up",
    )


def texts_of(known):
    """Two words that no rule knows, each in several mechanisms, and one text that a form knows."""
    found = []
    for number in range(12):
        stays = number % 2 == 0
        label, line = ("do_not_retry", STAYS) if stays else ("retry", PASSES)
        found.append(text(number, f"m{number // 2}{stays}", label, line))
    return [*found, text(99, "known", "do_not_retry", known)]


@pytest.fixture(scope="module")
def assessed():
    texts = texts_of("CUDA out of memory. Tried to allocate 2.00 GiB")
    folds = [np.array([at]) for at in range(len(texts))]
    truths = np.array([each.retry for each in texts])
    scores = np.where(truths, 0.5, -0.5)
    return texts, engine_advice(texts, folds, scores)


def test_each_text_is_assessed_by_what_has_not_seen_it(assessed):
    texts, advice = assessed
    assert len(advice) == len(texts)
    assert [each.root.text.split(":")[0] for each in advice[:12]] == [
        f"error {number}" for number in range(12)
    ]
    # What both words mean was learnt from the other mechanisms.
    assert {each.reason for each in advice[:12]} == {"model"}
    assert [each.kind == "retry" for each in advice[:12]] == [each.retry for each in texts[:12]]


def test_the_rules_come_before_the_model(assessed):
    _, advice = assessed
    assert (advice[-1].kind, advice[-1].reason) == ("do_not_retry", "form")


def test_a_word_that_only_one_mechanism_has_is_not_known():
    texts = texts_of("the widget is feeling blue")
    folds = [np.array([at]) for at in range(len(texts))]
    truths = np.array([each.retry for each in texts])
    advice = engine_advice(texts, folds, np.where(truths, 0.5, -0.5))
    assert advice[-1].reason == "unknown"


def test_answers_count_what_starts_the_job_again():
    line = (Line("log", 1, "error"),)
    given = engine_answers(
        [
            RetryAdvice("retry_elsewhere", "signature", "", 0.9, lines=line),
            RetryAdvice("do_not_retry", "model", "", 0.7, lines=line),
            RetryAdvice("ask_user", "no_failure", "", 0.3),
        ]
    )
    assert given.likelier.tolist() == given.careful.tolist() == [True, False, False]
    assert given.chances.tolist() == pytest.approx([0.9, 0.3, 0.5])


def test_texts_that_nothing_was_written_with_have_mechanisms_of_their_own():
    texts = shipped()
    unseen = unseen_advice(texts[:20], np.where([each.retry for each in texts[:20]], 0.5, -0.5))
    assert len(unseen) == 40
    assert not {each.mechanism for each, _ in unseen} & {each.mechanism for each in texts}
    stopped = [each.mechanism for each, advice in unseen if advice.kind == "do_not_retry"]
    assert "config_override" in stopped
