"""Minder's variant INT: one LSTM-VAE that reads all metrics of a node at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.models.lstm_vae import LstmVae, Weights


class IntegratedLstmVae(LstmVae):
    """The trained model of all metrics.

    Parameters
    ----------
    weights
        Trained parameters.
    embedding
        See ``LstmVae``.
    levels
        By metric, in the order of the inputs, its scaled mean in the training: what stands for a
        metric that no node has, so that the model sees nothing strange and the nodes do not
        differ by it.
    """

    name = "lstm_vae_integrated"

    def __init__(
        self,
        weights: Weights,
        embedding: Literal["reconstruction", "latent"],
        levels: Mapping[str, float],
    ) -> None:
        super().__init__(weights, embedding)
        self.levels = levels

    def stack(
        self, windows: Mapping[str, NDArray[np.float32]], shape: tuple[int, ...]
    ) -> NDArray[np.float32]:
        """Join the windows of single metrics into those of the model.

        Parameters
        ----------
        windows
            By metric, of that shape; metrics that are missing stand at their level.
        shape
            (..., window_length).

        Returns
        -------
        NDArray[np.float32]
            Shape (..., window_length, n_metrics).
        """
        parts = [
            windows.get(metric, np.full(shape, level, np.float32))
            for metric, level in self.levels.items()
        ]
        return np.stack(parts, axis=-1)
