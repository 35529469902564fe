"""How fast each of the node's CPUs computes, and whether all compute the same."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.disturbance import Disturbance
from peerwatch_checks.evaluation import evaluate, reference_for
from peerwatch_checks.least_time import LeastTime
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from peerwatch_checks.check import Context

# Chosen: a tenth of a millisecond or two, short against the time slices of the kernel.
_BLOCK = bytes(range(256)) * 512
# Blocks of a pass over one CPU, which takes some milliseconds; and passes without news.
_PARTS = 16
_PASSES = 3
# Where a CPU stays slow; on a node that nobody disturbs a tenth of it is needed. Chosen: several
# checks must end within a suite's minute.
_SECONDS = 4.0


class CpuComputeOptions(Options):
    """How long it computes, and how fast it must be."""

    tolerance: float = Field(
        default=0.2, gt=0, lt=1, description="Share below the median that is never a fault."
    )
    floor: float | None = Field(
        default=None,
        gt=0,
        description="MB/s of SHA-256 that the median CPU must reach where there are no peers.",
    )


def digest_of(block: bytes) -> bytes:
    """Return the SHA-256 of a block, by one CPU."""
    return hashlib.sha256(block).digest()


@register(
    "cpu_compute",
    "host",
    "SHA-256 on each CPU, with right bits",
    failure="the CPUs are slow (clock, power limit, heat), or one computes wrong",
    condition="slow_host",
    seconds=4.0,
    suites=("light", "full"),
    options=CpuComputeOptions,
)
def cpu_compute(
    context: Context, *, compute: Callable[[bytes], bytes] = digest_of
) -> Iterator[Outcome]:
    """Yield an outcome for all CPUs, and one for each that computes otherwise than the others."""
    options = context.options
    assert isinstance(options, CpuComputeOptions)
    against = reference_for(context, "", "MB/s", options.tolerance, floor=options.floor)
    allowed = os.sched_getaffinity(0)
    times = {cpu: LeastTime(_PASSES) for cpu in sorted(allowed)}
    digests: dict[int, set[bytes]] = {cpu: set() for cpu in times}
    disturbance = Disturbance(context)
    deadline = time.monotonic() + min(_SECONDS, context.seconds / 3)
    try:
        for cpu in itertools.cycle(times):
            os.sched_setaffinity(0, {cpu})
            times[cpu].add([_seconds(compute, digests[cpu]) for _ in range(_PARTS)])
            if cpu != max(times):
                continue
            stable = all(each.is_stable for each in times.values())
            good = against is None or against.allows(_rate(times.values()))
            if (stable and good) or time.monotonic() > deadline:
                break
    finally:
        os.sched_setaffinity(0, allowed)
    yield from _wrong(digests)
    yield evaluate(
        _rate(times.values()),
        "MB/s",
        against,
        what=f"SHA-256, median of {len(times)} CPUs",
        advice="Look at the CPU's governor, clock, temperature and power limit.",
        disturbed=disturbance.reason(),
    )


def _seconds(compute: Callable[[bytes], bytes], digests: set[bytes]) -> float:
    begun = time.perf_counter()
    digests.add(compute(_BLOCK))
    return time.perf_counter() - begun


def _rate(times: Iterable[LeastTime]) -> float:
    """Return what the median CPU does, in MB/s."""
    return _PARTS * len(_BLOCK) / median(each.seconds for each in times) / 1e6


def _wrong(digests: dict[int, set[bytes]]) -> Iterator[Outcome]:
    usual = hashlib.sha256(_BLOCK).digest()
    counts = Counter(digest for found in digests.values() for digest in found)
    if counts:
        # The CPU that runs this may be the one that computes wrong.
        usual = counts.most_common(1)[0][0]
    for cpu, found in digests.items():
        if found != {usual}:
            text = f"CPU {cpu} computes otherwise than the others. Take the node out."
            yield Outcome("fail", text, f"cpu{cpu}", severity=severity_of("wrong_results"))
