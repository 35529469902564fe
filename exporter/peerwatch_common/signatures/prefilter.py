"""Finds the lines that may match a signature, in a block of many lines, at memory speed.

A healthy log has no error in it; what counts is how fast that is known. Three things make it fast.
Digits, signs, spaces and small vowels are taken out of a block first, which leaves a third of it:
what contains ``CUDA error`` contains ``CUDArrr`` then. A log repeats itself: without its numbers,
the line of one step is that of the next, and what was searched once in vain is not searched again.
And parts that many signatures share are searched for once. A part that healthy logs are full of
would select too many lines: which these are is known from a sample of healthy logs.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from peerwatch_common.signatures.signature import Texts

HEALTHY = Path(__file__).parent / "healthy.txt"
_KEPT = b"\nABCDEFGHIJKLMNOPQRSTUVWXYZbcdfghjklmnpqrstvwxyz"
_DELETED = bytes(set(range(256)) - {*_KEPT, ord("\r")})
# Progress bars return to the start of their line for every update: as good as a new line.
_TABLE = bytes.maketrans(b"\r", b"\n")
# Chosen: shorter parts stand in most lines (pattern.py), and longer ones hardly select fewer.
_SHORTEST = 3
_LONGEST = 8
# What costs how much, in nanoseconds per byte of a log: searching for a text (at 5 GB/s), and
# looking at a line. Of 500 to 6,000 for a line, up to 1,000 made the public logs of
# docs/benchmarks.md fastest.
_SEARCH = 0.2
_LINE = 1000.0
# Reduced lines that were searched in vain. Chosen: 4 MiB at most, in most logs a hundredth of that.
_MOST_PASSED = 8192
_LONGEST_PASSED = 400


def reduced(text: bytes) -> bytes:
    """Return a text without digits, signs, spaces and small vowels; ends of lines are newlines."""
    return text.translate(_TABLE, _DELETED)


class TextTable:
    """Knows which patterns a line may match by the fixed texts of each.

    Parameters
    ----------
    literals
        For each pattern: a line must contain all texts of one tuple.
    """

    def __init__(self, literals: Iterable[Iterable[Texts]]) -> None:
        self._texts = [[_longest_first(texts) for texts in several] for several in literals]

    def within(self, line: bytes, patterns: Iterable[int]) -> frozenset[int]:
        """Return those of some patterns whose texts a line contains."""
        found = []
        for number in patterns:
            for text, others in self._texts[number]:
                # Nearly every line lacks the longest text of nearly every pattern.
                if text in line and all(other in line for other in others):
                    found.append(number)
                    break
        return frozenset(found)


def _longest_first(texts: Texts) -> tuple[bytes, Texts]:
    longest = max(texts, key=len)
    return longest, tuple(text for text in texts if text != longest)


class Prefilter:
    """Searches blocks for the fixed texts of signatures.

    Parameters
    ----------
    literals
        For each pattern: a line must contain all texts of one tuple.
    healthy
        What healthy logs contain; the sample that ships by default.

    Attributes
    ----------
    triggers
        What is searched for in reduced blocks; each pattern's reduced texts contain one of them.
    """

    def __init__(self, literals: Sequence[Iterable[Texts]], healthy: bytes | None = None) -> None:
        sample = HEALTHY.read_bytes() if healthy is None else healthy
        texts = [[tuple(map(reduced, each)) for each in several] for several in literals]
        self._texts = TextTable(texts)
        # A space between the texts: what is reduced has none, so that no part spans two of them.
        joined = [[b" ".join(each) for each in several] for several in texts]
        self.triggers = tuple(_cover({text for each in joined for text in each}, reduced(sample)))
        self._patterns = [
            frozenset(
                number
                for number, each in enumerate(joined)
                if any(trigger in text for text in each)
            )
            for trigger in self.triggers
        ]
        self._passed: set[bytes] = set()

    def lines(self, block: bytes) -> dict[int, frozenset[int]]:
        """Return the numbers of the lines that may match, and of the patterns each may match.

        Parameters
        ----------
        block
            Whole lines, separated by LF or CR.
        """
        lines = reduced(block).split(b"\n")
        new = set(lines).difference(self._passed)
        if not new:
            return {}
        selected = self._selected(new)
        self._remember(new.difference(selected))
        if not selected:
            return {}
        return {number: selected[line] for number, line in enumerate(lines) if line in selected}

    def _selected(self, lines: Collection[bytes]) -> dict[bytes, frozenset[int]]:
        """Return which of some reduced lines may match, and the patterns they may match."""
        triggered: dict[bytes, frozenset[int]] = {}
        text = b"\n".join(lines)
        for trigger, patterns in zip(self.triggers, self._patterns, strict=True):
            place = text.find(trigger)
            while place >= 0:
                start, end = text.rfind(b"\n", 0, place) + 1, text.find(b"\n", place)
                line = text[start:] if end < 0 else text[start:end]
                triggered[line] = triggered.get(line, frozenset()) | patterns
                place = -1 if end < 0 else text.find(trigger, end)
        found = {line: self._texts.within(line, of) for line, of in triggered.items()}
        return {line: patterns for line, patterns in found.items() if patterns}

    def _remember(self, lines: Iterable[bytes]) -> None:
        if len(self._passed) > _MOST_PASSED:
            self._passed.clear()
        self._passed.update([line for line in lines if len(line) <= _LONGEST_PASSED])


def _cover(literals: set[bytes], sample: bytes) -> Iterator[bytes]:
    """Return texts such that each literal contains one of them, at little cost.

    Greedily: next is always the text with the least cost for each literal it adds.
    """
    holders: dict[bytes, set[bytes]] = {}
    for literal in literals:
        for part in {part for text in literal.split() for part in _parts(text)}:
            holders.setdefault(part, set()).add(literal)
    costs = {part: _SEARCH + _LINE * sample.count(part) / len(sample) for part in holders}

    def rank(part: bytes, held: int) -> tuple[float, int, bytes]:
        # Of those that cost as much the longest: it selects fewest lines.
        return costs[part] / held, -len(part), part

    left = set(literals)
    waiting = [rank(part, len(held)) for part, held in holders.items()]
    heapify(waiting)
    while left:
        *_, best = waiting[0]
        holders[best] &= left
        if not holders[best]:
            heappop(waiting)
        elif waiting[0] < (now := rank(best, len(holders[best]))):
            # Others have taken some of its literals since: it costs more for each, never less.
            heapreplace(waiting, now)
        else:
            yield best
            left -= holders[best]


def _parts(literal: bytes) -> Iterator[bytes]:
    longest = min(_LONGEST, len(literal))
    for length in range(min(_SHORTEST, longest), longest + 1):
        for start in range(len(literal) - length + 1):
            yield literal[start : start + length]
