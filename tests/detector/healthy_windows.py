"""Windows of a healthy metric, as the models learn from."""

from __future__ import annotations

import numpy as np

from detector.fakes import healthy
from peerwatch_detector.detection.preprocess import windows


def healthy_windows(level: float = 0.3, seconds: int = 400, seed: int = 0) -> np.ndarray:
    cut = windows(healthy(6, seconds, seed=seed, level=level), 8)
    return np.ascontiguousarray(cut.reshape(-1, 8))


def swinging_windows(count: int = 3000, seed: int = 0) -> np.ndarray:
    """Windows with a sudden rest of some steps, as GPU activities have between two batches."""
    rng = np.random.default_rng(seed)
    begin, length = rng.integers(-3, 8, (count, 1)), rng.integers(1, 5, (count, 1))
    step = np.arange(8)[None, :]
    rests = (step >= begin) & (step < begin + length)
    noise = rng.normal(0, 0.02, (count, 8))
    return np.clip(np.where(rests, 0.05, 0.9) + noise, 0, 1).astype(np.float32)


def quiet(step: int, steps: int, loss: float) -> None:
    pass
