"""Measures of advice, folds, and an evaluation that goes on where it was broken off."""

import numpy as np
import pytest

from peerwatch_responder.retry.corpus.read import shipped
from peerwatch_responder.retry.evaluation.folds import split_by
from peerwatch_responder.retry.evaluation.kept_scores import KeptScores, KeptScoresError
from peerwatch_responder.retry.evaluation.measures import (
    calibration_error,
    chance_of_no_gain,
    false_retry,
    false_stop,
    interval,
    macro_f1,
)
from peerwatch_responder.retry.evaluation.operating_point import answers, limit_for
from peerwatch_responder.retry.evaluation.rules import rule_answers, with_rules
from peerwatch_responder.retry.evaluation.run import by_mechanism, by_source, score_texts
from peerwatch_responder.retry.evaluation.table import answers_of, as_markdown, reliability, row_of

TRUTHS = np.array([True, True, True, False, False])


def test_measures_by_hand():
    retries = np.array([True, True, False, True, False])
    # Start again: 2 of 3 and 2 of 3; do not: 1 of 2 and 1 of 2.
    assert macro_f1(TRUTHS, retries) == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert false_stop(TRUTHS, retries) == pytest.approx(1 / 3)
    assert false_retry(TRUTHS, retries) == pytest.approx(1 / 2)
    assert calibration_error(TRUTHS, TRUTHS.astype(float)) == 0
    assert calibration_error(TRUTHS, np.full(5, 0.95)) == pytest.approx(0.35)
    assert reliability(np.full(5, 0.95), TRUTHS) == [("0.8-1.0", 5, pytest.approx(0.95), 0.6)]


def test_texts_of_one_mechanism_are_one_witness():
    right = np.array([1.0] * 50 + [0.0] * 50)
    alone = interval(lambda at: right[at].mean(), [str(number) for number in range(100)])
    together = interval(lambda at: right[at].mean(), ["a"] * 50 + ["b"] * 50)
    assert alone.value == together.value == 0.5
    assert together.high - together.low > 3 * (alone.high - alone.low)
    assert chance_of_no_gain(lambda at: 1.0, lambda at: 0.0, ["a", "b"]) < 0.001
    assert chance_of_no_gain(lambda at: 1.0, lambda at: 1.0, ["a", "b"]) == 1


def test_a_limit_stops_at_most_the_given_share():
    chances = np.linspace(0, 1, 101)
    assert limit_for(np.ones(101, bool), chances, 0.05) == pytest.approx(0.05)
    assert limit_for(np.zeros(101, bool), chances) == 0


def test_all_texts_of_a_name_are_left_out_together():
    names = ["a", "b", "a", "c", "d"]
    folds = split_by(names, 2)
    assert sorted(np.concatenate(folds).tolist()) == [0, 1, 2, 3, 4]
    assert all(
        ({names[at] for at in fold} & {names[at] for at in other}) == set()
        for fold in folds
        for other in folds
        if other is not fold
    )
    assert len(split_by(names, 0)) == 4


@pytest.mark.parametrize("text", ["[1]\n", '{"key": "k"}\n'])
def test_a_file_of_something_else_is_left_alone(tmp_path, text):
    kept = tmp_path / "scores.jsonl"
    kept.write_text(text)
    with pytest.raises(KeptScoresError, match="holds no scores of folds"):
        KeptScores(kept, "k")
    assert kept.read_text() == text


def test_an_evaluation_goes_on_and_knows_another_corpus(tmp_path):
    texts = [text for text in shipped() if text.source in {"jax", "slurm", "gloo"}]
    truths = np.array([text.retry for text in texts])
    kept = tmp_path / "scores.jsonl"
    folds = by_mechanism(texts, 4)
    first = score_texts(texts, folds, None, kept)
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(lines[:2]) + lines[2][:40])
    again = score_texts(texts, folds, None, kept)
    for name, scores in first.scores.items():
        np.testing.assert_array_equal(again.scores[name], scores)
    # What was broken off takes no other fold with it.
    done = kept.read_text()
    score_texts(texts, folds, None, kept)
    assert kept.read_text() == done
    score_texts(texts[1:], by_source(texts[1:], 2), None, kept)
    given = answers_of(first, truths)
    assert (
        len(
            as_markdown(
                {"x": row_of(given["majority"], truths, [text.mechanism for text in texts])}
            )
        )
        == 3
    )


def test_rules_decide_what_they_know_and_leave_the_rest():
    texts = [text for text in shipped() if text.source in {"gloo", "orbax"}]
    rules = rule_answers(texts)
    assert rules.decided.any()
    truths = np.array([text.retry for text in texts])
    model = answers(
        np.full(len(texts), -9.0),
        truths,
        [np.arange(len(texts) // 2), np.arange(len(texts) // 2, len(texts))],
    )
    both = with_rules(rules, model)
    np.testing.assert_array_equal(
        both.likelier[rules.decided], rules.answers.likelier[rules.decided]
    )
