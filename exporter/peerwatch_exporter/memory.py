"""Keeps glibc from reserving memory for every thread."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8


def limit_arenas(count: int) -> bool:
    """Let all threads share so many heaps; return whether the C library knows how.

    glibc gives threads heaps of their own, up to eight per CPU, and freed memory of one is no use
    to the others. A node has hundreds of CPUs and the exporter some thirty threads.

    Parameters
    ----------
    count
        Heaps at most.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        # musl has one heap anyway.
        return False
    return bool(mallopt(_M_ARENA_MAX, count))
