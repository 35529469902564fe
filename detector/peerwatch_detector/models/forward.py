"""The forward pass of the LSTM-VAE, compiled: many windows at once, from samples to points.

``lstm_vae.py`` says what is computed and how the weights lie; here a block of windows passes the
whole network while all of its state is in the processor's nearest cache.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import inlined, numerical

Array = NDArray[np.float32]

# Windows per block: some vectors of the widest kind (eight of AVX-512), and small enough for the
# nearest cache: the 16 gates of a state of four are 8 KiB.
BLOCK = 128
# Where tanh is 1 to the last bit of a float32, nearly.
_END = np.float32(9.0)
# tanh(x) is about x P(x^2) / Q(x^2): the rational function of this degree whose largest relative
# error up to _END is least, 2.1e-8, found by iterated weighted least squares. In float32 the
# result is within 4e-7.
_P0, _P1, _P2, _P3, _P4 = (
    np.float32(value)
    for value in (0.999999979, 0.13381022, 0.00349558395, 2.06090192e-05, 1.33545838e-08)
)
_Q1, _Q2, _Q3, _Q4 = (
    np.float32(value) for value in (0.467143376, 0.0258769659, 0.000328562824, 7.77652446e-07)
)
_ONE, _HALF = np.float32(1.0), np.float32(0.5)


@numerical
def tanh(value: np.float32) -> np.float32:
    """Return the hyperbolic tangent, within 4e-7."""
    x = min(max(value, -_END), _END)
    square = x * x
    above = _P0 + square * (_P1 + square * (_P2 + square * (_P3 + square * _P4)))
    below = _ONE + square * (_Q1 + square * (_Q2 + square * (_Q3 + square * _Q4)))
    return x * above / below


@inlined
def _weigh(weights: Array, values: Array, result: Array) -> None:
    """Add ``weights @ values`` to a result; shapes (m, k), (k, BLOCK), (m, BLOCK)."""
    for row in range(weights.shape[0]):
        for column in range(weights.shape[1]):
            weight = weights[row, column]
            for item in range(BLOCK):
                result[row, item] += weight * values[column, item]


@inlined
def _fill(bias: Array, result: Array) -> None:
    for row in range(len(bias)):
        for item in range(BLOCK):
            result[row, item] = bias[row]


@inlined
def _step(gates: Array, hidden: Array, cell: Array) -> None:
    """Advance an LSTM from its gates, shape (4H, BLOCK): input, forget, cell, output."""
    size = hidden.shape[0]
    for unit in range(size):
        for item in range(BLOCK):
            # sigmoid(x) = (1 + tanh(x / 2)) / 2.
            enter = _HALF + _HALF * tanh(_HALF * gates[unit, item])
            forget = _HALF + _HALF * tanh(_HALF * gates[size + unit, item])
            new = tanh(gates[2 * size + unit, item])
            cell[unit, item] = forget * cell[unit, item] + enter * new
        for item in range(BLOCK):
            out = _HALF + _HALF * tanh(_HALF * gates[3 * size + unit, item])
            hidden[unit, item] = out * tanh(cell[unit, item])


@numerical
def embed(
    windows: Array,
    encoder: tuple[Array, Array, Array],
    mean: tuple[Array, Array],
    expand: tuple[Array, Array],
    decoder: tuple[Array, Array, Array],
    output: tuple[Array, Array],
    rebuilt: bool,
    result: Array,
) -> None:
    """Embed windows.

    Parameters
    ----------
    windows
        Shape (n, length, M).
    encoder, decoder
        Input weights, hidden weights and bias of an LSTM.
    mean, expand, output
        Weights and bias of a linear layer.
    rebuilt
        Whether the result is the windows rebuilt, shape (n, length * M); else the latent means,
        shape (n, L).
    result
        Where it goes.
    """
    length, inputs = windows.shape[1], windows.shape[2]
    read = np.zeros((inputs, BLOCK), np.float32)
    gates = np.empty((len(encoder[2]), BLOCK), np.float32)
    drive = np.empty((len(decoder[2]), BLOCK), np.float32)
    hidden = np.empty((encoder[1].shape[1], BLOCK), np.float32)
    cell = np.empty_like(hidden)
    latent = np.empty((len(mean[1]), BLOCK), np.float32)
    wide = np.empty((len(expand[1]), BLOCK), np.float32)
    written = np.empty((inputs, BLOCK), np.float32)
    for start in range(0, len(windows), BLOCK):
        count = min(BLOCK, len(windows) - start)
        hidden[:] = 0
        cell[:] = 0
        for step in range(length):
            for item in range(count):
                for number in range(inputs):
                    read[number, item] = windows[start + item, step, number]
            _fill(encoder[2], gates)
            _weigh(encoder[0], read, gates)
            _weigh(encoder[1], hidden, gates)
            _step(gates, hidden, cell)
        _fill(mean[1], latent)
        _weigh(mean[0], hidden, latent)
        if not rebuilt:
            for item in range(count):
                for number in range(len(latent)):
                    result[start + item, number] = latent[number, item]
            continue
        _fill(expand[1], wide)
        _weigh(expand[0], latent, wide)
        _fill(decoder[2], drive)
        _weigh(decoder[0], wide, drive)
        hidden[:] = 0
        cell[:] = 0
        for step in range(length):
            for row in range(len(gates)):
                for item in range(BLOCK):
                    gates[row, item] = drive[row, item]
            _weigh(decoder[1], hidden, gates)
            _step(gates, hidden, cell)
            _fill(output[1], written)
            _weigh(output[0], hidden, written)
            for item in range(count):
                for number in range(inputs):
                    result[start + item, step * inputs + number] = written[number, item]
