"""Peaks, gaps and scales: what stands between the samples as read and the comparison.

Minder pads a missing sample with the nearest one and scales every metric by its own limits
(NSDI'25, section 4.1); windows of ``w`` samples then slide by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig, ReadMetric
from peerwatch_detector.detection.threads import each, worthwhile
from peerwatch_detector.detection.time_grid import exact_times
from peerwatch_detector.frame import JobFrame, mean_over_gpus


def preprocess(
    frames: Mapping[str, JobFrame], metrics: Iterable[ReadMetric], config: DetectorConfig
) -> dict[str, JobFrame]:
    """Return the frames of some metrics as they are evaluated, in the order of the metrics."""
    known = [metric for metric in metrics if metric.name in frames]

    def preprocessed(metric: ReadMetric) -> JobFrame:
        peak_seconds = metric.peak_seconds if isinstance(metric, MetricConfig) else None
        frame = with_peaks(frames[metric.name], peak_seconds, config.step_seconds)
        return replace(frame, times=exact_times(frame.times, config.step_seconds))

    threads = worthwhile(config.scheduling.detection_threads, frames.values())
    found = each(preprocessed, known, threads)
    return {metric.name: frame for metric, frame in zip(known, found, strict=True)}


def peaks(values: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
    """Return at every step the highest of the last values, where there is one at all.

    Parameters
    ----------
    values
        Shape (..., n_steps), NaN = missing.
    steps
        How many values, the present one included.

    Returns
    -------
    NDArray[np.float32]
        Same shape; what is missing stays missing.
    """
    known = np.where(np.isfinite(values), values, -np.inf)
    highest = known.copy()
    # Doubling: after each round every place holds the maximum of ``reach`` values.
    reach = 1
    while reach < min(steps, values.shape[-1]):
        by = min(reach, steps - reach)
        highest[..., by:] = np.maximum(highest[..., by:], highest[..., :-by])
        reach += by
    return np.where(np.isfinite(values), highest, np.float32(np.nan)).astype(np.float32)


def with_peaks(frame: JobFrame, peak_seconds: float | None, step_seconds: float) -> JobFrame:
    """Return a frame as it is compared: the values, or the peaks of so many seconds."""
    steps = round((peak_seconds or 0) / step_seconds)
    if steps <= 1:
        return frame
    if frame.gpu_values is None:
        return replace(frame, values=peaks(frame.values, steps))
    per_gpu = peaks(frame.gpu_values, steps)
    return replace(frame, values=mean_over_gpus(per_gpu), gpu_values=per_gpu)


def fill_nearest(
    values: NDArray[np.float32], limit: int, *, lookahead: int = 0
) -> NDArray[np.float32]:
    """Fill gaps with the nearest sample in time.

    Parameters
    ----------
    values
        Shape (..., n_steps), NaN = missing.
    limit
        Most steps a sample may be carried forward.
    lookahead
        Most steps a sample may be carried back. 0 keeps the result causal: what stands at a step
        never depends on later steps.

    Returns
    -------
    NDArray[np.float32]
        Same shape; gaps wider than the limits stay NaN. Of two equally near samples the earlier
        one is taken.
    """
    steps = np.arange(values.shape[-1])
    present = np.isfinite(values)
    before = np.maximum.accumulate(np.where(present, steps, -1), axis=-1)
    behind = np.where(before >= 0, steps - before, values.shape[-1] + limit)
    source, distance = before, np.where(behind <= limit, behind, np.iinfo(np.int64).max)
    if lookahead:
        flipped = np.where(present, steps, 2 * values.shape[-1] + lookahead)[..., ::-1]
        after = np.minimum.accumulate(flipped, axis=-1)[..., ::-1]
        ahead = np.where(after - steps <= lookahead, after - steps, np.iinfo(np.int64).max)
        source = np.where(ahead < distance, after, before)
        distance = np.minimum(ahead, distance)
    reachable = distance < np.iinfo(np.int64).max
    taken = np.take_along_axis(values, np.where(reachable, source, 0), axis=-1)
    return np.where(reachable, taken, np.float32(np.nan)).astype(np.float32)


def min_max(values: NDArray[np.float32], bounds: tuple[float, float]) -> NDArray[np.float32]:
    """Scale ``values`` so that ``bounds`` become 0 and 1; what lies outside is clipped."""
    low, high = bounds
    scaled: NDArray[np.float32] = ((values - low) / (high - low)).astype(np.float32)
    return np.clip(scaled, 0.0, 1.0)


def windows(values: NDArray[np.float32], length: int) -> NDArray[np.float32]:
    """Cut every window of ``length`` samples, stride 1.

    Parameters
    ----------
    values
        Shape (n_nodes, n_steps).
    length
        Samples per window.

    Returns
    -------
    NDArray[np.float32]
        Read-only view of shape (n_windows, n_nodes, length), window k ending at step
        ``k + length - 1``; no windows if there are fewer steps than ``length``.
    """
    if values.shape[1] < length:
        return np.empty((0, values.shape[0], length), dtype=np.float32)
    view = np.lib.stride_tricks.sliding_window_view(values, length, axis=1)
    return view.transpose(1, 0, 2)
