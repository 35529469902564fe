"""Gathers the healthy windows that models are trained on, from Prometheus or from cases.

For the model of all metrics (``train --integrated``) a window is one of every metric that method
minder compares, of the same node and time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from peerwatch_common.errors import ConfigError
from peerwatch_detector.backtest.cases import DESCRIPTION, Case, load_case
from peerwatch_detector.backtest.reading import Advance, read_metrics, unshown
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.preprocess import fill_nearest, min_max, windows, with_peaks
from peerwatch_detector.errors import CaseError, TrainingError
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.models.base import INTEGRATED
from peerwatch_detector.reading import Grid
from peerwatch_detector.reading.reader import Reader, nodes_of_jobs

# Share of the samples that may lie outside a metric's bounds: more are no glitches, but another
# unit or bounds that do not fit, and the model would learn a clipped line. Chosen: glitches are far
# rarer than one sample in a hundred.
_OUTSIDE = 0.01


class HealthyWindows(dict[str, NDArray[np.float32]]):
    """Scaled healthy windows by metric, in the order of time.

    Shape (n, window_length) each; those of all metrics together, (n, window_length, n_metrics),
    under ``INTEGRATED``. ``broken`` says by metric why its samples cannot train a model.
    """

    def __init__(self, *given: dict[str, NDArray[np.float32]]) -> None:
        super().__init__(*given)
        self.broken: dict[str, str] = {}


def integrated_metrics(config: DetectorConfig, known: Iterable[str]) -> tuple[MetricConfig, ...]:
    """Return the inputs of the model of all metrics: those of method minder among ``known``."""
    names = set(known)
    metrics = config.model_copy(update={"method": "minder"}).detection_metrics()
    return tuple(metric for metric in metrics if metric.name in names)


def windows_from_prometheus(
    config: DetectorConfig,
    reader: Reader,
    job_id: str,
    start: float,
    end: float,
    *,
    integrated: bool = False,
    advance: Advance = unshown,
) -> HealthyWindows:
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
    integrated
        Whether windows of all metrics together are wanted too.
    advance
        Called with the number of metrics after each read.

    Returns
    -------
    HealthyWindows
        Metrics without samples are left out.

    Raises
    ------
    ConfigError
        If the range is empty, reversed, or shorter than a window.
    TrainingError
        If the job has no samples in it.
    """
    if not config.window_length <= end - start < np.inf:
        raise ConfigError(
            [
                f"The range from {start:.0f} to {end:.0f} holds {end - start:.0f} s, at least "
                f"{config.window_length} s are needed; check --start and --end."
            ]
        )
    step = config.step_seconds
    nodes = sorted(nodes_of_jobs(reader, config, start, end).get(job_id, ()))
    frames = {}
    grid = Grid.of_seconds(start, end, step)
    for metric, reading in read_metrics(reader, config, job_id, grid, nodes, advance):
        block = reading.result().block.with_samples()
        if block.keys:
            names = sorted({node for node, _ in block.keys})
            frames[metric.name] = block.frame(job_id, metric.name, names)
    collector = _Collector(config)
    collector.add(_same_nodes(frames) if integrated else frames, step)
    otherwise = f"Job {job_id!r} has no samples between {start:.0f} and {end:.0f}"
    return collector.result(otherwise, integrated=integrated)


def windows_from_cases(
    config: DetectorConfig,
    folders: list[Path],
    *,
    integrated: bool = False,
    advance: Advance = unshown,
) -> HealthyWindows:
    """Cut the healthy part of recorded cases into scaled windows.

    The part before the onset of a case with a fault counts as healthy: nothing where the fault
    began before the recording. Metrics that a case has
    under another unit are left out.

    Parameters
    ----------
    config
        Which metrics, how scaled.
    folders
        The cases.
    integrated
        Whether windows of all metrics together are wanted too; cases that lack one of the metrics
        give none of those.
    advance
        Called with 1 after each case.

    Raises
    ------
    CaseError
        If a folder is not a case, or has a fault without an onset.
    TrainingError
        If no case has any of the detection metrics.
    """
    collector = _Collector(config)
    for folder in folders:
        case = load_case(folder)
        if case.truth and case.truth.fault is not None and case.truth.onset_seconds is None:
            raise CaseError(
                f"{folder / DESCRIPTION}: truth has a fault {case.truth.fault!r} but no "
                "onset_seconds, and only what is before it is healthy; write when it began, or "
                "leave the case out."
            )
        metrics = [metric for metric in config.detection_metrics() if case.fits(metric)]
        frames = {metric.name: _healthy_part(case, metric.name) for metric in metrics}
        collector.add(frames, case.step_seconds)
        advance(1)
    otherwise = "None of the cases has one of the detection metrics in its unit"
    return collector.result(otherwise, integrated=integrated)


def _healthy_part(case: Case, metric: str) -> JobFrame:
    frame = case.frames[metric]
    onset = case.truth.onset_seconds if case.truth else None
    end = len(frame.times) if onset is None else max(0, int(onset / case.step_seconds))
    return JobFrame(
        frame.job_id, frame.metric, frame.nodes, frame.times[:end], frame.values[:, :end]
    )


