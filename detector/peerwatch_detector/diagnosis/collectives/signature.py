"""What a collective is, and which of a group's ranks call another one than the rest."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

# Ranks of these may give and take different amounts, each by itself.
_UNEVEN = frozenset({"all_to_all", "gather", "scatter"})
# "nccl:_all_gather_base" and "gloo:all_gather" are the same operation on the wire.
_BACKEND = re.compile(r"^\w+:")
_VARIANT = re.compile(r"(_base|_coalesced|_tensor|_single|_into_tensor|_v)+$")
_TENSOR = re.compile(r"\[([^\[\]]*)\]")
_NUMBER = re.compile(r"\d+")
# No tensor has more elements in one dimension: 18 digits always fit in an int64, as torch counts
# them. Python refuses to read thousands of digits.
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Signature:
    """One rank's call of a collective.

    Parameters
    ----------
    collective
        The operation, such as ``all_reduce``.
    input_elements, output_elements
        Elements that go in and come out; None where they are unknown.
    dtype
        The type of the elements; empty where it is unknown.
    """

    collective: str
    input_elements: int | None = None
    output_elements: int | None = None
    dtype: str = ""

    @property
    def comparable(self) -> tuple[str, int | None, int | None, str]:
        """What must be the same in every rank of a group."""
        if self.collective in _UNEVEN:
            return (self.collective, None, None, self.dtype)
        if self.collective == "reduce":  # only the root has an output
            return (self.collective, self.input_elements, None, self.dtype)
        return (self.collective, self.input_elements, self.output_elements, self.dtype)


def operation(name: str) -> str:
    """Return the operation a backend's name of a collective stands for.

    >>> operation("nccl:_all_gather_base")
    'all_gather'
    """
    return _VARIANT.sub("", _BACKEND.sub("", name).removeprefix("_"))


def elements(sizes: str) -> int | None:
    """Return the number of elements of tensors, from their sizes as text; None if it has none.

    >>> elements("[64,64];[10]")
    4106
    """
    tensors = _TENSOR.findall(sizes) if "[" in sizes else [sizes]
    shapes = [found for text in tensors if (found := _NUMBER.findall(text))]
    if not shapes or any(len(number) > _MOST_DIGITS for shape in shapes for number in shape):
        return None
    return sum(math.prod(map(int, shape)) for shape in shapes)


def disagreement(signatures: Mapping[int, Signature]) -> tuple[tuple[int, ...], bool] | None:
    """Return the ranks that call another collective than the rest.

    Parameters
    ----------
    signatures
        The call of each rank, of one and the same sequence number.

    Returns
    -------
    tuple
        The ranks in ascending order, and whether they are the minority. Without a majority of
        more than half it is all of them, undecided. None where all agree.
    """
    calls = {rank: signature.comparable for rank, signature in signatures.items()}
    counts = Counter(calls.values())
    if len(counts) < 2:
        return None
    usual, count = counts.most_common(1)[0]
    if 2 * count <= len(calls):
        return tuple(sorted(calls)), False
    return tuple(sorted(rank for rank, call in calls.items() if call != usual)), True
