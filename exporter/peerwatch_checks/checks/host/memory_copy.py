"""How fast the node's memory is copied, and whether the copy is what was copied."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.check import Options, Outcome, register
from peerwatch_checks.disturbance import Disturbance
from peerwatch_checks.evaluation import evaluate, reference_for
from peerwatch_checks.least_time import least_seconds
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_checks.check import Context

# Chosen: made at once, and repeated to the size that is copied.
_PATTERN_BYTES = 1024**2
# Chosen: a fraction of a millisecond; all others pass through the caches before it is copied again.
_PART_BYTES = 4 * 1024**2
# Where copies stay slow; on a node that nobody disturbs a tenth of it is needed: as in
# cpu_compute.py.
_SECONDS = 4.0


class MemoryCopyOptions(Options):
    """How much is copied, and how fast it must be."""

    size_bytes: int = Field(
        default=256 * 1024**2,
        ge=_PATTERN_BYTES,
        le=16 * 1024**3,
        description="What is copied; twice as much memory is taken. Larger than all caches.",
    )
    tolerance: float = Field(
        default=0.3, gt=0, lt=1, description="Share below the median that is never a fault."
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
    condition="slow_host",
    seconds=3.0,
    suites=("light", "full"),
    options=MemoryCopyOptions,
)
def memory_copy(
    context: Context, *, copy: Callable[[memoryview, memoryview], None] = copy_memory
) -> Iterator[Outcome]:
    """Yield one outcome: the least time of each part over some copies of all."""
    options = context.options
    assert isinstance(options, MemoryCopyOptions)
    pattern = os.urandom(_PATTERN_BYTES)
    # As bytes: an array of its own would be one more copy of all.
    source = memoryview(pattern * (options.size_bytes // _PATTERN_BYTES))
    target = memoryview(bytearray(len(source)))
    against = reference_for(context, "", "GB/s", options.tolerance, floor=options.floor)
    starts = range(0, len(source), _PART_BYTES)

    def one_pass() -> list[float]:
        return [
            _seconds(copy, target[s : s + _PART_BYTES], source[s : s + _PART_BYTES]) for s in starts
        ]

    def rate(seconds: float) -> float:
        return len(source) / seconds / 1e9

    disturbance = Disturbance(context)
    # The first one maps the pages.
    one_pass()
    seconds = least_seconds(
        one_pass,
        within=min(_SECONDS, context.seconds / 3),
        enough=lambda taken: against is None or against.allows(rate(taken)),
    )
    # Block by block: memoryview compares item by item, and bytes copy.
    if any(
        bytes(target[start : start + _PATTERN_BYTES]) != pattern
        for start in range(0, len(target), _PATTERN_BYTES)
    ):
        text = "The copy is not what was copied. Take the node out and test its memory."
        yield Outcome("fail", text, severity=severity_of("wrong_results"))
        return
    yield evaluate(
        rate(seconds),
        "GB/s",
        against,
        what="Copying memory",
        advice="Look for missing DIMMs, corrected ECC errors, and the CPU's clock and power limit.",
        disturbed=disturbance.reason(),
    )


def _seconds(
    copy: Callable[[memoryview, memoryview], None], target: memoryview, source: memoryview
) -> float:
    begun = time.perf_counter()
    copy(target, source)
    return time.perf_counter() - begun
