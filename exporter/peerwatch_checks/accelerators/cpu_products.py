"""Products of matrices on each CPU, by numpy: how fast, and with which bits."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from peerwatch_checks.accelerators.devices import SEED, Device
from peerwatch_checks.least_time import LeastTime, undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PRECISIONS = ("float32", "float64")
# Passes without news: as in cpu_compute.py.
_PASSES = 3
# A thread for each CPU would measure all of them at once, and run on others than the one to test.
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")


@dataclass(slots=True)
class CpuProduct:
    """What one CPU made of one product.

    Parameters
    ----------
    cpu
        Its number.
    time
        How long a product takes.
    checksums
        Sums of the bits of all results; one if they were always the same.
    """

    cpu: int
    time: LeastTime = field(default_factory=lambda: LeastTime(_PASSES))
    checksums: set[int] = field(default_factory=set)


def cpu_products(
    size: int,
    seconds: float,
    result: Callable[[Device, Any], Any],
    enough: Callable[[str, float], bool],
) -> dict[str, list[CpuProduct]]:
    """Return what each CPU that may be used makes of the same products, by precision.

    Parameters
    ----------
    size
        Rows and columns.
    seconds
        Time after which no pass over all CPUs is begun; two are made at least.
    result
        What a device made of a product, before its bits are summed.
    enough
        Whether so many GFLOP/s in a precision are as expected; while they are not, and until then,
        it goes on: what others disturbed gets better, and what is slow does not.
    """
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    import numpy as np  # noqa: PLC0415 - only this needs it

    generator = np.random.default_rng(SEED)
    allowed = os.sched_getaffinity(0)
    found = {name: [CpuProduct(cpu) for cpu in sorted(allowed)] for name in PRECISIONS}
    factors = {
        name: [generator.standard_normal((size, size)).astype(name) for _ in range(2)]
        for name in PRECISIONS
    }
    deadline = time.monotonic() + seconds
    try:
        for turn in itertools.count(1):
            for name, each in itertools.product(PRECISIONS, range(len(allowed))):
                _multiply(found[name][each], factors[name], result)
            stable = all(each.time.is_stable for same in found.values() for each in same)
            good = all(enough(name, gigaflops(size, same)) for name, same in found.items())
            if turn > 1 and ((stable and good) or time.monotonic() > deadline):
                return found
    finally:
        os.sched_setaffinity(0, allowed)
    raise AssertionError("It counts without end.")


def gigaflops(size: int, products: Iterable[CpuProduct]) -> float:
    """Return what the median CPU does, in GFLOP/s."""
    return 2 * size**3 / median(each.time.seconds for each in products) / 1e9


def checksum(matrix: Any) -> int:  # noqa: ANN401 - an array
    """Return the sum of an array's bits, taken as integers of its element's width."""
    import numpy as np  # noqa: PLC0415 - only this needs it

    whole = np.ascontiguousarray(matrix).view(f"i{matrix.itemsize}")
    # Beyond 64 bits the sum wraps, and still changes with every bit.
    return int(whole.sum(dtype=np.int64))


def _multiply(
    product: CpuProduct,
    factors: Sequence[Any],
    result: Callable[[Device, Any], Any],
) -> None:
    os.sched_setaffinity(0, {product.cpu})
    begun = undisturbed()
    made = factors[0] @ factors[1]
    product.time.add([undisturbed() - begun])
    product.checksums.add(checksum(result(Device("cpu", f"cpu {product.cpu}", "cpu"), made)))
