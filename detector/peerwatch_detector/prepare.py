"""Compiles all functions, or loads what was compiled before, ahead of the first job."""

from __future__ import annotations

from functools import cache

import numpy as np

from peerwatch_detector.baseline import row_spreads
from peerwatch_detector.distances import distance_sums
from peerwatch_detector.minder_windows import causal_window
from peerwatch_detector.models.lstm_vae import LstmVae, Weights
from peerwatch_detector.peers import compare
from peerwatch_detector.reading import prepare as prepare_reading


@cache
def prepare() -> None:
    """Call every compiled function of reading and judging once, on next to nothing.

    Without a cache of compiled code this takes some ten seconds, with one a fraction of a second.
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


def _no_weights() -> Weights:
    """Return weights of the least network."""
    square, vector = np.zeros((4, 1), np.float32), np.zeros(4, np.float32)
    one, row = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)
    encoder, decoder = (square, square, vector), (square, square, vector)
    return Weights(*encoder, row, one, row, one, *decoder, row, one)
