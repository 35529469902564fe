"""Synthetic samples of the size of a training job, to measure what evaluating it costs here.

The cost depends on the size, the gaps and whether anything deviates, not on how a job trains: every
metric is noise around a level, nodes have an offset, samples are missing here and there, and one
node may be at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.job_detector import Detection, JobDetector
from peerwatch_detector.detection.pipeline import evaluate
from peerwatch_detector.frame import JobFrame, mean_over_gpus
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import Model

# The defaults of history_seconds and of cycle_seconds; eight cycles are two minutes of samples.
JOB, START, SECONDS, CYCLE, CYCLES = "bench", 1_700_000_000, 900, 15, 8
# Share of the samples that are missing, and of the nodes with an outage of half a minute. Made up:
# each series lacks a sample or two in its 900.
_MISSING, _OUTAGES = 0.002, 0.01
# In the midst of the first call, so that the fault has lasted long enough to be a finding (240 s).
_FAULTY_METRIC, _FAULTY_FROM = "gpu_tensor_activity", 500


def synthetic_frames(
    nodes: int, gpus: int, config: DetectorConfig, *, faulty: bool
) -> dict[str, JobFrame]:
    """Return the samples of a job, by metric.

    Parameters
    ----------
    nodes
        How many there are.
    gpus
        Rows of a node in metrics per GPU; with 1 they have one row per node, as other metrics do.
    config
        Its metrics.
    faulty
        Whether a node's tensor cores fall to less than half, and all others wait for it.
    """
    rng = np.random.default_rng(nodes)
    names = tuple(f"gpu-node-{node:05d}" for node in range(nodes))
    frames = {}
    for metric in config.detection_metrics():
        units = gpus if metric.scope == "gpu" else 1
        values = _values(rng, nodes * units, metric, faulty=faulty)
        if faulty and metric.name == _FAULTY_METRIC:
            values[units * (nodes // 2) :][:units, _FAULTY_FROM:] *= 0.4
        frames[metric.name] = _frame(metric.name, names, values, units)
    return frames


def _values(
    rng: np.random.Generator, rows: int, metric: MetricConfig, *, faulty: bool
) -> NDArray[np.float32]:
    middle = metric.bounds[0] + 0.4 * (metric.bounds[1] - metric.bounds[0])
    seconds = SECONDS + CYCLE * CYCLES
    values = rng.standard_normal((rows, seconds), dtype=np.float32)
    values *= np.float32(0.02)
    values += rng.normal(1, 0.01, (rows, 1)).astype(np.float32)
    values *= np.float32(middle)
    if faulty:
        # All wait for the faulty node.
        values[:, _FAULTY_FROM:] *= np.float32(0.85)
    values[rng.random(values.shape, dtype=np.float32) < _MISSING] = np.nan
    for row in rng.choice(rows, max(1, round(_OUTAGES * rows)), replace=False):
        begin = int(rng.integers(seconds))
        values[row, begin : begin + 30] = np.nan
    return values


def _frame(
    metric: str, names: tuple[str, ...], values: NDArray[np.float32], units: int
) -> JobFrame:
    times = START + np.arange(values.shape[1], dtype=np.float64)
    if units == 1:
        return JobFrame(JOB, metric, names, times, values)
    per_gpu = values.reshape(len(names), units, values.shape[1])
    labels = tuple(str(gpu) for gpu in range(units))
    return JobFrame(JOB, metric, names, times, mean_over_gpus(per_gpu), labels, per_gpu)


@dataclass(slots=True)
class SyntheticJob:
    """A job of synthetic samples, evaluated cycle after cycle as the service would.

    Parameters
    ----------
    config, models
        As for ``JobDetector``.
    frames
        From ``synthetic_frames``.
    """

    config: DetectorConfig
    models: dict[str, Model]
    frames: Mapping[str, JobFrame]
    detector: JobDetector = field(init=False)
    evaluated: int = 0

    def __post_init__(self) -> None:
        self.detector = JobDetector(self.config, self.models)

    def until(self, second: int) -> Callable[[], Detection]:
        """Return the detection of the time up to a second, to be called once.

        What comes before it, cutting the frames, is reading and not evaluating.
        """
        margin = int(self.config.margin_seconds)
        newest = second - self.config.context_steps
        left = max(0, min(self.evaluated - margin, newest)) if self.evaluated else 0
        frames = {name: _cut(frame, left, second) for name, frame in self.frames.items()}
        job = Job(JOB, next(iter(frames.values())).nodes)
        now = float(START + second - 1)
        self.evaluated = second
        return lambda: evaluate(self.detector, job, frames, now)


def _cut(frame: JobFrame, left: int, right: int) -> JobFrame:
    """Return some steps of a frame, in memory of their own as a ring gives them."""
    per_gpu = frame.gpu_values
    return replace(
        frame,
        times=frame.times[left:right],
        values=frame.values[:, left:right].copy(),
        gpu_values=None if per_gpu is None else per_gpu[:, :, left:right].copy(),
    )
