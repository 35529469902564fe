"""Finds the lines that may match a signature, in a block of many lines, at memory speed.

A healthy log has no error in it. Searching it for every signature's fixed text would cost most of
the time there is; texts that many signatures share, such as ``CUDA error``, are searched for once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Parts of words that healthy logs are full of: a text that stands in one selects too many lines.
_COMMON = (
    b" iteration consumed samples elapsed time per iteration (ms) learning rate global batch size "
    b" lm loss scale grad norm number of skipped iterations number of nan iterations epoch steps "
    b" throughput tokens per second validation evaluation accuracy perplexity checkpoint saved "
    b" successfully loading initialized initializing process group world size using device memory "
    b" NCCL INFO Channel via P2P NET/IB NET/Socket Connected all rings trees comm nranks Init "
    b" COMPLETE [INFO] [WARNING] [Rank [rank0]: [default0]: : WARNING: UserWarning: warnings.warn("
    b" torch.distributed DeepSpeed Megatron optimizer partition parameters version deprecated "
)
_SHORTEST = 4
_LONGEST = 12


class Prefilter:
    """Searches blocks for the fixed texts of signatures.

    Parameters
    ----------
    literals
        For each pattern, texts of which a line must contain at least one.

    Attributes
    ----------
    triggers
        What is searched for; each pattern's texts contain one of them.
    """

    def __init__(self, literals: Sequence[Iterable[bytes]]) -> None:
        wanted = {literal for each in literals for literal in each}
        self.triggers = tuple(_cover(wanted))
        self._patterns = [
            frozenset(
                number
                for number, each in enumerate(literals)
                if any(trigger in literal for literal in each)
            )
            for trigger in self.triggers
        ]

    def lines(self, block: bytes) -> list[tuple[int, set[int]]]:
        """Return the start of each line that may match, in order, and which patterns it may match.

        Parameters
        ----------
        block
            Whole lines, separated by newlines.
        """
        found: dict[int, set[int]] = {}
        find, line_start = block.find, block.rfind
        for trigger, patterns in zip(self.triggers, self._patterns, strict=True):
            place = find(trigger)
            while place >= 0:
                start = line_start(b"\n", 0, place) + 1
                found.setdefault(start, set()).update(patterns)
                end = find(b"\n", place)
                if end < 0:
                    break
                place = find(trigger, end)
        return sorted(found.items())


def _cover(literals: set[bytes]) -> Iterator[bytes]:
    """Return few short texts such that each literal contains one of them, greedily."""
    holders: dict[bytes, set[bytes]] = {}
    for literal in literals:
        for part in _parts(literal):
            holders.setdefault(part, set()).add(literal)
    left = set(literals)
    while left:
        # Of those that cover as many, the longest: searching is faster the longer a text is.
        best = max(holders, key=lambda part: (len(holders[part] & left), len(part), part))
        if len(holders[best] & left) <= 1:
            yield from sorted(left)
            return
        left -= holders[best]
        yield best


def _parts(literal: bytes) -> Iterator[bytes]:
    for length in range(_SHORTEST, min(_LONGEST, len(literal)) + 1):
        for start in range(len(literal) - length + 1):
            part = literal[start : start + length]
            if part not in _COMMON:
                yield part
