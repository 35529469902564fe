"""How fast each GPU copies to each other one of the node: the matrix, and what it names.

A GPU all of whose row or column is low is named itself, two that are only slow with each other as
a link.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_checks.accelerators.copying import copy_speed
from peerwatch_checks.accelerators.devices import MEASURING_SHARE, Device, gpus, released
from peerwatch_checks.accelerators.floors import floor_of
from peerwatch_checks.check import Options, Outcome, Skip, register
from peerwatch_checks.pairs.naming import Suspect, name_suspects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from peerwatch_checks.check import Context
    from peerwatch_checks.pairs.schedule import Pair


class GpuPeerCopyOptions(Options):
    """Size, and how far below the others a pair may be."""

    megabytes: int = Field(default=256, ge=1, description="Size of the copy, in MiB.")
    repeats: int = Field(default=5, ge=1, description="How often it is timed.")
    tolerance: float = Field(
        default=0.10,
        gt=0,
        lt=1,
        description="Share below the healthy level of this node that is no fault.",
    )


@register(
    "gpu_peer_copy",
    "host",
    "copies between all pairs of GPUs of the node, both ways: bandwidth, and the same bits",
    failure="an NVLink, an NVSwitch or a PCIe path between GPUs is down or slow",
    condition="nvlink_errors",
    seconds=6.0,
    suites=("full",),
    needs=("gpu", "torch"),
    timeout_seconds=90.0,
    options=GpuPeerCopyOptions,
)
def gpu_peer_copy(
    context: Context,
    *,
    devices: Sequence[Device] | None = None,
    copy: Callable[[Device, Device], Callable[[Any, Any], Any] | None] = lambda _a, _b: None,
) -> Iterator[Outcome]:
    """Yield what is bad, or one outcome for all pairs.

    Parameters
    ----------
    context
        Node, settings, time.
    devices
        What to test; None: the GPUs.
    copy
        What copies from one to another, by the two of them; None: torch's own.
    """
    options = context.options
    assert isinstance(options, GpuPeerCopyOptions)
    chosen = gpus(context) if devices is None else list(devices)
    if len(chosen) < 2:
        raise Skip("One GPU has no other one to copy to.")
    pairs = list(itertools.permutations(chosen, 2))
    each = MEASURING_SHARE * context.seconds / len(pairs)
    speeds: dict[Pair, float] = {}
    for source, target in pairs:
        with released():
            speed = copy_speed(
                source,
                target,
                target,
                size=options.megabytes << 20,
                repeats=options.repeats,
                deadline=time.monotonic() + each,
                copy=copy(source, target),
            )
        speeds[source.label, target.label] = speed.gigabytes
        if not speed.equal:
            name = f"{source.label} to {target.label}"
            text = f"{name}: the copy is not what was sent. Take the node out."
            yield Outcome("fail", text, name)
    yield from _outcomes(speeds, chosen, options)


def _outcomes(
    speeds: dict[Pair, float], chosen: Sequence[Device], options: GpuPeerCopyOptions
) -> Iterator[Outcome]:
    models = {device.model for device in chosen}
    floor = floor_of(models.pop(), "peer") if len(models) == 1 else None
    found = name_suspects(speeds, floor=floor, tolerance=options.tolerance)
    if not found.suspects:
        least = min(speeds, key=lambda pair: speeds[pair])
        beside = "" if found.enough else "; two GPUs of a model without a floor: measured only"
        yield Outcome(
            "pass",
            f"All {len(speeds)} paths between GPUs do {speeds[least]:.4g} GB/s or more "
            f"(least: {least[0]} to {least[1]}){beside}.",
            "",
            speeds[least],
            "GB/s",
            found.level,
        )
    for suspect in found.suspects:
        level = floor if suspect.kind in ("fabric", "undecided") and floor else found.level
        yield Outcome(
            "fail", _message(suspect, level), _name(suspect), suspect.ratio * level, "GB/s", level
        )


def _name(suspect: Suspect) -> str:
    return "" if suspect.kind == "fabric" else " - ".join(suspect.names)


def _message(suspect: Suspect, level: float) -> str:
    reached = f"{suspect.ratio * level:.4g} of {level:.4g} GB/s"
    if suspect.kind == "node":
        when = f" when {suspect.direction}" if suspect.direction else ""
        return (
            f"{suspect.names[0]} does {reached} at best with any other{when}. Look at its NVLinks."
        )
    if suspect.kind == "fabric":
        return f"All pairs of GPUs do {reached} at best. Look at fabric manager, NVSwitch and ACS."
    return f"{_name(suspect)} do {reached}, other pairs more. Look at the NVLink between them."