def _same_nodes(frames: dict[str, JobFrame]) -> dict[str, JobFrame]:
    """Bring the frames of one job onto the nodes of all of them; NaN where one has none."""
    nodes = tuple(sorted({node for frame in frames.values() for node in frame.nodes}))
    aligned = {}
    for name, frame in frames.items():
        values = np.full((len(nodes), len(frame.times)), np.nan, dtype=np.float32)
        values[[nodes.index(node) for node in frame.nodes]] = frame.values
        aligned[name] = JobFrame(frame.job_id, name, nodes, frame.times, values)
    return aligned


@dataclass
class _Cut:
    """Windows of one metric in one range, shape (n_windows, n_nodes, window_length)."""

    scaled: NDArray[np.float32]
    whole: NDArray[np.bool_]


@dataclass
class _Collector:
    """Collects windows range by range, and what is wrong with the samples."""

    config: DetectorConfig
    parts: list[dict[str, _Cut]] = field(default_factory=list)
    samples: dict[str, int] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    farthest: dict[str, float] = field(default_factory=dict)

    def add(self, frames: dict[str, JobFrame], step_seconds: float) -> None:
        """Fill, scale and cut the frames of one range."""
        metrics = {metric.name: metric for metric in self.config.detection_metrics()}
        # As the detection has it: samples further apart than a second count as seconds.
        limit = round(self.config.fill_limit_seconds / min(step_seconds, 1.0))
        length = self.config.window_length
        cuts = {}
        for name, frame in frames.items():
            frame = with_peaks(frame, metrics[name].peak_seconds, step_seconds)  # noqa: PLW2901
            self._count(metrics[name], frame.values)
            filled = fill_nearest(frame.values, limit, lookahead=limit)
            cut = windows(filled, length)
            whole: NDArray[np.bool_] = np.asarray(np.isfinite(cut).all(axis=2))
            cuts[name] = _Cut(min_max(cut, metrics[name].bounds), whole)
        self.parts.append(cuts)

    def _count(self, metric: MetricConfig, values: NDArray[np.float32]) -> None:
        """Count the samples and those outside the bounds."""
        low, high = metric.bounds
        given = values[np.isfinite(values)]
        # The scaling is in float32 too: what rounds onto a bound is inside.
        outside = given[(given < np.float32(low)) | (given > np.float32(high))]
        self.samples[metric.name] = self.samples.get(metric.name, 0) + len(given)
        self.outside[metric.name] = self.outside.get(metric.name, 0) + len(outside)
        farthest = [self.farthest.get(metric.name, low), *outside.tolist()]
        self.farthest[metric.name] = max(farthest, key=lambda value: max(low - value, value - high))

    def result(self, otherwise: str, *, integrated: bool) -> HealthyWindows:
        """Return everything gathered; ``otherwise`` says what it means if that is nothing."""
        names = dict.fromkeys(name for cuts in self.parts for name in cuts)
        if not names:
            raise TrainingError(f"{otherwise}; check the job, the range and metrics.enabled.")
        found = HealthyWindows()
        for name in names:
            parts = [cuts[name] for cuts in self.parts if name in cuts]
            found[name] = np.concatenate([part.scaled[part.whole] for part in parts])
        found.broken = {name: reason for name in names if (reason := self._broken(name, found))}
        if integrated:
            wanted = [metric.name for metric in integrated_metrics(self.config, names)]
            found[INTEGRATED] = self._together(wanted)
        return found

    def _broken(self, name: str, found: HealthyWindows) -> str:
        samples, outside = self.samples[name], self.outside[name]
        if not samples:
            return "every sample is missing; check that the nodes export it."
        if not len(found[name]):
            return (
                f"no complete window: of {samples} samples no {self.config.window_length} follow "
                f"one another without a gap wider than {self.config.fill_limit_seconds:g} s."
            )
        if outside > _OUTSIDE * samples:
            bounds = next(
                metric.bounds for metric in self.config.detection_metrics() if metric.name == name
            )
            return (
                f"{outside / samples:.1%} of the samples lie outside its bounds "
                f"{list(bounds)!r}, as far as {self.farthest[name]:g}, at most {_OUTSIDE:.0%} may; "
                f"check the unit or set metrics.overrides.{name}.bounds."
            )
        return ""

    def _together(self, names: list[str]) -> NDArray[np.float32]:
        """Return the windows that are whole in all metrics, shape (n, window_length, n_metrics)."""
        length = self.config.window_length
        parts = [np.empty((0, length, len(names)), dtype=np.float32)]
        for cuts in self.parts:
            if not names or not set(names) <= cuts.keys():
                continue
            whole = np.all([cuts[name].whole for name in names], axis=0)
            parts.append(np.stack([cuts[name].scaled[whole] for name in names], axis=-1))
        return np.concatenate(parts)
