"""Files whose names match a pattern, without following every link and counting every file."""

from __future__ import annotations

import glob
import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECURSIVE = "/**/"
# Of one pattern: a directory of a million files must not keep the others from being read. As many
# as ``logs.max_files`` may allow, in a quarter as many directories.
MOST_PATHS = 20_000
_MOST_DIRECTORIES = 5000


def matching(pattern: str) -> Iterator[str]:
    """Return the paths that match a pattern, each once; about ``MOST_PATHS`` at most.

    Parameters
    ----------
    pattern
        An absolute path with ``*``, ``?``, ``[...]``, and ``**`` for any directories below, those
        that links lead to left out: links may lead round in circles.
    """
    if pattern.endswith("/**"):
        pattern += "/*"
    return itertools.islice(dict.fromkeys(_paths(pattern)), MOST_PATHS)


def _paths(pattern: str) -> Iterator[str]:
    head, found, rest = pattern.partition(_RECURSIVE)
    if not found:
        yield from itertools.islice(glob.iglob(pattern), MOST_PATHS + 1)  # noqa: PTH207 - hot path
        return
    left = MOST_PATHS
    for directory in itertools.islice(_directories(head), _MOST_DIRECTORIES):
        for path in _paths(f"{glob.escape(directory.rstrip('/'))}/{rest}"):
            yield path
            left -= 1
            if left < 0:
                return


def _directories(head: str) -> Iterator[str]:
    """Yield the directories that match, and all below them that are not hidden."""
    for top in glob.iglob(head or "/"):  # noqa: PTH207 - hot path
        for directory, below, _ in os.walk(top):
            below[:] = sorted(name for name in below if not name.startswith("."))
            yield directory
