"""Training of a model on CUDA and on the CPU: as good a model, and how long each takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpu.part import PartSkippedError, Result

if TYPE_CHECKING:
    from gpu.part import Node

_WINDOWS, _LENGTH, _STEPS = 4000, 8, 600
# Both add up 32-bit numbers in another order, so that weights part step by step; what counts is
# that neither model rebuilds unseen windows much worse than the other.
_LARGEST_RATIO = 2.0


def run(node: Node) -> Result:
    """Train the same model on both and compare what they make of unseen windows."""
    if node.simulated:
        raise PartSkippedError("a simulated driver computes nothing")
    try:
        import numpy as np
        import torch

        from peerwatch_detector.training.fit import TrainingOptions, train_model
    except ImportError as error:
        raise PartSkippedError(f"{error.name} is not installed") from error
    if not torch.cuda.is_available():
        raise PartSkippedError("torch finds no CUDA")
    rng = np.random.default_rng(1)
    levels = 0.3 + 0.1 * np.sin(np.arange(_WINDOWS) / 50)[:, None]
    windows = np.clip(levels + rng.normal(0, 0.02, (_WINDOWS, _LENGTH)), 0, 1).astype(np.float32)
    result = Result("Training on CUDA against CPU")
    rows, errors = [], {}
    for device in ("cpu", "cuda"):
        begun = time.monotonic()
        trained = train_model(
            windows, TrainingOptions(steps=_STEPS, seed=1), lambda *_: None, device=device
        )
        errors[device] = trained.quality.error
        rows.append((device, f"{time.monotonic() - begun:.1f} s", f"{errors[device]:.2e}"))
    result.table(("device", f"{_STEPS} steps", "mean squared error of held-out windows"), rows)
    low, high = sorted(errors.values())
    if high > _LARGEST_RATIO * low:
        result.failures.append(
            f"The errors differ by more than {_LARGEST_RATIO:g} times: {errors}."
        )
    return result
