"""Selects the lines of a failed job's log that speak of failure, and those around them.

Sibylla takes lines with keywords and up to five lines around each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# As in Sibylla's paper.
AROUND = 5
# Chosen: a line is read so far; what follows in it is a table or a tensor that was printed.
LONGEST_LINE = 2048
# Of a log that speaks of failure all over: its first lines have the cause, its last ones the end.
# Chosen: six places of a failure, with the lines around each.
_MOST_LINES = 64

_KEYWORDS = re.compile(
    r"error|exception|traceback|fail|fatal|abort|panic|assert|warn|critical|exit(?:ed|code| code)"
    r"|kill|signal|segfault|segmentation|core dumped|terminat|cancel|preempt|evict|lost|down\b"
    r"|denied|refused|reset|closed|broken|time(?:d)?[ -]?out|timeout|unreachable|unavailable"
    r"|not (?:found|responding|ready|available|enough)|no (?:such|space|route)|missing|invalid"
    r"|unknown|unexpected|unsupported|cannot|can't|could ?n[o']t|unable|out of|oom|exceed|limit"
    r"|corrupt|mismatch|overflow|nan\b|inf\b|stuck|hang|hung|blocked|stale|locked|throttl|xid"
    r"|illegal|violation|fault|undefined|read-only|degraded|unhealthy|retry|rate",
    re.IGNORECASE,
)


def select(lines: Sequence[str], around: int = AROUND) -> list[str]:
    """Return the lines with words of failure and those around them, in their order.

    Parameters
    ----------
    lines
        Of one job, as ``RetryModel.assess`` gets them.
    around
        So many lines before and after one with a keyword are taken too.

    Returns
    -------
    list of str
        At most 64, empty lines left out; nothing if no line has a keyword.
    """
    hits = [number for number, line in enumerate(lines) if _KEYWORDS.search(line[:LONGEST_LINE])]
    wanted = sorted(
        {
            near
            for hit in hits
            for near in range(max(0, hit - around), min(len(lines), hit + around + 1))
            if lines[near].strip()
        }
    )
    if len(wanted) > _MOST_LINES:
        wanted = wanted[: _MOST_LINES // 2] + wanted[-_MOST_LINES // 2 :]
    return [lines[number][:LONGEST_LINE] for number in wanted]
