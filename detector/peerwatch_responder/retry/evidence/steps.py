"""How far a job came: the steps that its log says it has finished.

Trainers write them in many forms, and a log may count several things. What rises most often is the
one that is believed; a mention of a step that does not rise is none.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Its first letter comes before what must stand before it: re looks for letters at memory speed.
_NAMED = re.compile(
    rb"(?P<name>[IiGgTtSs](?<=\b.)(?:(?<=[Ii])ter(?:ation)?|(?<=[Gg])lobal[_ ][Ss]tep"
    rb"|(?<=[Tt])rain[_ ][Ss]tep|(?<=[Ss])tep|(?<=S)TEP))"
    rb"['\"]?[ \t]{0,12}[:=#\[]?[ \t]{0,12}(?P<number>\d{1,12})(?![\d.]*\d*[ ]?(?:ms|s)\b)"
)
# tqdm: " 31/500 [00:52<13:12, 1.69s/it]"
_OF_ALL = re.compile(rb"/\d{1,12} \[\d\d?:\d\d")
_DONE = re.compile(rb"(?<!\w)\d{1,12}\Z")
_ERROR = re.compile(rb"rror|[Ff]ail|xception|[Tt]imeout|[Tt]imed out")
# Chosen: a log's 16 MiB in lines of 80 bytes.
_MOST = 200_000
# Digits, as in the expressions above.
_LONGEST_NUMBER = 12
# Fewer may be anything.
_LEAST_RISES = 2
# Chosen: the first may be of the step that was under way.
_SURVIVED_RISES = 2


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps in one log.

    Parameters
    ----------
    first, last
        The lowest and the highest; None: the log counts none.
    rises
        Where in the log the count rose, in bytes, ascending.
    """

    first: int | None = None
    last: int | None = None
    rises: tuple[int, ...] = ()

    def survived(self, offset: int) -> bool:
        """Whether the job went on for steps after a place of this log."""
        # Others may still finish the step, and the next, of which one rank has died.
        return len(self.rises) - bisect_right(self.rises, offset) >= _SURVIVED_RISES


def steps_in(text: bytes, start: int = 0) -> Steps:
    """Return the steps that a part of a log counts.

    Parameters
    ----------
    text
        The part.
    start
        Where it begins in the log, in bytes.
    """
    found: dict[bytes, list[tuple[int, int]]] = {}
    for name, place, number in islice(chain(_named(text), _bars(text)), _MOST):
        known = found.setdefault(name, [])
        if known and known[-1][1] == number:
            continue
        end = text.find(b"\n", place)
        if _ERROR.search(text, place, end if end >= 0 else len(text)):
            continue
        known.append((place + start, number))
    risen = [_risen(each) for each in found.values() if each]
    best = max(risen, key=lambda each: len(each.rises), default=Steps())
    return best if len(best.rises) >= _LEAST_RISES else Steps()


def _named(text: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield which count, where, and how far, of counts that have a name."""
    for match in _NAMED.finditer(text):
        name = match["name"].lower().replace(b" ", b"_")
        yield name, match.start(), int(match["number"])


def _bars(text: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the same of progress bars."""
    for match in _OF_ALL.finditer(text):
        done = _DONE.search(text, max(0, match.start() - _LONGEST_NUMBER), match.start())
        if done is not None:
            yield b"bar", done.start(), int(done[0])


def joined(parts: list[Steps]) -> Steps:
    """Return the steps of parts that follow one another."""
    known = [each for each in parts if each.last is not None]
    if not known:
        return Steps()
    return Steps(
        min(each.first for each in known if each.first is not None),
        max(each.last for each in known if each.last is not None),
        tuple(rise for each in known for rise in each.rises),
    )


def _risen(counts: list[tuple[int, int]]) -> Steps:
    numbers = [number for _, number in counts]
    highest = counts[0][1]
    rises = []
    for offset, number in counts[1:]:
        if number > highest:
            rises.append(offset)
            highest = number
    return Steps(min(numbers), max(numbers), tuple(rises))
