"""Slurm's short form of many node names, such as ``gpu[1-3,07-09],login``."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice, product

# Nobody has so many, nor so long ones; a text that is garbled must not fill the memory. Chosen:
# several times the nodes that Slurm is known to run, a DNS name (255), and eight ranges in a name.
_MOST = 100_000
_LONGEST_NAME = 255
_MOST_PIECES = 17
_DIGITS = re.compile(r"[0-9]{1,15}")
_PART = re.compile(r"\[([^\]]*)\]")


@lru_cache(maxsize=20_000)
def nodes_of(text: str) -> tuple[str, ...]:
    """Return the names; none for what Slurm writes where there are no nodes."""
    if text in {"", "None assigned", "(null)", "None"}:
        return ()
    return first_nodes_of(text, _MOST)


def first_nodes_of(text: str, most: int) -> tuple[str, ...]:
    """Return the first names of a list that may be anything, and is not kept."""
    found: list[str] = []
    for word in _words(text):
        pieces = _PART.split(word)
        if len(pieces) > _MOST_PIECES:
            continue
        # What stands in brackets is every second piece.
        choices = [_numbers(each, most) if n % 2 else [each] for n, each in enumerate(pieces)]
        if sum(max(map(len, each), default=0) for each in choices) > _LONGEST_NAME:
            continue
        # Two ranges are all their pairs, and some pairs fill any memory.
        found += islice(map("".join, product(*choices)), most - len(found))
        if len(found) >= most:
            break
    return tuple(found)


def _words(text: str) -> list[str]:
    """Split at commas outside brackets."""
    words, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            words.append(text[start:place])
            start = place + 1
    return [*words, text[start:]]


def _numbers(text: str, most: int) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not dash or not (_DIGITS.fullmatch(low) and _DIGITS.fullmatch(high)):
            found.append(part)
        else:
            last = min(int(high), int(low) + most - len(found) - 1)
            found += (str(number).zfill(len(low)) for number in range(int(low), last + 1))
        if len(found) >= most:
            break
    return found
