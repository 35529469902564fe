"""How this process handles memory: few heaps, and few searches for what is no longer used."""

from __future__ import annotations

import ctypes
import gc

# M_ARENA_MAX of glibc's malloc.h.
_M_ARENA_MAX = -8
# Values of the last snapshot come and go by reference counts; only cycles, such as an exception
# and its traceback, need the collector. Chosen: many times Python's own 700.
_NEW_OBJECTS = 20_000


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


def search_rarely() -> None:
    """Leave what was loaded up to now out of every search for unused cycles, and search rarely.

    With Python's own settings the searches take as much CPU time as some collectors.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
