"""The one way in which this package compiles a function to machine code.

Compiled functions release the interpreter lock, so that several connections decode at once, and
their code is kept beside the module, so that a restart does not compile again. numba notices when a
module changes, but not when one changes that it calls: whoever edits this package removes
``__pycache__/*.nb?`` of it. Kept code that cannot be read is compiled anew, and where none can be
written, as in many containers or on a full disk, every start compiles; ``why_not_kept`` tells.

Without numba the functions are what they are in Python: right, and some hundred times slower. The
detection uses NumPy then, and ``reading.decode.prepare`` makes the readers do without them. The
same holds while a thread compiles them (``preparation``), so that nothing waits for the compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast

import numpy as np

try:
    import numba
except Exception as error:
    MISSING: str | None = f"numba cannot be imported: {error!r}"
else:
    MISSING = None

AVAILABLE = MISSING is None

_not_kept: list[str] = []
# The thread that compiles, and why it could not.
_preparing_thread: int | None = None
_failure: str | None = None

_Function = TypeVar("_Function", bound=Callable[..., Any])


def ready() -> bool:
    """Return whether this thread is to call compiled functions, in place of NumPy's equal path."""
    return AVAILABLE and _failure is None and not preparing()


def preparing() -> bool:
    """Return whether another thread compiles the functions at this moment."""
    return _preparing_thread not in {None, threading.get_ident()}


def failure() -> str | None:
    """Return why there are no compiled functions; None if there are, or will be."""
    return MISSING or _failure


@contextmanager
def preparation() -> Iterator[None]:
    """Compile in this thread, while all others do without compiled functions.

    An error within leaves them without for good: the slow path gives the same.
    """
    global _preparing_thread, _failure  # noqa: PLW0603 - one compiler per process
    _preparing_thread = threading.get_ident()
    try:
        yield
    except Exception as error:
        _failure = f"numba cannot compile: {error!r}"
        raise
    finally:
        _preparing_thread = None


def compiled(function: _Function) -> _Function:
    """Return ``function`` compiled on its first call for the types of its arguments."""
    return _compile(function)


def inlined(function: _Function) -> _Function:
    """Return ``function`` compiled into its callers; for small ones that get an array.

    A call that is not inlined counts the array's users up and down, which takes longer than what
    such a function does.
    """
    return _compile(function, inline="always")


def numerical(function: _Function) -> _Function:
    """Return ``function`` compiled so that its loops work on several numbers at once.

    A product and a sum may be rounded once in place of twice, a sum is taken in the order that
    suits the processor, the same for all loops of one length, and a division by zero gives
    infinity.
    """
    return _compile(function, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")


class _Options(TypedDict, total=False):
    inline: Literal["never", "always"]
    fastmath: set[str]
    error_model: Literal["python", "numpy"]


def why_not_kept() -> str | None:
    """Return why compiled code could not be written so far; None if all was, or none had to be."""
    return _not_kept[0] if _not_kept else None


def _compile(function: _Function, **options: Unpack[_Options]) -> _Function:
    if not AVAILABLE:
        return function
    try:
        found = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        _not_kept.append(
            f"neither {Path(__file__).parent / '__pycache__'} nor the user's cache folder can be "
            "written"
        )
        found = numba.njit(nogil=True, **options)(function)
    else:
        # numba offers no other way.
        if cache := getattr(found, "_cache", None):
            found._cache = _Kept(cache)  # type: ignore[attr-defined] # noqa: SLF001
    return cast("_Function", found)


class _Kept:
    """numba's cache of one function, whose troubles cost time and nothing else.

    Parameters
    ----------
    cache
        numba's own.
    """

    def __init__(self, cache: Any) -> None:  # noqa: ANN401 - numba has no types
        self._cache = cache

    def load_overload(self, *asked: object) -> object:
        """Return the code that was kept, or None."""
        try:
            return self._cache.load_overload(*asked)
        except Exception:
            # Half a file, as a power cut leaves it: begun anew, or it would be met at every call.
            with suppress(OSError):
                self._cache.flush()
            return None

    def save_overload(self, *made: object) -> None:
        """Keep code, if it can be written."""
        try:
            self._cache.save_overload(*made)
        except OSError as error:
            _not_kept.append(f"{self._cache.cache_path}: {error}")

    def __getattr__(self, name: str) -> object:
        return getattr(self._cache, name)


@compiled
def whole(value: np.uint64 | int) -> int:
    """Return an unsigned number as a signed one; a mix of both would become a float."""
    return np.int64(value)  # type: ignore[return-value]


@compiled
def as_float(bits: np.uint64) -> float:
    """Return the float64 that a bit pattern is."""
    return np.uint64(bits).view(np.float64)
