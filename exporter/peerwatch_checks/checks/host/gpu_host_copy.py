"""How fast each GPU exchanges data with the host's memory, both ways, over PCIe or NVLink-C2C."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.accelerators.copying import CopySpeed, copy_speed, outcomes
from peerwatch_checks.accelerators.devices import CPU, MEASURING_SHARE, Device, gpus, released
from peerwatch_checks.check import Options, Outcome, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from peerwatch_checks.check import Context


class GpuHostCopyOptions(Options):
    """Size, and how far below its peers a GPU may be."""

    megabytes: int = Field(default=512, ge=1, description="Size of the copy, in MiB.")
    repeats: int = Field(default=10, ge=1, description="How often it is timed.")
    tolerance: float = Field(
        default=0.10, gt=0, lt=1, description="Share below the median of peers that is no fault."
    )


@register(
    "gpu_host_copy",
    "host",
    "copies between pinned host memory and each GPU, both ways: bandwidth, and the same bits",
    failure="a PCIe link of low width or generation, ACS or IOMMU in the way, the wrong NUMA node",
    condition="pcie_link_errors",
    seconds=4.0,
    suites=("light", "full"),
    needs=("gpu", "torch"),
    timeout_seconds=60.0,
    options=GpuHostCopyOptions,
)
def gpu_host_copy(
    context: Context,
    *,
    devices: Sequence[Device] | None = None,
    copy: Callable[[Any, Any], Any] | None = None,
) -> Iterator[Outcome]:
    """Yield an outcome for each GPU and direction.

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
    assert isinstance(options, GpuHostCopyOptions)
    chosen = gpus(context) if devices is None else list(devices)
    each = MEASURING_SHARE * context.seconds / (2 * len(chosen))
    speeds: list[CopySpeed] = []
    for device in chosen:
        for direction, ends in (("from host", (CPU, device)), ("to host", (device, CPU))):
            with released():
                speed = copy_speed(
                    *ends,
                    device,
                    size=options.megabytes << 20,
                    repeats=options.repeats,
                    deadline=time.monotonic() + each,
                    copy=copy,
                )
            name = f"{device.label} {direction}"
            speeds.append(
                CopySpeed(name, f"{device.model} {direction}", speed.gigabytes, speed.equal)
            )
    yield from outcomes(
        speeds,
        context,
        options.tolerance,
        "host",
        what="Copying between host and GPU",
        advice="Look at the width and generation of its PCIe link, ACS, IOMMU and NUMA binding.",
    )
