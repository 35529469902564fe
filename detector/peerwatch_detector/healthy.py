"""Gathers the healthy windows that models are trained on, from Prometheus or from cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import promql
from peerwatch_detector.cases import load_case
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.errors import TrainingError
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.preprocess import fill_nearest, min_max, windows
from peerwatch_detector.reader import Reader
from peerwatch_detector.ring import Ring

Windows = dict[str, NDArray[np.float32]]


def windows_from_prometheus(
    config: DetectorConfig, reader: Reader, job_id: str, start: float, end: float
) -> Windows:
    """Read one job's range and cut it into scaled windows.

    Parameters
    ----------
    config
        Which metrics, how scaled.
    reader
        Where the range is read.
    job_id
        The training job.
    start, end
        Unix times between which the job was healthy.

    Returns
    -------
    Windows
        By metric, shape (n, window_length); metrics without samples are left out.

    Raises
    ------
    TrainingError
        If the range is empty or turned round.
    """
    if not end - start >= config.window_length:
        raise TrainingError(
            f"The range from {start:.0f} to {end:.0f} holds {end - start:.0f} s, at least "
            f"{config.window_length} s are needed; check --start and --end."
        )
    gathered = {}
    for metric in config.detection_metrics():
        if config.prometheus.recorded:
            series = reader.raw_range(promql.recorded_query(metric, job_id), start, end)
        else:
            query = promql.joined_query(metric, job_id, config.rate_window_seconds)
            series = reader.stepped_range(query, start, end, 1.0)
        ring = Ring(int(end - start) + 2)
        ring.write(series)
        if ring.newest < 0:
            continue
        nodes = tuple(sorted({one.labels["node"] for one in series if "node" in one.labels}))
        frame = ring.frame(job_id, metric.name, nodes, int(start), int(end))
        gathered[metric.name] = _cut(frame, metric, config)
    return _some(gathered, f"Job {job_id!r} has no samples between {start:.0f} and {end:.0f}")


def windows_from_cases(config: DetectorConfig, folders: list[Path]) -> Windows:
    """Cut the healthy part of recorded cases into scaled windows.

    The part before the onset of a case with a fault counts as healthy. Metrics that a case has
    under another unit are left out.

    Raises
    ------
    CaseError
        If a folder is not a case.
    TrainingError
        If no case has any of the detection metrics.
    """
    parts: dict[str, list[NDArray[np.float32]]] = {}
    for folder in folders:
        case = load_case(folder)
        onset = case.truth.onset_seconds if case.truth else None
        for metric in config.detection_metrics():
            if not case.fits(metric):
                continue
            frame = case.frames[metric.name]
            healthy = len(frame.times) if onset is None else int(onset / case.step_seconds)
            values = frame.values[:, :healthy]
            shorter = JobFrame(
                frame.job_id, frame.metric, frame.nodes, frame.times[:healthy], values
            )
            parts.setdefault(metric.name, []).append(_cut(shorter, metric, config))
    gathered = {name: np.concatenate(some) for name, some in parts.items()}
    return _some(gathered, "None of the cases has one of the detection metrics in its unit")


def _cut(frame: JobFrame, metric: MetricConfig, config: DetectorConfig) -> NDArray[np.float32]:
    """Fill, scale and cut a frame; windows with a hole are dropped. Shape (n, window_length)."""
    limit = config.fill_limit_seconds
    filled = fill_nearest(frame.values, limit, lookahead=limit)
    cut = windows(filled, config.window_length).reshape(-1, config.window_length)
    return min_max(cut[np.isfinite(cut).all(axis=1)], metric.bounds)


def _some(gathered: Windows, otherwise: str) -> Windows:
    if not gathered:
        raise TrainingError(f"{otherwise}; check the job, the range and metrics.enabled.")
    return gathered
