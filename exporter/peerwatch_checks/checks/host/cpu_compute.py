"""How fast each of the node's CPUs computes, and whether all compute the same."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.judgement import judged, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_checks.check import Context

_BLOCK = bytes(range(256)) * 4096
_REPEATS = 5


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
    severity="low",
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
    allowed = os.sched_getaffinity(0)
    rates: list[float] = []
    digests: dict[int, set[bytes]] = {}
    try:
        for cpu in sorted(allowed):
            os.sched_setaffinity(0, {cpu})
            digests[cpu] = {compute(_BLOCK)}
            begun = time.perf_counter()
            digests[cpu].update(compute(_BLOCK) for _ in range(_REPEATS))
            rates.append(_REPEATS * len(_BLOCK) / (time.perf_counter() - begun) / 1e6)
    finally:
        os.sched_setaffinity(0, allowed)
    yield from _wrong(digests)
    peers, earlier = context.peers.get("", ()), context.earlier.get("", ())
    yield judged(
        median(rates),
        "MB/s",
        reference(peers, earlier, options.tolerance, floor=options.floor),
        what=f"SHA-256, median of {len(rates)} CPUs",
        advice="Look at the CPU's governor, clock, temperature and power limit.",
    )


def _wrong(digests: dict[int, set[bytes]]) -> Iterator[Outcome]:
    usual = hashlib.sha256(_BLOCK).digest()
    counts = Counter(digest for found in digests.values() for digest in found)
    if counts:
        # The CPU that runs this may be the one that computes wrong.
        usual = counts.most_common(1)[0][0]
    for cpu, found in digests.items():
        if found != {usual}:
            text = f"CPU {cpu} computes otherwise than the others. Take the node out."
            yield Outcome("fail", text, f"cpu{cpu}", severity="high")
