"""From a model's chance and what each line adds to it: an opinion that quotes lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.retry.opinion import ModelOpinion
from peerwatch_responder.retry.text.selection import select
from peerwatch_responder.retry.text.words import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# Chosen: what a person reads at a glance.
_MOST_LINES = 3
# Words that a model knows count in full only if there are many of them: two say half as much.
# Chosen, and not tuned on what docs/retry-model.md evaluates.
_HALF_WORDS = 2


def selected(lines: Sequence[str]) -> list[str]:
    """Return the lines a model reads: those that speak of failure, or all where none does."""
    chosen = select(lines) or select([*lines, "error"])[:-1]
    return [line for line in chosen if words_of(line)]


def opinion(
    chance: float,
    effects: Sequence[float],
    lines: Sequence[str],
    words: tuple[int, int],
    name: str,
    *,
    stops_below: float,
) -> ModelOpinion:
    """Return the opinion.

    Parameters
    ----------
    chance
        That another attempt is worth it.
    effects
        What each line adds to the score, towards another attempt if positive.
    lines
        The lines the model read.
    words
        How many distinct words they have, at least one, and how many of these the model has seen.
    name
        Of the model.
    stops_below
        As of ``ModelOpinion``.
    """
    towards = 1 if chance >= 0.5 else -1
    order = sorted(range(len(lines)), key=lambda number: -towards * effects[number])
    counted = [number for number in order[:_MOST_LINES] if towards * effects[number] > 0]
    quoted = tuple(lines[number] for number in sorted(counted or order[:1]))
    count, known = words
    confidence = abs(2 * chance - 1) * known / count * known / (known + _HALF_WORDS)
    return ModelOpinion(chance, confidence, stops_below, quoted, name)
