"""Does the same for every metric of a training job, in one thread or in several.

Metrics share nothing before they are assessed together, and the arithmetic releases the interpreter
lock, so what comes out is the same to the last bit whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

from peerwatch_detector.frame import JobFrame

Item = TypeVar("Item")
Result = TypeVar("Result")

# Nodes, or GPUs, of a job from which another thread brings more than it costs: below, much of the
# work is Python's own, which takes turns.
_LEAST_UNITS = 2500


def worthwhile(threads: int, frames: Iterable[JobFrame]) -> int:
    """Return in how many threads to evaluate a job: those asked for, or 1 if the job is small.

    Parameters
    ----------
    threads
        As configured.
    frames
        The job's samples.
    """
    units = max((len(frame.nodes) * max(1, len(frame.gpus)) for frame in frames), default=0)
    return threads if units >= _LEAST_UNITS else 1


def each(work: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """Return what ``work`` makes of every item, in their order.

    Parameters
    ----------
    work
        Must be safe to call for several items at a time.
    items
        What to work on.
    threads
        How many items at a time; 1 stays in the caller's thread.

    Raises
    ------
    Exception
        What the first item raised of those that failed, when all have been tried; in one thread
        the items after it are not.
    """
    if threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    futures = [_pool(threads).submit(work, item) for item in items]
    # Nobody may still be at work on a job's memory when an error ends its cycle.
    wait(futures)
    return [future.result() for future in futures]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="detect")
