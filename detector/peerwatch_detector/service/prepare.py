"""Compiles all functions, or loads what was compiled before, beside the first jobs or beforehand.

Jobs do not wait for it: until it is done they are evaluated by NumPy's equal, slower path.
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

import numpy as np

from peerwatch_detector import compiled
from peerwatch_detector.detection.distances import distance_sums
from peerwatch_detector.detection.methods.minder.windows import causal_window
from peerwatch_detector.detection.methods.peerwatch.baseline import row_spreads
from peerwatch_detector.detection.methods.peerwatch.peers import compare
from peerwatch_detector.errors import PrepareError
from peerwatch_detector.models.lstm_vae import LstmVae, Weights
from peerwatch_detector.reading.decode import prepare as prepare_reading

logger = logging.getLogger(__name__)

# An image's folder of functions that were compiled when it was built. It may be read-only, while
# numba must be able to write: it is copied to NUMBA_CACHE_DIR.
COMPILED_BEFOREHAND = "PEERWATCH_COMPILED"


def prepare_in_background() -> threading.Thread:
    """Let a thread compile; from the return of this on, all others do without, until it is done."""
    begun = threading.Event()
    thread = threading.Thread(target=_prepare_and_log, args=(begun,), name="prepare", daemon=True)
    thread.start()
    begun.wait()
    return thread


def _prepare_and_log(begun: threading.Event) -> None:
    began = time.monotonic()
    try:
        with compiled.preparation():
            begun.set()
            logger.info("preparing until_then=slower_path")
            prepare_apart()
    except Exception:
        logger.exception("not_prepared consequence=slower_path")
    else:
        logger.info("prepared seconds=%.1f", time.monotonic() - began)
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
    row_spreads(samples, 1)
    distance_sums(samples)
    # As a ring gives it, and as a part of a recording.
    causal_window(samples, 10, 8, 1)
    causal_window(samples[:, :11], 10, 8, 1)
    LstmVae(_no_weights()).embed(samples[:, :8])
    _mark(0)


def prepare_apart() -> None:
    """Do the same, but what was never compiled before is compiled in a process of its own.

    Compiling takes 150 MiB, which a process does not give back. Where nothing can be kept, or the
    other process comes to nothing, this one compiles.
    """
    _copy_compiled_beforehand()
    if compiled.AVAILABLE and _could_be_kept():
        with subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import prepare; prepare()"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as other:
            atexit.register(other.kill)
            other.wait()
            atexit.unregister(other.kill)
    prepare()


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


def _could_be_kept() -> bool:
    try:
        _mark(0)
    except Exception:
        # numba cannot compile; ``prepare`` says so.
        return False
    return not _mark.stats.cache_hits and compiled.why_not_kept() is None  # type: ignore[attr-defined]


def _no_weights() -> Weights:
    """Return weights of the least network."""
    square, vector = np.zeros((4, 1), np.float32), np.zeros(4, np.float32)
    single, row = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)
    encoder, decoder = (square, square, vector), (square, square, vector)
    return Weights(*encoder, row, single, row, single, *decoder, row, single)
