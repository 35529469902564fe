"""The windows that a model learns from and those that it is tested on."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.errors import TrainingError

Windows = NDArray[np.float32]

# Of the windows, in the order of time; every tenth stretch is held out. Windows overlap, so single
# windows drawn at random would all have been seen but for one sample. Chosen: ten stretches that
# are held out come from all over the time.
_STRETCHES = 100


def fingerprint(windows: Windows) -> str:
    """First 12 hex digits of the SHA-256 over windows and their shape."""
    digest = hashlib.sha256(repr(windows.shape).encode())
    digest.update(np.ascontiguousarray(windows).tobytes())
    return digest.hexdigest()[:12]


def check(windows: Windows, least: int) -> None:
    """Refuse windows that no model can be trained on.

    Raises
    ------
    TrainingError
        If there are fewer than ``least``, or values that are not finite or outside 0 to 1.
    """
    if len(windows) < least:
        raise TrainingError(
            f"{len(windows)} complete windows are too few to train on, at least "
            f"{least} are needed; take a longer healthy range or more nodes."
        )
    if not np.isfinite(windows).all():
        raise TrainingError("The windows hold values that are not finite; fill or drop them.")
    if windows.min() < 0 or windows.max() > 1:
        raise TrainingError(
            f"The windows reach from {windows.min():g} to {windows.max():g}; scale them to 0..1."
        )


def split(windows: Windows, most: int, rng: np.random.Generator) -> tuple[Windows, Windows]:
    """Return windows to learn from and windows held out, a tenth, from other stretches of time.

    At most ``most`` in all, drawn at random.
    """
    stretch = np.arange(len(windows)) * _STRETCHES // len(windows)
    out = stretch % 10 == 9
    parts = []
    for mask, count in ((~out, most * 9 // 10), (out, most // 10)):
        indices = np.flatnonzero(mask)
        parts.append(windows[rng.permutation(indices)[:count]])
    return parts[0], parts[1]


def synthetic_windows(real: Windows, rng: np.random.Generator, share: float = 0.5) -> Windows:
    """Return levels, ramps and steps over the whole scaled range, with the data's own noise.

    Parameters
    ----------
    real
        Windows, shape (n, w, m).
    rng
        Source of randomness.
    share
        Synthetic windows per real window.

    Returns
    -------
    Windows
        Shape (k, w, m); in each window one metric is replaced, the others are those of a real
        window, as when a fault shows in some metrics only.
    """
    count, width = max(1024, int(len(real) * share)), real.shape[1]
    start, stop = rng.uniform(0, 1, (2, count, 1))
    position = np.linspace(0, 1, width)[None, :]
    edge = rng.integers(1, width, (count, 1))
    ramps = start + (stop - start) * position
    steps = np.where(np.arange(width)[None, :] < edge, start, stop)
    kind = rng.integers(0, 4, (count, 1))
    shapes = np.where(
        kind == 0, ramps, np.where(kind == 1, steps, np.broadcast_to(start, ramps.shape))
    )
    result = real[rng.integers(0, len(real), count)]
    rows, metric = np.arange(count), rng.integers(0, real.shape[2], count)
    picked = result[rows, :, metric]
    noise = picked - picked.mean(axis=1, keepdims=True)
    result[rows, :, metric] = np.clip(shapes + noise, 0, 1)
    return result
