"""The table of an evaluation: each method's measures beside the others', and who is better."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerwatch_responder.retry.evaluation.measures import (
    Interval,
    calibration_error,
    chance_of_no_gain,
    false_retry,
    false_stop,
    interval,
    macro_f1,
)
from peerwatch_responder.retry.evaluation.operating_point import Answers, answers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_responder.retry.evaluation.measures import Bools, Floats, Numbers
    from peerwatch_responder.retry.evaluation.run import Scored

# Means of the scores of networks, from the names of the networks.
ENSEMBLES = {
    "LSTM + GRU": ("lstm", "gru"),
    "LSTM + GRU, no augmentation": ("lstm, no augmentation", "gru, no augmentation"),
    "LSTM + GRU, half the labels": ("lstm, half the labels", "gru, half the labels"),
    "LSTM + GRU, half the labels and votes": (
        "lstm, half the labels and votes",
        "gru, half the labels and votes",
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """The measures of one method.

    Parameters
    ----------
    f1
        Macro-F1 where the likelier of the two counts.
    false_stop, false_retry
        At the same point.
    careful_f1, careful_false_stop, careful_false_retry
        Where at most one in twenty false stops is allowed.
    calibration
        Expected calibration error.
    """

    f1: Interval
    false_stop: float
    false_retry: float
    careful_f1: Interval
    careful_false_stop: float
    careful_false_retry: float
    calibration: float


def answers_of(scored: Scored, truths: Bools) -> dict[str, Answers]:
    """Return the answers of each method and ensemble."""
    scores = dict(scored.scores)
    for name, parts in ENSEMBLES.items():
        if all(part in scores for part in parts):
            scores[name] = np.mean([scores[part] for part in parts], axis=0)
    return {name: answers(each, truths, scored.folds) for name, each in scores.items()}


def row_of(given: Answers, truths: Bools, mechanisms: list[str]) -> Row:
    """Return the measures of one method's answers."""
    return Row(
        interval(lambda at: macro_f1(truths[at], given.likelier[at]), mechanisms),
        false_stop(truths, given.likelier),
        false_retry(truths, given.likelier),
        interval(lambda at: macro_f1(truths[at], given.careful[at]), mechanisms),
        false_stop(truths, given.careful),
        false_retry(truths, given.careful),
        calibration_error(truths, given.chances),
    )


def gain(first: Bools, second: Bools, truths: Bools, mechanisms: list[str]) -> tuple[float, float]:
    """Return by how much the first's macro-F1 is higher, and the p that it is not (one-sided)."""

    def measure(retries: Bools) -> Any:  # noqa: ANN401 - a function of numbers
        return lambda at: macro_f1(truths[at], retries[at])

    difference = macro_f1(truths, first) - macro_f1(truths, second)
    return difference, chance_of_no_gain(measure(first), measure(second), mechanisms)


def as_markdown(rows: Mapping[str, Row]) -> list[str]:
    """Return the table's lines."""
    lines = [
        "| method | macro-F1 (95 %) | false stop | false retry | macro-F1, careful | "
        "false stop, careful | false retry, careful | calibration error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        cells = [
            name,
            str(row.f1),
            _percent(row.false_stop),
            _percent(row.false_retry),
            str(row.careful_f1),
            _percent(row.careful_false_stop),
            _percent(row.careful_false_retry),
            f"{row.calibration:.3f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def as_json(rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return the same as plain values."""
    return {name: asdict(row) for name, row in rows.items()}


def reliability(chances: Floats, truths: Bools) -> list[tuple[str, int, float, float]]:
    """Return for each fifth of the chance how many texts, their mean, and the share of truths."""
    bins = np.minimum((chances * 5).astype(int), 4)
    found = []
    for each in range(5):
        inside: Numbers = np.flatnonzero(bins == each)
        if len(inside):
            mean, share = float(chances[inside].mean()), float(truths[inside].mean())
            found.append((f"{each / 5:.1f}-{(each + 1) / 5:.1f}", len(inside), mean, share))
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
