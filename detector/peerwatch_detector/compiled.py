"""The one way in which this package compiles a function to machine code.

Compiled functions release the interpreter lock, so that several connections decode at once, and
their code is kept beside the module, so that a restart does not compile again. numba notices when a
module changes, but not when one changes that it calls: whoever edits this package removes
``__pycache__/*.nb?`` of it. Kept code that cannot be read is compiled anew, and where none can be
written, as in many containers or on a full disk, every start compiles; ``why_not_kept`` tells.

Without numba the functions are what they are in Python: right, and some hundred times slower. The
detection uses NumPy then, and ``reading.decode.prepare`` makes the readers do without them. The
same holds while a thread compiles them (``preparation``), so that nothing waits for the compiler.

numba itself is imported at the first call of any of them (``load``): it takes half a second and
most of the memory of a detector that has no job yet, and most commands need none of it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, Unpack, cast

import numpy as np


def _missing() -> str | None:
    try:
        found = find_spec("numba")
    except (ImportError, ValueError) as error:
        return f"numba cannot be imported: {error!r}"
    return None if found else "numba cannot be imported: it is not installed"


MISSING: str | None = _missing()
AVAILABLE = MISSING is None

_not_kept: list[str] = []
# The thread that compiles, and why it could not.
_preparing_thread: int | None = None
_failure: str | None = None
# Nothing is to be loaded yet.
_deferred = False
_numba: ModuleType | None = None
_loading = threading.RLock()

_Function = TypeVar("_Function", bound=Callable[..., Any])


def ready() -> bool:
    """Return whether this thread is to call compiled functions, in place of NumPy's equal path."""
    if not AVAILABLE or _failure is not None or _deferred or preparing():
        return False
    # It is asked some hundred times in a cycle of a job.
    return _numba is not None or load()


def defer() -> None:
    """Let all do without compiled functions until ``preparation`` begins: nothing is loaded."""
    global _deferred  # noqa: PLW0603
    _deferred = True


def deferred() -> bool:
    """Return whether no preparation has begun since ``defer``."""
    return _deferred


def load() -> bool:
    """Import numba, once, and return whether it is there; ``failure`` says why it is not."""
    global _numba, MISSING, AVAILABLE  # noqa: PLW0603 - one numba per process
    if _is_loaded():
        return AVAILABLE
    with _loading:
        # Another thread may have done so in the meantime.
        if not _is_loaded():
            try:
                import numba  # noqa: PLC0415
            except Exception as error:
                MISSING, AVAILABLE = f"numba cannot be imported: {error!r}", False
            else:
                _numba = numba
                _bind()
    return AVAILABLE


def _is_loaded() -> bool:
    """Return whether numba was imported, or cannot be."""
    return _numba is not None or not AVAILABLE


def preparing() -> bool:
    """Return whether another thread compiles the functions at this moment."""
    return _preparing_thread is not None and _preparing_thread != threading.get_ident()


def failure() -> str | None:
    """Return why there are no compiled functions; None if there are, or will be."""
    return MISSING or _failure


@contextmanager
def preparation() -> Iterator[None]:
    """Compile in this thread, while all others do without compiled functions.

    An error within leaves them without for good: the slow path gives the same.
    """
    global _preparing_thread, _failure, _deferred  # noqa: PLW0603 - one compiler per process
    _preparing_thread = threading.get_ident()
    _deferred = False
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
    if _numba is not None:
        return _by_numba(function, options)
    return cast("_Function", _Deferred(function, options))


class _Deferred:
    """A function in the place of its compiled self, until numba is loaded.

    Parameters
    ----------
    function
        What is compiled.
    options
        numba's.
    """

    every: ClassVar[list[_Deferred]] = []

    def __init__(self, function: Callable[..., Any], options: _Options) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._options = options
        self._target: Callable[..., Any] | None = None
        self.every.append(self)

    @property
    def target(self) -> Callable[..., Any]:
        """What is called in its place: compiled, or as it is where numba cannot be imported."""
        # This very function may be given its target within.
        available = load()
        with _loading:
            if self._target is None:
                self._target = (
                    _by_numba(self.function, self._options) if available else self.function
                )
            return self._target

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 - of any function
        return (self._target or self.target)(*arguments)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - numba has no types
        return getattr(self.target, name)


def _bind() -> None:
    """Put what numba makes of them in the place of all functions, in the modules that have any.

    A compiled function finds those that it calls among the names of its module.
    """
    spaces = (each.function.__globals__ for each in _Deferred.every)
    for space in {id(space): space for space in spaces}.values():
        for name, value in list(space.items()):
            if isinstance(value, _Deferred):
                space[name] = value.target


def _by_numba(function: _Function, options: _Options) -> _Function:
    assert _numba is not None
    try:
        found = _numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        _not_kept.append(
            f"neither {Path(__file__).parent / '__pycache__'} nor the user's cache folder can be "
            "written"
        )
        found = _numba.njit(nogil=True, **options)(function)
    else:
        # numba offers no other way.
        if cache := getattr(found, "_cache", None):
            found._cache = _Kept(cache)  # noqa: SLF001
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
