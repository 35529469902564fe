"""Slurm's short form of many node names, such as ``gpu[1-3,07-09],login``."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product

# Nobody has so many; a range that is garbled must not fill the memory.
_MOST = 100_000
_PART = re.compile(r"\[([^\]]*)\]")


@lru_cache(maxsize=20_000)
def nodes_of(text: str) -> tuple[str, ...]:
    """Return the names; none for what Slurm writes where there are no nodes."""
    if text in {"", "None assigned", "(null)", "None"}:
        return ()
    found: list[str] = []
    for word in _words(text):
        pieces = _PART.split(word)
        # What stands in brackets is every second piece.
        choices = [_numbers(each) if n % 2 else [each] for n, each in enumerate(pieces)]
        found += ("".join(each) for each in product(*choices))
        if len(found) > _MOST:
            return tuple(found[:_MOST])
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


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not dash or not (low.isdecimal() and high.isdecimal()):
            found.append(part)
            continue
        last = min(int(high), int(low) + _MOST)
        found += (str(number).zfill(len(low)) for number in range(int(low), last + 1))
    return found
