"""Which files this process holds open; other tests' threads open and close theirs meanwhile."""

from __future__ import annotations

import contextlib
from pathlib import Path


def open_below(folder: Path) -> int:
    """Return how many descriptors of this process are of files below a folder."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        # The one of this listing, or another thread's, is gone by now.
        with contextlib.suppress(OSError):
            found += entry.readlink().is_relative_to(folder.resolve())
    return found
