"""Sets of ranks in Slurm's notation: ``0-3,8``, and ``0-28:4`` for every fourth."""

from __future__ import annotations

import re

_PART = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")
# Ten times the largest training jobs.
MOST_RANKS = 1_000_000


def parse_members(text: str) -> list[range]:
    """Return the ranks as ranges.

    Raises
    ------
    ValueError
        If the text is no such set.
    """
    found = []
    for part in text.split(",") if text else ():
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"members {text!r:.80}: {part!r:.40} is no range like 0-3 or 0-28:4")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step == 0:
            raise ValueError(f"members {text!r:.80}: the range {part!r:.40} is empty")
        found.append(range(first, last + 1, step))
    if sum(map(len, found)) > MOST_RANKS:
        raise ValueError(f"members {text!r:.80} are more than {MOST_RANKS} ranks")
    return found
