"""No model: the window stands for itself (Minder's RAW variant)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Identity:
    """Embeds a window as itself; used for metrics nobody trained a model for."""

    name = "identity"
    fingerprint = ""

    def embed(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return ``windows``, shape (n, window_length)."""
        return windows
