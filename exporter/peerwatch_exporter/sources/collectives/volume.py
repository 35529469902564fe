"""How many bytes a collective is about, and how many of them cross the slowest link.

The conventions are those of nccl-tests: the size is that of the whole buffer, the larger of input
and output; the bus factor turns bytes per second into the bandwidth of the links, comparable
between collectives and numbers of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

# By torch's names of its types (c10/core/ScalarType.h).
_ITEM_BYTES: Mapping[str, int] = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Short": 2,
    "UInt16": 2,
    "Half": 2,
    "BFloat16": 2,
    "Int": 4,
    "UInt32": 4,
    "Float": 4,
    "ComplexHalf": 4,
    "Long": 8,
    "UInt64": 8,
    "Double": 8,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}
_FLOAT8 = re.compile(r"Float8_\w+")

_BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "gather": lambda ranks: (ranks - 1) / ranks,
    "scatter": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda _: 1.0,
    "reduce": lambda _: 1.0,
    "send": lambda _: 1.0,
    "recv": lambda _: 1.0,
}

# What the back ends of torch, NCCL and its Inspector call them, without backend and decoration.
_NAMES: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherv": "all_gather",
    "allgatherintotensor": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "alltoallbase": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "barrier": "barrier",
    "allreducebarrier": "barrier",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
    "coalesced": "coalesced",
}
COLLECTIVES = (*dict.fromkeys(_NAMES.values()), "other")
_DECORATION = re.compile(r"_(base|coalesced|tensor_coalesced)$")


def collective_name(name: str) -> str:
    """Return the name of a collective in series: ``all_reduce`` for ``nccl:_all_reduce_base``."""
    # Of a transfer between two ranks there follows which: "send 0->1".
    bare = name.rpartition(":")[2].split(" ", 1)[0].lower()
    plain = _DECORATION.sub("", bare).replace("_", "") if bare != "coalesced" else bare
    return _NAMES.get(plain, "other")


def bus_factor(collective: str, ranks: int) -> float | None:
    """Return what share of its bytes crosses the slowest link; None for what moves none."""
    factor = _BUS_FACTORS.get(collective)
    return None if factor is None or ranks < 1 else factor(ranks)


def tensor_bytes(sizes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> int | None:
    """Return the bytes of some tensors; None if a type is not known."""
    total = 0
    for index, size in enumerate(sizes):
        dtype = dtypes[min(index, len(dtypes) - 1)] if dtypes else ""
        item = 1 if _FLOAT8.fullmatch(dtype) else _ITEM_BYTES.get(dtype)
        if item is None:
            return None
        for length in size:
            item *= length
        total += item
    return total
