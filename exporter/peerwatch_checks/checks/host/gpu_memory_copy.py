"""How fast each GPU copies within its own memory, and whether the copy is the same.

A GPU whose memory is being remapped or corrects errors all the time is slow here first.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.accelerators.copying import CopySpeed, copy_speed, outcomes
from peerwatch_checks.accelerators.devices import MEASURING_SHARE, Device, gpus, released
from peerwatch_checks.check import Options, Outcome, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from peerwatch_checks.check import Context


class GpuMemoryCopyOptions(Options):
    """Size, and how far below its peers a GPU may be."""

    megabytes: int = Field(default=1024, ge=1, description="Size of the copy, in MiB.")
    repeats: int = Field(default=20, ge=1, description="How often it is timed.")
    tolerance: float = Field(
        default=0.05, gt=0, lt=1, description="Share below the median of peers that is no fault."
    )


@register(
    "gpu_memory_copy",
    "host",
    "copies within each GPU's memory: bandwidth, and the same bits",
    failure="memory that is remapped, corrects errors or has low clocks",
    condition="slow_gpu_memory",
    seconds=3.0,
    suites=("light", "full"),
    needs=("gpu", "torch"),
    timeout_seconds=60.0,
    options=GpuMemoryCopyOptions,
)
def gpu_memory_copy(
    context: Context,
    *,
    devices: Sequence[Device] | None = None,
    copy: Callable[[Any, Any], Any] | None = None,
) -> Iterator[Outcome]:
    """Yield an outcome for each GPU.

    Parameters
    ----------
    context
        Node, settings, time.
    devices
        What to test; None: the GPUs.
    copy
        Copies a source tensor to a target; None: torch's own.
    """
    options = context.options
    assert isinstance(options, GpuMemoryCopyOptions)
    chosen = gpus(context) if devices is None else list(devices)
    each = MEASURING_SHARE * context.seconds / len(chosen)
    speeds: list[CopySpeed] = []
    for device in chosen:
        with released():
            speed = copy_speed(
                device,
                device,
                device,
                size=options.megabytes << 20,
                repeats=options.repeats,
                deadline=time.monotonic() + each,
                copy=copy,
            )
        # What is read and what is written both pass through the memory.
        speeds.append(CopySpeed(device.label, device.model, 2 * speed.gigabytes, speed.equal))
    yield from outcomes(
        speeds,
        context,
        options.tolerance,
        "memory",
        what="Copying memory",
        advice="Look at its ECC errors, remapped rows and memory clock.",
    )
