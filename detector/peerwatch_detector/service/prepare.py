"""Compiles all functions, or loads what was compiled before, at the first job or beforehand.

Jobs wait while it is loaded, which takes a second, and not while it is compiled: until that is done
they are evaluated by NumPy's equal, slower path. Without a job nothing is loaded: it would be most
of the memory of a detector that has nothing to do. What was never compiled is compiled in a process
of its own from the start on, job or not.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_common.memory import search_rarely
from peerwatch_detector import compiled
from peerwatch_detector.detection.continuity import DeviationTracker
from peerwatch_detector.detection.distances import distance_sums
from peerwatch_detector.detection.methods.minder.windows import causal_window
from peerwatch_detector.detection.methods.peerwatch.baseline import Baseline, Usual
from peerwatch_detector.detection.methods.peerwatch.peers import compare
from peerwatch_detector.detection.methods.peerwatch.rows import row_spreads
from peerwatch_detector.detection.methods.peerwatch.running_medians import RunningMedians
from peerwatch_detector.detection.methods.peerwatch.screening import Corrected, screen
from peerwatch_detector.errors import PrepareError
from peerwatch_detector.frame import mean_over_gpus
from peerwatch_detector.models.lstm_vae import LstmVae, Weights
from peerwatch_detector.reading.decode import prepare as prepare_reading

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

# An image's folder of functions that were compiled when it was built. It may be read-only, while
# numba must be able to write: it is copied to NUMBA_CACHE_DIR.
COMPILED_BEFOREHAND = "PEERWATCH_COMPILED"

# Held while another process compiles.
_compiling_apart = threading.Lock()
# What that process runs.
_COMPILES = f"from {__name__} import prepare; prepare()"


def compile_in_background() -> threading.Thread:
    """Let another process compile if nothing was compiled before; returns at once.

    This one loads nothing until ``prepare_in_background``.
    """
    compiled.defer()
    thread = threading.Thread(target=_compile_if_nothing_is_kept, name="compile", daemon=True)
    thread.start()
    return thread


def _compile_if_nothing_is_kept() -> None:
    with _compiling_apart:
        _copy_compiled_beforehand()
        folder = os.environ.get("NUMBA_CACHE_DIR") or Path(compiled.__file__).parent
        # Whether it is the right code only numba knows; if it is not, the first job compiles.
        if compiled.AVAILABLE and not any(Path(folder).rglob("*.nbi")):
            _compile_apart()


def prepare_in_background() -> threading.Thread:
    """Let a thread load or compile; returns once all is ready, or while the thread compiles.

    From the return on, all other threads do without compiled functions until it is done.
    """
    decided = threading.Event()
    thread = threading.Thread(target=_prepare_and_log, args=(decided,), name="prepare", daemon=True)
    thread.start()
    decided.wait()
    return thread


def _prepare_and_log(decided: threading.Event) -> None:
    began = time.monotonic()

    def compiling() -> None:
        logger.info("preparing until_then=slower_path")
        decided.set()

    try:
        with compiled.preparation():
            prepare_apart(compiling)
    except Exception:
        logger.exception("not_prepared consequence=slower_path")
    else:
        logger.info("prepared seconds=%.1f", time.monotonic() - began)
    finally:
        # numba's objects are most of what a search for unused cycles would look at: a quarter of
        # the CPU time of a large job's first evaluation.
        search_rarely()
        decided.set()
    warn_if_not_kept()


def warn_if_not_kept() -> None:
    """Say that every start will compile, and what to do, if compiled code could not be written."""
    if reason := compiled.why_not_kept():
        logger.warning(
            "compiled_code_not_kept every_start=compiles_again error=%s; set NUMBA_CACHE_DIR to a "
            "folder that stays, with 5 MB free.",
            reason,
        )


@cache
def prepare() -> None:
    """Call every compiled function of reading and evaluating once, on next to nothing.

    Without a cache of compiled code this takes some 20 s of CPU, with one a fraction of a second.
    """
    prepare_reading.prepare()
    samples = np.zeros((2, 12), np.float32)
    compare(samples)
    mean_over_gpus(samples[:, None])
    row_spreads(samples, 1)
    RunningMedians().of(samples, np.arange(1), 1)
    usual = Usual(np.zeros(2), lambda: np.zeros(2), 0.0)
    # One metric's samples as a ring gives them, and nodes of a role.
    for units in (samples, samples[:, :11]):
        window = Corrected().window(units, slice(0, 9), 9, usual)
        screen(window, np.array([[0, 9]]), np.ones(1), 1.0)
    baseline = Baseline(0.0)
    baseline.follow(("", "-"))
    baseline.learn_all([0.0], [0.0], samples[:, :2].copy()[:1])
    tracker = DeviationTracker(0.0)
    tracker.follow(("",))
    tracker.pass_by(0.0, np.ones(1, np.bool_))
    distance_sums(samples, samples)
    # As a ring gives it, and as a part of a recording.
    causal_window(samples, 10, 8, 1)
    causal_window(samples[:, :11], 10, 8, 1)
    LstmVae(_no_weights()).embed(samples[:, :8])
    _mark(0)


def prepare_apart(compiling: Callable[[], None] = lambda: None) -> None:
    """Do the same, but what was never compiled before is compiled in a process of its own.

    Compiling takes 150 MiB, which a process does not give back. Where nothing can be kept, or the
    other process comes to nothing, this one compiles. ``compiling`` is called before either.
    """
    if _compiling_apart.locked():
        compiling()
    with _compiling_apart:
        _copy_compiled_beforehand()
        if not (kept := _is_kept()):
            compiling()
        if not kept and compiled.why_not_kept() is None:
            _compile_apart()
    prepare()


def _compile_apart() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _COMPILES],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as other:
        atexit.register(other.kill)
        other.wait()
        atexit.unregister(other.kill)


def prepare_for_later_starts() -> str:
    """Compile now what the first start would, and return in which folder it is kept.

    Raises
    ------
    PrepareError
        If numba cannot compile, or what it compiled cannot be kept.
    """
    if compiled.MISSING:
        raise PrepareError(
            f"nothing can be compiled: {compiled.MISSING}; install numba, or leave it: the "
            "detector runs without, some twenty times slower."
        )
    try:
        prepare()
    except Exception as error:
        raise PrepareError(
            f"numba cannot compile: {error!r}; the detector runs without, some twenty times slower."
        ) from error
    if reason := compiled.why_not_kept():
        raise PrepareError(
            f"compiled code cannot be kept: {reason}; set NUMBA_CACHE_DIR to a folder that stays, "
            "with 5 MB free."
        )
    return str(_mark.stats.cache_path)  # type: ignore[attr-defined]


def _copy_compiled_beforehand() -> None:
    """Begin with what an image was built with, where nothing was kept since.

    Code for another processor is not taken by numba, and compiled anew.
    """
    source, target = (os.environ.get(name) for name in (COMPILED_BEFOREHAND, "NUMBA_CACHE_DIR"))
    if not source or not target or any(Path(target).rglob("*.nbi")):
        return
    # A full disk or an image without them: they are compiled.
    with suppress(OSError):
        shutil.copytree(source, target, dirs_exist_ok=True)


@compiled.compiled
def _mark(number: int) -> int:
    """Return a number; that it is kept says that the others are."""
    return number


def _is_kept() -> bool:
    """Return whether the functions were compiled before, or numba cannot compile at all."""
    if not compiled.load():
        return True
    with suppress(Exception):  # numba cannot compile; ``prepare`` says so
        _mark(0)
        if _mark.stats.cache_hits:  # type: ignore[attr-defined]
            return True
        _forget_mark()
        return False
    return True


def _forget_mark() -> None:
    """Keep nothing of the mark: it was compiled to look for it, and the others were not.

    A start that is ended while they are compiled would leave it, and the next one would compile
    them while its jobs wait.
    """
    with suppress(OSError, AttributeError):
        _mark._cache.flush()  # type: ignore[attr-defined]  # noqa: SLF001 - numba has no other way


def _no_weights() -> Weights:
    """Return weights of the least network."""
    square, vector = np.zeros((4, 1), np.float32), np.zeros(4, np.float32)
    single, row = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)
    encoder, decoder = (square, square, vector), (square, square, vector)
    return Weights(*encoder, row, single, row, single, *decoder, row, single)
