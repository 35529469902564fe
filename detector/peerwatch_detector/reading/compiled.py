"""The one way in which this package compiles a function to machine code.

Compiled functions release the interpreter lock, so that several connections decode at once, and
their code is kept beside the module, so that a restart does not compile again. numba notices when a
module changes, but not when one changes that it calls: whoever edits this package removes
``__pycache__/*.nb?`` of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import numba
import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Return ``function`` compiled on its first call for the types of its arguments."""
    return _compile(function, "never")


def inlined(function: _Function) -> _Function:
    """Return ``function`` compiled into its callers; for small ones that get an array.

    A call that is not inlined counts the array's users up and down, which takes longer than what
    such a function does.
    """
    return _compile(function, "always")


def _compile(function: _Function, inline: Literal["never", "always"]) -> _Function:
    try:
        found = numba.njit(cache=True, nogil=True, inline=inline)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache can be written, as in many containers.
        found = numba.njit(nogil=True, inline=inline)(function)
    return cast("_Function", found)


@compiled
def whole(value: np.uint64 | int) -> int:
    """Return an unsigned number as a signed one; a mix of both would become a float."""
    return np.int64(value)  # type: ignore[return-value]


@compiled
def as_float(bits: np.uint64) -> float:
    """Return the float64 that a bit pattern is."""
    return np.uint64(bits).view(np.float64)
