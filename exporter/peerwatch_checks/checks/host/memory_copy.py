"""How fast the node's memory is copied, and whether the copy is what was copied."""

from __future__ import annotations

import os
import time
from statistics import median
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.judgement import judged, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_checks.check import Context

_PATTERN_BYTES = 1024**2
_REPEATS = 7


class MemoryCopyOptions(Options):
    """How much is copied, and how fast it must be."""

    size_bytes: int = Field(
        default=256 * 1024**2,
        ge=_PATTERN_BYTES,
        le=16 * 1024**3,
        description="What is copied; twice as much memory is taken. Larger than all caches.",
    )
    tolerance: float = Field(
        default=0.2, gt=0, lt=1, description="Share below the median that is never a fault."
    )
    floor: float | None = Field(
        default=None, gt=0, description="GB/s that a node must reach where there are no peers."
    )


def copy_memory(target: memoryview, source: memoryview) -> None:
    """Copy a block of memory."""
    target[:] = source


@register(
    "memory_copy",
    "host",
    "copies of memory by one processor, with right bits",
    failure="memory is slow (a DIMM or channel is missing, power limits) or changes bits",
    severity="low",
    seconds=3.0,
    suites=("light", "full"),
    options=MemoryCopyOptions,
)
def memory_copy(
    context: Context, *, copy: Callable[[memoryview, memoryview], None] = copy_memory
) -> Iterator[Outcome]:
    """Yield one outcome: the median of some copies."""
    options = context.options
    assert isinstance(options, MemoryCopyOptions)
    pattern = os.urandom(_PATTERN_BYTES)
    source = memoryview(bytearray(pattern * (options.size_bytes // _PATTERN_BYTES)))
    target = memoryview(bytearray(len(source)))
    # The first one maps the pages.
    copy(target, source)
    seconds = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        copy(target, source)
        seconds.append(time.perf_counter() - begun)
    # Block by block: memoryview compares item by item, and bytes copy.
    if any(
        bytes(target[start : start + _PATTERN_BYTES]) != pattern
        for start in range(0, len(target), _PATTERN_BYTES)
    ):
        text = "The copy is not what was copied. Take the node out and test its memory."
        yield Outcome("fail", text, severity="high")
        return
    peers, earlier = context.peers.get("", ()), context.earlier.get("", ())
    yield judged(
        len(source) / median(seconds) / 1e9,
        "GB/s",
        reference(peers, earlier, options.tolerance, floor=options.floor),
        what="Copying memory",
        advice="Look for missing DIMMs, corrected ECC errors, and the CPU's clock and power limit.",
    )
