"""What the pipeline asks of a model."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# Where the model of all metrics (Minder's variant INT) stands among the models by metric; no
# metric can have this name.
INTEGRATED = "(integrated)"


class Model(Protocol):
    """Turns windows into points whose distances mean dissimilarity."""

    @property
    def name(self) -> str:
        """Name published in ``peerwatch_model_info``."""

    @property
    def fingerprint(self) -> str:
        """Short hash of the weights, empty if there are none."""

    def embed(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embed scaled windows.

        Parameters
        ----------
        windows
            Shape (n, window_length), values 0 to 1, no NaN; of the integrated model
            (n, window_length, n_metrics).

        Returns
        -------
        NDArray[np.float32]
            Shape (n, n_features).
        """
