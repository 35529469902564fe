"""Moves a counter file at a constant rate, so that every wrong second of a reader shows.

python steady_counter.py FILE PER_SECOND
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

# The value in the file is never older than this.
_PERIOD_SECONDS = 0.002


def main(path: str, per_second: float) -> None:
    """Move the counter until the process is ended."""
    with contextlib.suppress(OSError):
        os.nice(-10)
    start = time.time()
    descriptor = os.open(path, os.O_WRONLY)
    while True:
        # One write of one length: a reader never sees half of a value.
        os.pwrite(descriptor, b"%019d\n" % int((time.time() - start) * per_second), 0)
        time.sleep(_PERIOD_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
