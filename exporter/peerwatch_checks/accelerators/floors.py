"""What a GPU must reach at least, by model: data with its source, used where peers are missing.

Peers come first (``evaluation``): values of a table age with drivers and libraries, so these are
floors, below what healthy ones measure. They are for whole GPUs, not for MIG instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Quantity = Literal["bfloat16", "float8", "memory", "host", "peer", "all_reduce"]


@dataclass(frozen=True, slots=True)
class Floors:
    """The floors of one model.

    Parameters
    ----------
    words
        All of them stand in the model's name, as the driver gives it.
    values
        By quantity: TFLOP/s of a product of square matrices in ``bfloat16`` and ``float8``; GB/s
        of a copy within its memory (what is read and written), of one from or to the host's
        pinned memory, of one between two GPUs, and bus bandwidth of an all-reduce over 8 GPUs.
    """

    words: tuple[str, ...]
    values: dict[Quantity, float]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the floors of a quantity come from.

    Parameters
    ----------
    what
        What is measured.
    source
        Who published it, and what was made of it.
    """

    what: str
    source: str


UNITS: dict[Quantity, str] = {
    "bfloat16": "TFLOP/s",
    "float8": "TFLOP/s",
    "memory": "GB/s",
    "host": "GB/s",
    "peer": "GB/s",
    "all_reduce": "GB/s",
}
_TUNED = (
    "0.8 of the tuned maxima in stas00/ml-engineering (744d01e): untuned shapes and libraries "
    "reach 80 to 90 % of them"
)
SOURCES: dict[Quantity, Source] = {
    "bfloat16": Source("products of square matrices in bfloat16", _TUNED),
    "float8": Source("products of square matrices in float8", _TUNED),
    "memory": Source(
        "copies within the memory, what is read and what is written",
        "floors of the nvbandwidth plugin of NVIDIA/DCGM (72fa3fe)",
    ),
    "host": Source(
        "copies from or to pinned memory of the host",
        "Azure/azurehpc-health-checks (0e0a1ac), check_gpu_bw",
    ),
    "peer": Source(
        "copies between two GPUs of a node",
        "Azure/azurehpc-health-checks (0e0a1ac), and DCGM's nvbandwidth plugin",
    ),
    "all_reduce": Source(
        "bus bandwidth of an all-reduce over 8 GPUs of a node",
        "Azure/azurehpc-health-checks (0e0a1ac), check_nccl_allreduce; 16 GiB",
    ),
}
FLOORS: tuple[Floors, ...] = (
    Floors(
        ("A100", "80GB"),
        {
            "bfloat16": 213,
            "memory": 1173,
            "host": 21,
            "peer": 238,
            "all_reduce": 228,
        },
    ),
    Floors(("A100", "40GB"), {"bfloat16": 213, "host": 21, "peer": 238, "all_reduce": 228}),
    Floors(
        ("H100", "HBM3"),
        {
            "bfloat16": 636,
            "float8": 1122,
            "memory": 1905,
            "host": 48,
            "peer": 335,
            "all_reduce": 460,
        },
    ),
    Floors(
        ("H200",),
        {
            "bfloat16": 636,
            "float8": 1162,
            "memory": 2212,
            "host": 48,
            "peer": 335,
            # 366 GB/s without NVLS, which is a matter of settings and no fault of a GPU.
            "all_reduce": 431,
        },
    ),
    Floors(("B200",), {"bfloat16": 1396, "float8": 2746, "memory": 4072}),
    Floors(("B300",), {"memory": 4623}),
    Floors(("MI300X",), {"bfloat16": 534, "host": 44, "peer": 44}),
)


def floor_of(model: str, quantity: Quantity) -> float | None:
    """Return what a model must reach; None if nobody knows.

    Parameters
    ----------
    model
        As the driver names it: ``NVIDIA H100 80GB HBM3``. A MIG instance has no floor.
    quantity
        Units as in ``Floors``.
    """
    if "MIG" in model.split():
        return None
    for floors in FLOORS:
        if all(word in model for word in floors.words):
            return floors.values.get(quantity)
    return None
