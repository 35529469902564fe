"""Minder's LSTM-VAE at inference time, without torch.

One model per metric (NSDI'25, section 4.2): an LSTM encoder (hidden 4, one layer) reads the
window, two linear heads give mean and log variance of an 8-dimensional Gaussian, a linear layer
and an LSTM decoder turn a point of it back into a window. The detector takes the mean, so the
same window always embeds to the same point. ``network.py`` is the same network in torch and
``forward.py`` the same compiled, which is taken once it is compiled; tests hold all of them
together to 1e-5.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.models import forward

Array = NDArray[np.float32]

# Windows per block: the gate matrices of one block stay in the processor's cache, as those of a
# state of four have 256 KiB.
_BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters, in torch's layout and gate order (input, forget, cell, output).

    ``M`` = metrics, 1 but for the variant INT, ``H`` = hidden size, ``L`` = latent size; the
    encoder reads M values per step, the decoder the H values of ``expand`` at every step.
    """

    encoder_input: Array  # (4H, M)
    encoder_hidden: Array  # (4H, H)
    encoder_bias: Array  # (4H,)
    mean_weight: Array  # (L, H)
    mean_bias: Array  # (L,)
    expand_weight: Array  # (H, L)
    expand_bias: Array  # (H,)
    decoder_input: Array  # (4H, H)
    decoder_hidden: Array  # (4H, H)
    decoder_bias: Array  # (4H,)
    output_weight: Array  # (M, H)
    output_bias: Array  # (M,)

    @property
    def inputs(self) -> int:
        """Metrics per step."""
        return int(self.encoder_input.shape[1])

    def wrong(self) -> str:
        """Return the name of a parameter whose shape or values are impossible, or nothing."""
        inputs, hidden, latent = self.inputs, self.encoder_hidden.shape[-1], len(self.mean_bias)
        shapes = {
            "encoder_input": (4 * hidden, inputs),
            "encoder_hidden": (4 * hidden, hidden),
            "encoder_bias": (4 * hidden,),
            "mean_weight": (latent, hidden),
            "mean_bias": (latent,),
            "expand_weight": (hidden, latent),
            "expand_bias": (hidden,),
            "decoder_input": (4 * hidden, hidden),
            "decoder_hidden": (4 * hidden, hidden),
            "decoder_bias": (4 * hidden,),
            "output_weight": (inputs, hidden),
            "output_bias": (inputs,),
        }
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array.shape != shape or not np.isfinite(array).all():
                return name
        return ""


class LstmVae:
    """A trained model.

    Parameters
    ----------
    weights
        Trained parameters.
    embedding
        ``reconstruction`` embeds a window as its denoised self, shape (n, window_length * M);
        ``latent`` as the mean of its latent Gaussian, shape (n, L).
    """

    name = "lstm_vae"

    def __init__(
        self,
        weights: Weights,
        embedding: Literal["reconstruction", "latent"] = "reconstruction",
    ) -> None:
        self.weights = weights
        self.embedding = embedding

    @property
    def fingerprint(self) -> str:
        """First 12 hex digits of the SHA-256 over all weights."""
        digest = hashlib.sha256()
        for parameter in fields(self.weights):
            digest.update(np.ascontiguousarray(getattr(self.weights, parameter.name)).tobytes())
        return digest.hexdigest()[:12]

    def embed(self, windows: Array) -> Array:
        """Embed scaled windows of shape (n, window_length), or with M metrics (n, length, M)."""
        length, inputs = windows.shape[1], self.weights.inputs
        steps = windows.reshape(len(windows), length, inputs)
        rebuilt = self.embedding == "reconstruction"
        width = length * inputs if rebuilt else len(self.weights.mean_bias)
        result = np.empty((len(windows), width), dtype=np.float32)
        if compiled.ready():
            self._embed_compiled(steps, result, rebuilt=rebuilt)
            return result
        for start in range(0, len(windows), _BLOCK):
            block = slice(start, start + _BLOCK)
            latent = self.encode(steps[block])
            result[block] = self.decode(latent, length).reshape(-1, width) if rebuilt else latent
        return result

    def _embed_compiled(self, windows: Array, result: Array, *, rebuilt: bool) -> None:
        w = self.weights
        forward.embed(
            np.ascontiguousarray(windows, np.float32),
            (w.encoder_input, w.encoder_hidden, w.encoder_bias),
            (w.mean_weight, w.mean_bias),
            (w.expand_weight, w.expand_bias),
            (w.decoder_input, w.decoder_hidden, w.decoder_bias),
            (w.output_weight, w.output_bias),
            rebuilt,
            result,
        )

    def encode(self, windows: Array) -> Array:
        """Return the latent means, shape (n, L), of windows of shape (n, window_length, M)."""
        w = self.weights
        hidden = _lstm_state(len(windows), w.encoder_hidden.shape[1])
        for step in range(windows.shape[1]):
            drive = w.encoder_input @ windows[:, step].T + w.encoder_bias[:, None]
            hidden = _lstm_step(drive, w.encoder_hidden, hidden)
        return (w.mean_weight @ hidden[0] + w.mean_bias[:, None]).T

    def decode(self, latent: Array, length: int) -> Array:
        """Return windows, shape (n, length, M), of latent points of shape (n, L)."""
        w = self.weights
        expanded = w.expand_weight @ latent.T + w.expand_bias[:, None]
        drive = w.decoder_input @ expanded + w.decoder_bias[:, None]
        hidden = _lstm_state(len(latent), w.decoder_hidden.shape[1])
        result = np.empty((len(latent), length, w.inputs), dtype=np.float32)
        for step in range(length):
            hidden = _lstm_step(drive, w.decoder_hidden, hidden)
            result[:, step] = (w.output_weight @ hidden[0] + w.output_bias[:, None]).T
        return result


def _lstm_state(count: int, size: int) -> tuple[Array, Array]:
    """Return zero hidden and cell states, features first: shape (size, count) each."""
    return np.zeros((size, count), np.float32), np.zeros((size, count), np.float32)


def _lstm_step(drive: Array, recurrent: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
    """Advance one LSTM step; ``drive`` is the input's share of the gates, shape (4H, n)."""
    hidden, cell = state
    size = hidden.shape[0]
    gates = drive + recurrent @ hidden
    # One tanh over all four gates: sigmoid(x) = (1 + tanh(x / 2)) / 2.
    gates[: 2 * size] *= 0.5
    gates[3 * size :] *= 0.5
    np.tanh(gates, out=gates)
    enter, forget, new, out = gates.reshape(4, size, -1)
    cell = (0.5 + 0.5 * forget) * cell + (0.5 + 0.5 * enter) * new
    return (0.5 + 0.5 * out) * np.tanh(cell), cell
