"""Compiles all functions, or loads what was compiled before, ahead of the first job."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from functools import cache

import numpy as np

from peerwatch_detector import compiled
from peerwatch_detector.detection.distances import distance_sums
from peerwatch_detector.detection.methods.minder.windows import causal_window
from peerwatch_detector.detection.methods.peerwatch.baseline import row_spreads
from peerwatch_detector.detection.methods.peerwatch.peers import compare
from peerwatch_detector.models.lstm_vae import LstmVae, Weights
from peerwatch_detector.reading.decode import prepare as prepare_reading


@cache
def prepare() -> None:
    """Call every compiled function of reading and evaluating once, on next to nothing.

    Without a cache of compiled code this takes some 20 s, with one a fraction of a second.
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
    if compiled.AVAILABLE and _could_be_kept():
        with subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import prepare; prepare()"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as other:
            atexit.register(other.kill)
            other.wait()
            atexit.unregister(other.kill)
    prepare()


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
