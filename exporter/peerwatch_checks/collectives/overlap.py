"""Whether communication proceeds while a device computes, as training needs it to.

A job hides its collectives behind the backward pass. Where both want the same thing, a core of the
host, the PCIe lanes, the memory's bandwidth, or where the library waits for the stream, they take
their turns instead: each alone is as fast as anywhere, and the step takes their sum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peerwatch_checks.accelerators.devices import WARM_UPS, Device, synchronize

if TYPE_CHECKING:
    from collections.abc import Iterator

# Rows and columns, chosen: large enough to fill a GPU, small enough that a CPU takes milliseconds.
_GPU_ROWS, _CPU_ROWS = 4096, 256
# Chosen: a product takes more than 10 microseconds, so that these take more than a second.
_MOST_PRODUCTS = 100_000


@dataclass(frozen=True, slots=True)
class OverlapSeconds:
    """What computing and communicating take, each the shortest of some runs.

    The shortest, because whatever else runs on the node only makes a run longer.

    Parameters
    ----------
    compute, communication
        Each alone; seconds.
    both
        Begun together, until both have ended; seconds.
    """

    compute: float
    communication: float
    both: float


def overlap_ratio(seconds: OverlapSeconds) -> float:
    """Return 1 where the shorter one is hidden wholly, about 0.5 where they take their turns.

    It is the longer one alone over both together, and never more than 1.
    """
    if seconds.both <= 0:
        return 0.0
    return min(1.0, max(seconds.compute, seconds.communication) / seconds.both)


def timed_overlap(
    compute: Callable[[int], object],
    begin: Callable[[], Callable[[], object]],
    wait: Callable[[], object],
    *,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> OverlapSeconds:
    """Time computing and communicating, alone and together.

    Parameters
    ----------
    compute
        Does a unit of computing as often as it is told.
    begin
        Begins the communication and returns what waits for its end.
    wait
        Waits until the device has done all that it was given.
    repeats
        How often each is timed; the ranks of a group need the same number.
    clock
        Seconds.
    """

    def shortest(work: Callable[[], object]) -> float:
        def durations() -> Iterator[float]:
            for turn in range(WARM_UPS + repeats):
                start = clock()
                work()
                wait()
                if turn >= WARM_UPS:
                    yield clock() - start

        return min(durations())

    def communicate() -> None:
        begin()()

    communication = shortest(communicate)
    unit = shortest(lambda: compute(1))
    # As long as the communication: then what is not hidden shows most.
    count = max(1, min(_MOST_PRODUCTS, round(communication / unit) if unit > 0 else 1))

    def both() -> None:
        ended = begin()
        compute(count)
        ended()

    return OverlapSeconds(shortest(lambda: compute(count)), communication, shortest(both))


def overlap_seconds(device: Device, *, size: int, repeats: int) -> OverlapSeconds:
    """Time products of matrices and an all-reduce in the default group; all ranks call it together.

    Parameters
    ----------
    device
        This rank's.
    size
        Bytes of each rank's buffer.
    repeats
        As for ``timed_overlap``.
    """
    import torch  # noqa: PLC0415 - only what measures loads it
    from torch import distributed  # noqa: PLC0415

    rows = _GPU_ROWS if device.is_gpu else _CPU_ROWS
    precision = torch.bfloat16 if device.is_gpu else torch.float32
    matrix = torch.ones(rows, rows, device=device.name, dtype=precision)
    product = torch.empty_like(matrix)
    buffer = torch.zeros(max(1, size // 4), device=device.name)

    def compute(count: int) -> None:
        for _ in range(count):
            torch.mm(matrix, matrix, out=product)

    def begin() -> Callable[[], object]:
        work: Any = distributed.all_reduce(buffer, async_op=True)
        ended: Callable[[], object] = work.wait
        return ended

    return timed_overlap(compute, begin, lambda: synchronize(device), repeats=repeats)
