"""The windows that the metric priority is learnt from (Minder, NSDI'25, section 4.3).

A window of every metric becomes one number: how far the node that stands out most is from the mean
of its job, in standard deviations. The magnitude counts, as in the distances of the detection: a
node that falls behind is as far from its peers as one that runs ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.backtest.cases import DESCRIPTION, SAMPLES, Case, load_case
from peerwatch_detector.backtest.evaluation import lacks_truth
from peerwatch_detector.backtest.run import CaseResult
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.preprocess import fill_nearest, windows
from peerwatch_detector.detection.zscores import zscores
from peerwatch_detector.errors import CaseError


@dataclass(frozen=True, slots=True)
class LabelledWindows:
    """The windows of one case.

    Parameters
    ----------
    result
        The case; without windows if it has an error.
    features
        Largest absolute Z-score over the nodes, shape (n_windows, n_metrics); 0 where a metric
        has nothing to compare.
    faulty
        Whether the window lies in the faulty stretch, shape (n_windows,).
    lacking
        Which metrics the case has no sample of, shape (n_metrics,).
    """

    result: CaseResult
    features: NDArray[np.float64]
    faulty: NDArray[np.bool_]
    lacking: NDArray[np.bool_]


def read_windows(
    folder: Path, metrics: Sequence[MetricConfig], config: DetectorConfig
) -> LabelledWindows:
    """Read a case and cut it into windows; what is wrong with it is in the result's ``error``.

    Parameters
    ----------
    folder
        The case folder.
    metrics
        What becomes a feature, in this order.
    config
        Length of a window, how far a gap is filled, the smallest job that is compared.
    """
    try:
        case = load_case(folder)
        return _labelled(folder, case, metrics, config)
    except CaseError as error:
        result = CaseResult(folder, folder.name, error=str(error))
    width = len(metrics)
    return LabelledWindows(
        result, np.empty((0, width)), np.empty(0, dtype=bool), np.ones(width, dtype=bool)
    )


def largest_zscores(
    values: NDArray[np.float32], length: int, limit: int, min_nodes: int
) -> NDArray[np.float64]:
    """Return the largest absolute Z-score over the nodes of every window, the stride its length.

    Parameters
    ----------
    values
        Shape (n_nodes, n_steps), NaN = missing.
    length
        Samples per window; windows that overlap would differ by a few samples only.
    limit
        Most steps from a gap to the nearest sample, which fills it.
    min_nodes
        Nodes that must have a whole window, else there is nothing to compare.

    Returns
    -------
    NDArray[np.float64]
        Shape (n_windows,), of the nodes' window means; 0 where there is nothing to compare.
    """
    filled = fill_nearest(values, limit, lookahead=limit)
    means = windows(filled, length)[::length].mean(axis=2, dtype=np.float64)
    scores = np.abs(zscores(means))
    enough = np.isfinite(scores).sum(axis=1) >= min_nodes
    largest: NDArray[np.float64] = np.nan_to_num(scores, nan=0.0).max(axis=1, initial=0.0)
    return np.where(enough, largest, 0.0)


def _labelled(
    folder: Path, case: Case, metrics: Sequence[MetricConfig], config: DetectorConfig
) -> LabelledWindows:
    unknown = case.not_compared(metrics)
    unheard = case.nodes_without_samples()
    result = CaseResult(
        folder,
        case.name,
        case.nodes,
        case.seconds,
        case.truth,
        not_compared=unknown,
        incomplete=f"{folder / SAMPLES}: no sample of {', '.join(unheard)} in any metric; used "
        "without."
        if unheard
        else "",
    )
    _check(result, case, config)
    length, limit = config.window_length, round(config.minder.fill_seconds / case.step_seconds)
    frame = next(iter(case.frames.values()))
    starts = frame.times[: len(frame.times) - length + 1 : length]
    label = _labels(result, starts, case.step_seconds * length)
    kept = label >= 0
    features = np.zeros((int(kept.sum()), len(metrics)))
    lacking = np.ones(len(metrics), dtype=bool)
    for column, metric in enumerate(metrics):
        if not case.fits(metric):
            continue
        values = case.frames[metric.name].values
        lacking[column] = not np.isfinite(values).any()
        found = largest_zscores(values, length, limit, config.min_nodes)
        features[:, column] = found[kept]
    return LabelledWindows(result, features, label[kept] == 1, lacking)


def _check(result: CaseResult, case: Case, config: DetectorConfig) -> None:
    """Refuse a case that cannot say anything.

    Raises
    ------
    CaseError
        If it has no truth, no known metric, too few nodes, or is shorter than a window.
    """
    if reason := lacks_truth(result):
        raise CaseError(reason)
    file = result.folder / DESCRIPTION
    if len(result.not_compared) == len(case.units):
        raise CaseError(
            f"{result.folder / SAMPLES}: none of its metrics is known to the configuration: "
            f"{', '.join(result.not_compared)}; name them in metrics.extra, with their units."
        )
    if len(case.nodes) < config.min_nodes:
        raise CaseError(
            f"{file}: {len(case.nodes)} node(s), at least min_nodes = {config.min_nodes} "
            "are compared."
        )
    steps = len(next(iter(case.frames.values())).times)
    if steps < config.window_length:
        raise CaseError(
            f"{file}: {steps} steps are less than one window, window_length = "
            f"{config.window_length}."
        )


def _labels(result: CaseResult, starts: NDArray[np.float64], length: float) -> NDArray[np.int64]:
    """Return 1 for windows within the fault, 0 for healthy ones, -1 for those that are left out.

    Left out are windows across the onset, which are half healthy, and those that reach beyond the
    halt: a job that is over has no faulty node to flag.
    """
    truth = result.truth
    if truth is None or truth.fault is None or truth.onset_seconds is None:
        return np.zeros(len(starts), dtype=np.int64)
    ends = starts + length
    halt = np.inf if truth.halt_seconds is None else truth.halt_seconds
    label = np.where(starts >= truth.onset_seconds, 1, np.where(ends <= truth.onset_seconds, 0, -1))
    return np.where(ends > halt, -1, label).astype(np.int64)
