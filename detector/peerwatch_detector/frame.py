"""The values that travel between the stages: series as read, frames as evaluated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled

# Chosen: with eight GPUs and 900 samples 15 MB of float32, and enough that numpy does the work.
_NODES_AT_A_TIME = 512


@dataclass(frozen=True, slots=True)
class Series:
    """One labelled series as a server delivered it.

    Parameters
    ----------
    labels
        Label names and values, without the metric name.
    times
        Unix seconds, rising, shape (n_samples,).
    values
        Shape (n_samples,).
    """

    labels: dict[str, str]
    times: NDArray[np.float64]
    values: NDArray[np.float64]


class PartialAnswer(list[Series]):
    """Series of which the server says that others are missing, as when a store is down."""


@dataclass(frozen=True, slots=True)
class JobFrame:
    """One metric of one training job on a regular time grid.

    Parameters
    ----------
    job_id, metric
        What this is about.
    nodes
        Node names, the order of the first axis.
    times
        Unix seconds of the steps, shape (n_steps,).
    values
        Shape (n_nodes, n_steps); NaN = missing sample. For metrics per GPU the mean over the
        node's GPUs.
    gpus
        GPU indices, or empty for metrics per node.
    gpu_values
        Shape (n_nodes, n_gpus, n_steps), or None for metrics per node.
    """

    job_id: str
    metric: str
    nodes: tuple[str, ...]
    times: NDArray[np.float64]
    values: NDArray[np.float32]
    gpus: tuple[str, ...] = ()
    gpu_values: NDArray[np.float32] | None = None


def to_grid(times: NDArray[np.float64] | float, step_seconds: float) -> NDArray[np.int64]:
    """Return which step of the grid each Unix time is nearest to; the grid begins at 0."""
    nearest: NDArray[np.int64] = np.rint(np.asarray(times) / step_seconds).astype(np.int64)
    return nearest


def from_grid(steps: NDArray[np.int64], step_seconds: float) -> NDArray[np.float64]:
    """Return the Unix times of steps; those of a step of 0.1 s are exact to the last bit.

    A step below a second divides it, and a quotient of whole numbers is the nearest number to the
    decimal, as a product with 0.1 is not.
    """
    counted = steps.astype(np.float64)
    return counted / round(1 / step_seconds) if step_seconds < 1 else counted * step_seconds


def mean_over_gpus(per_gpu: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean over the GPUs that have a sample, shape (n_nodes, n_steps); NaN where none has."""
    mean = np.empty((per_gpu.shape[0], per_gpu.shape[2]), np.float32)
    average = _average if compiled.ready() else _average_in_numpy
    average(per_gpu, mean)
    return mean


@compiled.compiled
def _average(per_gpu: NDArray[np.float32], mean: NDArray[np.float32]) -> None:
    """Fill in the means, shape (n_nodes, n_steps), in one pass over the samples."""
    steps = per_gpu.shape[2]
    total, count = np.empty(steps, np.float32), np.empty(steps, np.float64)
    for node in range(len(per_gpu)):
        total[:] = 0
        count[:] = 0
        for gpu in range(per_gpu.shape[1]):
            row = per_gpu[node, gpu]
            for step in range(steps):
                known = abs(row[step]) < np.inf
                total[step] += row[step] if known else np.float32(0.0)
                count[step] += 1.0 if known else 0.0
        for step in range(steps):
            none = count[step] == 0
            mean[node, step] = np.nan if none else np.float64(total[step]) / count[step]


def _average_in_numpy(per_gpu: NDArray[np.float32], mean: NDArray[np.float32]) -> None:
    """Do the same, where nothing is compiled."""
    # In parts: what stands in between is larger than the frame.
    for first in range(0, len(per_gpu), _NODES_AT_A_TIME):
        part = per_gpu[first : first + _NODES_AT_A_TIME]
        present = np.isfinite(part)
        total = np.where(present, part, 0).sum(axis=1)
        count = present.sum(axis=1)
        with np.errstate(invalid="ignore"):
            mean[first : first + len(part)] = total / np.where(count, count, np.nan)
