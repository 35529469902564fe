"""Copies between devices: how fast, whether they are the same, and who is slower than the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_checks.accelerators.devices import SEED, Device, seconds_of, synchronize
from peerwatch_checks.accelerators.floors import Quantity, floor_of
from peerwatch_checks.check import Outcome
from peerwatch_checks.evaluation import evaluate, reference_for
from peerwatch_common.health_conditions import severity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from peerwatch_checks.check import Context


@dataclass(frozen=True, slots=True)
class CopySpeed:
    """How fast a copy from one device to another is.

    Parameters
    ----------
    name
        As results name it.
    kind
        Only what is of one kind is compared; it begins with the GPU's model.
    gigabytes
        GB/s, 1e9 bytes each.
    equal
        Whether the target has the source's bits.
    """

    name: str
    kind: str
    gigabytes: float
    equal: bool


def copy_speed(
    source: Device,
    target: Device,
    timed_on: Device,
    *,
    size: int,
    repeats: int,
    deadline: float,
    copy: Callable[[Any, Any], Any] | None = None,
) -> CopySpeed:
    """Measure copies from one device to another.

    Parameters
    ----------
    source, target
        Where from and to; memory of the CPU is pinned if the other one is a GPU.
    timed_on
        Whose clock counts.
    size
        Bytes; fewer if a device has no room for them.
    repeats, deadline
        As for ``seconds_of``.
    copy
        Copies a source tensor to a target; None: torch's own.
    """
    import torch  # noqa: PLC0415 - only checks that need it load it

    # A device may have to hold both.
    size = max(8, min(source.fits(size), target.fits(2 * size) // 2) // 8 * 8)
    pinned = source.is_gpu != target.is_gpu
    generator = torch.Generator().manual_seed(SEED)
    pattern = torch.randint(-(2**62), 2**62, (size // 8,), generator=generator)
    ends = [
        torch.empty(size // 8, dtype=torch.int64, pin_memory=True)
        if pinned and not device.is_gpu
        else torch.empty(size // 8, dtype=torch.int64, device=device.name)
        for device in (source, target)
    ]
    ends[0].copy_(pattern)
    work = copy or (lambda a, b: b.copy_(a, non_blocking=True))
    taken = seconds_of(lambda: work(ends[0], ends[1]), timed_on, repeats=repeats, deadline=deadline)
    synchronize(timed_on)
    equal = bool(torch.equal(ends[1].cpu(), pattern))
    return CopySpeed(f"{source.label} to {target.label}", source.model, size / taken / 1e9, equal)


def outcomes(
    speeds: Sequence[CopySpeed],
    context: Context,
    tolerance: float,
    quantity: Quantity,
    *,
    what: str,
    advice: str,
) -> Iterator[Outcome]:
    """Yield an outcome for each copy: wrong bits, or slower than those of its kind.

    Parameters
    ----------
    speeds
        All that was measured on this node.
    context
        Peers and earlier runs.
    tolerance
        Share below the median of peers that is no fault.
    quantity
        Whose floor counts where there are no peers.
    what, advice
        As for ``evaluate``.
    """
    for speed in speeds:
        if not speed.equal:
            text = f"{speed.name}: the copy is not what was copied. Take the GPU out."
            severity = severity_of("wrong_results")
            yield Outcome("fail", text, speed.name, severity=severity)
            continue
        others = [
            each.gigabytes for each in speeds if each is not speed and each.kind == speed.kind
        ]
        floor = floor_of(speed.kind, quantity)
        against = reference_for(context, speed.name, "GB/s", tolerance, others=others, floor=floor)
        yield evaluate(
            speed.gigabytes,
            "GB/s",
            against,
            what=f"{what}, {speed.name}",
            advice=advice,
            device=speed.name,
        )
