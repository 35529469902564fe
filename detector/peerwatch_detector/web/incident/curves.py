"""The curves of all compared metrics of one node: from the detector's memory, or from series."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import JobFrame, Series
from peerwatch_detector.reading.history_reader import History
from peerwatch_detector.reading.job_reader import JobReader
from peerwatch_detector.web.deviation import Curve
from peerwatch_detector.web.incident import queries

# Points of a small picture; band and median are those of so many peers, evenly chosen. Chosen: a
# point each five units of its width; a tenth of the peers is a dozen, enough for the band's ends.
_POINTS = 60
MOST_PEERS = 128
# Seconds; steps are multiples of it, so that pictures of one incident share their times.
_SHORTEST_STEP = 5
# The band's ends and the median: what four of five peers lie within.
_SHARES = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What of whom is drawn: between two Unix times, in about so many points."""

    job_id: str
    node: str
    gpu: str
    start: float
    end: float
    points: int = _POINTS

    @property
    def step(self) -> float:
        """Seconds between two points."""
        seconds = (self.end - self.start) / self.points
        return float(_SHORTEST_STEP * max(1, math.ceil(seconds / _SHORTEST_STEP)))


def held_curves(
    reader: JobReader, nodes: Sequence[str], metrics: Sequence[MetricConfig], asked: Stretch
) -> list[Curve]:
    """Return the curves of which the detector holds samples, in the order of ``metrics``."""
    shown = with_peers(asked.node, nodes)
    found = []
    for metric in metrics:
        start = max(asked.start, asked.end - reader.kept_seconds(metric.name))
        if start >= asked.end:
            continue
        frame = reader.frame(metric.name, shown, start, asked.end)
        if frame is not None:
            found.append(_of_frame(metric, frame, asked))
    return [curve for curve in found if curve.is_known]


def with_peers(node: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Return a node and its peers, of many so many that are evenly chosen."""
    others = [each for each in nodes if each != node]
    return node, *others[:: max(1, -(-len(others) // MOST_PEERS))]


def _of_frame(metric: MetricConfig, frame: JobFrame, asked: Stretch) -> Curve:
    times, values = coarse(frame, asked)
    # A job that is younger than the stretch fills its picture.
    known = np.flatnonzero(np.isfinite(values).any(axis=0))
    first = max(0, min(int(known[0]), len(times) - 2)) if len(known) else 0
    times, values = times[first:], values[:, first:]
    low, median, high = quantiles(values[1:])
    return Curve(
        metric.name,
        metric.shown_title,
        metric.unit,
        asked.node,
        asked.gpu if asked.gpu in frame.gpus else "",
        times.tolist(),
        values[0].tolist(),
        low.tolist(),
        median.tolist(),
        high.tolist(),
    )


def coarse(frame: JobFrame, asked: Stretch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times and values of a frame, means over ``asked.step`` seconds; NaN without samples.

    Of a metric per GPU the values are those of ``asked.gpu``, if it is one.
    """
    values = frame.values
    if asked.gpu in frame.gpus and frame.gpu_values is not None:
        values = frame.gpu_values[:, frame.gpus.index(asked.gpu)]
    bins = np.floor(frame.times / asked.step).astype(np.int64)
    first = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), first, axis=1, dtype=np.float64)
    counts = np.add.reduceat(known, first, axis=1, dtype=np.int64)
    with np.errstate(invalid="ignore"):
        means = sums / np.where(counts, counts, np.nan)
    return frame.times[first], means


def quantiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the quantiles 0.1, 0.5 and 0.9 over the rows, shape (3, n_steps); NaN without rows.

    As ``np.nanquantile``, which goes through the steps one by one: a view has thousands.
    """
    found = np.full((len(_SHARES), values.shape[1]), np.nan)
    counts = (~np.isnan(values)).sum(axis=0)
    steps = np.flatnonzero(counts)
    # What is missing is sorted behind all that is known.
    ordered = np.sort(values[:, steps], axis=0)
    places = np.multiply.outer(_SHARES, counts[steps] - 1.0)
    below = np.floor(places).astype(np.int64)
    above = np.minimum(below + 1, counts[steps] - 1)
    columns = np.arange(len(steps))
    low, high = ordered[below, columns], ordered[above, columns]
    found[:, steps] = low + (high - low) * (places - below)
    return found


def past_curves(
    history: History, metrics: Sequence[MetricConfig], asked: Stretch, config: DetectorConfig
) -> tuple[list[Curve], list[str]]:
    """Return the curves that the series say, and what could not be read, in sentences.

    Raises
    ------
    ReadError
        If the server does not answer at all.
    """
    by_name = {metric.name: metric for metric in metrics}
    answers = history.over(
        {
            name: queries.curve(metric, asked.job_id, asked.node, asked.gpu, config)
            for name, metric in by_name.items()
        },
        asked.start,
        asked.end,
        asked.step,
    )
    times = np.arange(asked.start, asked.end + 1e-3, asked.step)
    curves, missing = [], []
    for name, metric in by_name.items():
        answer = answers[name]
        if isinstance(answer, ReadError):
            missing.append(f"{metric.shown_title}: {answer}")
            continue
        lines = {series.labels.get("line", ""): series for series in answer}
        rows = [
            on_times(lines.get(line), times).tolist() for line in ("value", "low", "median", "high")
        ]
        gpu = asked.gpu if metric.scope == "gpu" else ""
        curve = Curve(name, metric.shown_title, metric.unit, asked.node, gpu, times.tolist(), *rows)
        if curve.is_known:
            curves.append(curve)
    return curves, missing


def on_times(series: Series | None, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values of a series at regular times; NaN where it has none."""
    values = np.full(len(times), np.nan)
    if series is not None and len(times) > 1:
        places = np.rint((series.times - times[0]) / (times[1] - times[0])).astype(np.int64)
        inside = (places >= 0) & (places < len(times))
        values[places[inside]] = series.values[inside]
    return values
