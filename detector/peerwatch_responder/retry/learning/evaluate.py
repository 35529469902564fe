"""``learn --evaluate``: all methods side by side on mechanisms, or sources, left out."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from peerwatch_common.command_line import INTERRUPTED
from peerwatch_common.progress import Progress
from peerwatch_responder.retry.answer import RETRIES
from peerwatch_responder.retry.evaluation.engine import engine_advice, engine_answers, unseen_advice
from peerwatch_responder.retry.evaluation.rules import rule_answers, with_rules
from peerwatch_responder.retry.evaluation.run import by_mechanism, by_source, score_texts
from peerwatch_responder.retry.evaluation.table import (
    answers_of,
    as_json,
    as_markdown,
    gain,
    reliability,
    row_of,
)
from peerwatch_responder.retry.learning.learn import LINEAR

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from peerwatch_responder.retry.answer import RetryAdvice
    from peerwatch_responder.retry.corpus.text import Text
    from peerwatch_responder.retry.evaluation.measures import Bools
    from peerwatch_responder.retry.evaluation.operating_point import Answers
    from peerwatch_responder.retry.training.learners import NeuralLearner

_ENSEMBLE = "LSTM + GRU"
_ENGINE = f"advise: rules and {LINEAR}"


def evaluate(options: argparse.Namespace, texts: list[Text], learner: NeuralLearner | None) -> int:
    """Print the table of an evaluation; 130 if it was interrupted."""
    split = by_source if options.by_source else by_mechanism
    folds = split(texts, options.groups or 0)
    try:
        with Progress(sys.stderr, len(folds), "fold") as progress:
            scored = score_texts(
                texts, folds, learner, options.kept, progress.advance, ablations=True
            )
    except KeyboardInterrupt:
        kept = f"what is done is in {options.kept}" if options.kept else "nothing is kept (--kept)"
        sys.stderr.write(f"\npeerwatch-responder: interrupted; {kept}.\n")
        return INTERRUPTED
    truths = np.array([each.retry for each in texts])
    mechanisms = [each.mechanism for each in texts]
    given = answers_of(scored, truths)
    rules = rule_answers(texts)
    given = {"majority": given.pop("majority"), "rules": rules.answers, **given}
    for name in (LINEAR, _ENSEMBLE):
        if name in given:
            given[f"rules, then {name}"] = with_rules(rules, given[name])
    advice = engine_advice(texts, folds, scored.scores[LINEAR])
    given[_ENGINE] = engine_answers(advice)
    found = _found(given, truths, mechanisms, len(folds))
    found["engine"] = _by_reason(advice, truths)
    unseen = unseen_advice(texts, scored.scores[LINEAR])
    given_unseen = [advice for _, advice in unseen]
    found["unseen"] = _by_reason(given_unseen, np.array([text.retry for text, _ in unseen]))
    found["unseen_wrong"] = [
        f"{text.mechanism}: {advice.kind} by {advice.reason}, right is {text.label}"
        for text, advice in unseen
        if (advice.kind in RETRIES) != text.retry
    ]
    found["unknown_to_rules"] = int((~rules.decided).sum())
    sys.stdout.write(
        json.dumps(found) + "\n" if options.json else _text(found, given, truths, mechanisms)
    )
    return 0


def _by_reason(advice: Sequence[RetryAdvice], truths: Bools) -> dict[str, dict[str, int]]:
    """Return what the engine advises of jobs worth another attempt and of others, by reason."""
    found: dict[str, dict[str, int]] = {}
    for each, is_worth in zip(advice, truths, strict=True):
        row = found.setdefault(f"{each.kind} by {each.reason}", {"worth": 0, "not worth": 0})
        row["worth" if is_worth else "not worth"] += 1
    return dict(sorted(found.items()))


def _found(
    given: dict[str, Answers], truths: Bools, mechanisms: list[str], folds: int
) -> dict[str, Any]:
    rows = {name: row_of(each, truths, mechanisms) for name, each in given.items()}
    found: dict[str, Any] = {
        "texts": len(truths),
        "mechanisms": len(set(mechanisms)),
        "folds": folds,
        "measures": as_json(rows),
        "reliability": {LINEAR: reliability(given[LINEAR].chances, truths)},
        "gains": {},
    }
    if _ENSEMBLE in given:
        for name, each in given.items():
            if name != _ENSEMBLE and not name.startswith(("majority", "rules", "advise")):
                found["gains"][f"{_ENSEMBLE} over {name}"] = gain(
                    given[_ENSEMBLE].likelier, each.likelier, truths, mechanisms
                )
        voted, half = f"{_ENSEMBLE}, half the labels and votes", f"{_ENSEMBLE}, half the labels"
        found["gains"][f"{voted} over {half}"] = gain(
            given[voted].likelier, given[half].likelier, truths, mechanisms
        )
    return found


def _text(
    found: dict[str, Any], given: dict[str, Answers], truths: Bools, mechanisms: list[str]
) -> str:
    rows = {name: row_of(each, truths, mechanisms) for name, each in given.items()}
    lines = [
        f"{found['texts']} texts of {found['mechanisms']} mechanisms, {found['folds']} folds; "
        f"the rules know {found['texts'] - found['unknown_to_rules']} of the texts.",
        "",
        *as_markdown(rows),
        "",
        f"Chances of {LINEAR}:",
        *(
            f"  {name}: {count} texts, mean {mean:.2f}, worth another attempt {share:.2f}"
            for name, count, mean, share in found["reliability"][LINEAR]
        ),
    ]
    lines += ["", f"{_ENGINE}, texts that are worth another attempt / that are not:"]
    lines += _counts(found["engine"])
    lines += ["", "The same of texts of mechanisms that neither rules nor corpus have:"]
    lines += _counts(found["unseen"])
    lines += ["Wrong are:", *(f"  {each}" for each in found["unseen_wrong"])]
    for name, (difference, p) in found["gains"].items():
        lines.append(f"{name}: {100 * difference:+.1f} points, p = {p:.3f}")
    return "\n".join([*lines, ""])


def _counts(by_reason: dict[str, dict[str, int]]) -> list[str]:
    return [f"  {name}: {row['worth']} / {row['not worth']}" for name, row in by_reason.items()]
