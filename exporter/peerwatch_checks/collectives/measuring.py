"""The bus bandwidth of collectives in a process group, and whether their results are right.

Bus bandwidth (that of nccl-tests) is what each rank's link must carry, so that groups of different
sizes can be compared: size / time, times 2 (n - 1) / n for an all-reduce and (n - 1) / n for an
all-to-all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_checks.accelerators.devices import Device, seconds_of, synchronize

if TYPE_CHECKING:
    from typing import Any

# A prime, so that no shift by a power of two goes unseen; float32 holds sums of it over more ranks
# than there are exactly.
_MODULUS = 251


def all_reduce_bandwidth(
    device: Device,
    *,
    size: int,
    repeats: int,
    group: Any = None,  # noqa: ANN401 - torch's
    least: bool = False,
) -> tuple[float, bool]:
    """Return the bus bandwidth of an all-reduce in GB/s, and whether the sums are right.

    All ranks of the group call it together.

    Parameters
    ----------
    device
        This rank's.
    size
        Bytes of each rank's buffer.
    repeats
        How often it is timed; equal on all ranks.
    group
        torch's process group; None: all ranks.
    least
        Whether the best of the runs counts rather than their median.
    """
    import torch  # noqa: PLC0415 - only what measures loads it
    from torch import distributed  # noqa: PLC0415

    ranks, rank = distributed.get_world_size(group), distributed.get_rank(group)
    count = max(1, size // 4)
    pattern = torch.arange(count, device=device.name, dtype=torch.float32) % _MODULUS
    buffer = pattern + rank
    distributed.all_reduce(buffer, group=group)
    synchronize(device)
    right = bool(torch.equal(buffer, pattern * ranks + sum(range(ranks))))
    # Zeros stay zeros, however often they are summed.
    buffer.zero_()
    taken = seconds_of(
        lambda: distributed.all_reduce(buffer, group=group), device, repeats=repeats, least=least
    )
    return 4 * count / taken * 2 * (ranks - 1) / ranks / 1e9, right


def all_to_all_bandwidth(
    device: Device,
    *,
    size: int,
    repeats: int,
    group: Any = None,  # noqa: ANN401 - torch's
    least: bool = False,
) -> tuple[float, bool]:
    """Return the bus bandwidth of an all-to-all in GB/s, and whether block i came from rank i.

    Parameters as for ``all_reduce_bandwidth``.
    """
    import torch  # noqa: PLC0415 - only what measures loads it
    from torch import distributed  # noqa: PLC0415

    ranks, rank = distributed.get_world_size(group), distributed.get_rank(group)
    block = max(1, size // 4 // ranks)
    whom = torch.arange(ranks, device=device.name, dtype=torch.float32)
    # Block i of rank r says "from r to i".
    sent = (rank * ranks + whom).repeat_interleave(block)
    received = torch.empty_like(sent)
    distributed.all_to_all_single(received, sent, group=group)
    synchronize(device)
    right = bool(torch.equal(received, (whom * ranks + rank).repeat_interleave(block)))
    taken = seconds_of(
        lambda: distributed.all_to_all_single(received, sent, group=group),
        device,
        repeats=repeats,
        least=least,
    )
    return 4 * block * ranks / taken * (ranks - 1) / ranks / 1e9, right
