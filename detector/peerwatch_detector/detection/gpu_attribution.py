"""Which GPU of a node carries its deviation, where the method compares the nodes' means."""

from __future__ import annotations

import numpy as np

from peerwatch_detector.config import MetricConfig
from peerwatch_detector.frame import JobFrame

# Samples that the GPUs of a node are compared by: half a minute at a sample a second, which evens
# out an iteration.
_SAMPLES = 30


def deviating_gpu(frame: JobFrame, node: int, metric: MetricConfig) -> str:
    """Return the GPU that alone carries a node's deviation, or "" if there is none.

    One GPU is returned if it lies further than the minimum effect size from the median of all the
    job's GPUs, and at least three times as far as the node's second worst.
    """
    if frame.gpu_values is None or len(frame.gpus) < 2:
        return ""
    recent = frame.gpu_values[:, :, -_SAMPLES:]
    with np.errstate(all="ignore"):
        known = np.isfinite(recent)
        levels = np.where(known.any(axis=2), np.where(known, recent, 0).sum(axis=2), np.nan)
        levels = levels / np.maximum(known.sum(axis=2), 1)
    if not np.isfinite(levels).any():
        return ""
    away = np.nan_to_num(np.abs(levels[node] - np.nanmedian(levels)))
    order = np.argsort(away)
    worst, second = away[order[-1]], away[order[-2]]
    return frame.gpus[order[-1]] if worst > max(metric.min_effect_size, 3 * second) else ""
