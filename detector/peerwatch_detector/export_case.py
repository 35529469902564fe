"""Writes a stretch of a live job as a case: what an incident looked like, kept for the backtest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from peerwatch_detector import promql
from peerwatch_detector.cases import Case, Truth, save_case
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.errors import CaseError
from peerwatch_detector.frame import Series, to_grid
from peerwatch_detector.reader import Reader, metric_samples
from peerwatch_detector.ring import Ring

# Of jobs or nodes that an error names, so that it stays one line.
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which job to export, and from when to when.

    Parameters
    ----------
    job_id
        The training job.
    start, end
        Unix times, both ends included, taken as whole seconds, or as whole steps of more.
    """

    job_id: str
    start: float
    end: float


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something.

    Raises
    ------
    CaseError
        If it does, or is a file.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise CaseError(f"{folder}: exists and is not empty; give a new folder.")


def export_case(
    folder: Path, stretch: Stretch, truth: Truth | None, config: DetectorConfig, reader: Reader
) -> Case:
    """Read a stretch of a job as the running detector would, and write it as a case.

    Parameters
    ----------
    folder
        Written last, when all is read; its name becomes the name of the case.
    stretch
        Job and range.
    truth
        What was wrong, if it is known; seconds from ``stretch.start``.
    config
        Which metrics, and how they are read.
    reader
        Where.

    Raises
    ------
    CaseError
        If the folder holds something, the range is empty, the job unknown, or the truth about
        other nodes or times.
    ReadError
        If Prometheus cannot be read.
    """
    check_folder(folder)
    start, end = _whole(stretch, config.step_seconds)
    job_id = stretch.job_id
    read = {
        metric: _read(metric, job_id, start, end, config, reader)
        for metric in config.detection_metrics()
    }
    nodes = _told_nodes(job_id, start, end, config, reader)
    nodes |= {one.labels["node"] for series in read.values() for one in series}
    if not any(read.values()):
        raise _nothing(job_id, start, end, nodes, config, reader)
    _check_truth(truth, nodes, end - start)
    names = tuple(sorted(nodes))
    frames, units = {}, {}
    for metric, series in read.items():
        if series:
            ring = Ring(end - start + 2 * math.ceil(config.step_seconds), config.step_seconds)
            ring.write(series)
            frame = ring.frame(job_id, metric.name, names, start, end)
            frames[metric.name] = replace(frame, times=frame.times - start)
            units[metric.name] = metric.unit
    case = Case(folder.name, job_id, float(config.step_seconds), frames, truth, units)
    try:
        save_case(case, folder, more={"start_timestamp_seconds": start})
    except OSError as error:
        raise CaseError(f"{folder}: cannot be written: {error.strerror}.") from error
    return case


def _whole(stretch: Stretch, step_seconds: float) -> tuple[int, int]:
    if not (math.isfinite(stretch.start) and math.isfinite(stretch.end)):
        raise CaseError(f"--start {stretch.start!r} and --end {stretch.end!r} must be finite.")
    # The grid begins at 0; a step below a second divides it.
    grid = max(1, round(step_seconds))
    start = math.ceil(stretch.start / grid) * grid
    end = math.floor(stretch.end / grid) * grid
    if end - start < grid:
        raise CaseError(
            f"The range from {stretch.start:.0f} to {stretch.end:.0f} is empty; "
            "--end must come after --start."
        )
    return start, end


def _read(
    metric: MetricConfig, job_id: str, start: int, end: int, config: DetectorConfig, reader: Reader
) -> list[Series]:
    # Newer servers leave out a recorded sample that lies exactly at the left end.
    first = start - 1 if config.prometheus.recorded else start
    series = metric_samples(reader, metric, job_id, first, end, config)
    step = config.step_seconds
    return [one for one in series if "node" in one.labels and _inside(one, start, end, step)]


def _inside(one: Series, start: int, end: int, step_seconds: float) -> bool:
    """Whether a series has a sample on the grid of the case."""
    steps = to_grid(one.times, step_seconds)
    first, last = (int(to_grid(time, step_seconds)) for time in (start, end))
    return bool((np.isfinite(one.values) & (steps >= first) & (steps <= last)).any())


def _told_nodes(
    job_id: str, start: int, end: int, config: DetectorConfig, reader: Reader
) -> set[str]:
    """Return the nodes that told of the job, those without any sample too."""
    selector = f"{config.discovery.job_info}{{{promql.job_matcher(job_id)}}}"
    return _labels("node", reader.raw_range(selector, start, end))


def _labels(name: str, series: list[Series]) -> set[str]:
    return {one.labels[name] for one in series if one.labels.get(name)}


def _nothing(
    job_id: str, start: int, end: int, nodes: set[str], config: DetectorConfig, reader: Reader
) -> CaseError:
    """Say why nothing was read: no such job, or a job without samples."""
    where = f"in {config.prometheus.url} between {start} and {end}"
    if nodes:
        return CaseError(
            f"Job {job_id!r} ran on {len(nodes)} nodes {where}, but none of the detection metrics "
            "has a sample; check that the recording rules are loaded (or set prometheus.recorded)."
        )
    others = _labels(
        "job_id", reader.raw_range(f'{config.discovery.job_info}{{job_id!=""}}', start, end)
    )
    known = ", ".join(sorted(others)[:_MOST_NAMED]) or "none"
    return CaseError(f"Job {job_id!r} is unknown {where}; jobs there: {known}.")


def _check_truth(truth: Truth | None, nodes: set[str], seconds: float) -> None:
    if truth is None:
        return
    if strangers := sorted(set(truth.nodes) - nodes):
        some = ", ".join(sorted(nodes)[:_MOST_NAMED])
        raise CaseError(f"--truth-node {', '.join(strangers)}: not of this job; it has {some}.")
    for name, moment in (("--onset", truth.onset_seconds), ("--halt", truth.halt_seconds)):
        if moment is not None and not 0 <= moment <= seconds:
            raise CaseError(
                f"{name}: lies {moment:.0f} s after --start, outside of the {seconds:.0f} s "
                "exported; give a time between --start and --end."
            )
