"""Writes a stretch of a live job as a case: what an incident looked like, kept for the backtest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from peerwatch_detector.backtest.cases import Case, Truth, save_case
from peerwatch_detector.backtest.reading import Advance, read_metrics, unshown
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import CaseError, OutputError
from peerwatch_detector.reading import Grid
from peerwatch_detector.reading.reader import Reader, nodes_of_jobs

# Of jobs or nodes that an error names, so that it stays one line: eight names of some ten letters.
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
    folder: Path,
    stretch: Stretch,
    truth: Truth | None,
    config: DetectorConfig,
    reader: Reader,
    advance: Advance = unshown,
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
    advance
        Called with the number of metrics after each read.

    Raises
    ------
    CaseError
        If the folder holds something, the range is empty, the job unknown, or the truth about
        other nodes or times.
    OutputError
        If it cannot be written.
    ReadError
        If Prometheus cannot be read.
    """
    check_folder(folder)
    start, end = _whole(stretch, config.step_seconds)
    job_id = stretch.job_id
    jobs = nodes_of_jobs(reader, config, start, end)
    nodes = jobs.get(job_id, set())
    grid = Grid.of_seconds(start, end, config.step_seconds)
    read = [
        (metric, block)
        for metric, reading in read_metrics(reader, config, job_id, grid, sorted(nodes), advance)
        if (block := reading.result().block.with_samples()).keys
    ]
    if not read:
        raise _nothing(stretch, jobs, config)
    nodes = nodes.union(*({node for node, _ in block.keys} for _, block in read))
    _check_truth(truth, nodes, end - start)
    names = tuple(sorted(nodes))
    frames, units = {}, {}
    for metric, block in read:
        frame = block.frame(job_id, metric.name, names)
        frames[metric.name] = replace(frame, times=frame.times - start)
        units[metric.name] = metric.unit
    case = Case(folder.name, job_id, float(config.step_seconds), frames, truth, units)
    try:
        save_case(case, folder, more={"start_timestamp_seconds": start})
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}.") from error
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


def _nothing(stretch: Stretch, jobs: dict[str, set[str]], config: DetectorConfig) -> CaseError:
    """Say why nothing was read: no such job, or a job without samples."""
    job_id, nodes = stretch.job_id, jobs.get(stretch.job_id)
    where = f"in {config.prometheus.shown_url} between {stretch.start:.0f} and {stretch.end:.0f}"
    if nodes:
        return CaseError(
            f"Job {job_id!r} ran on {len(nodes)} nodes {where}, but none of the detection metrics "
            "has a sample; check that the recording rules are loaded (or set prometheus.recorded)."
        )
    known = ", ".join(sorted(jobs)[:_MOST_NAMED]) or "none"
    return CaseError(f"Job {job_id!r} is unknown {where}; jobs there: {known}.")


def _check_truth(truth: Truth | None, nodes: set[str], seconds: float) -> None:
    if truth is None:
        return
    if strangers := sorted(set(truth.nodes) - nodes):
        known = ", ".join(sorted(nodes)[:_MOST_NAMED])
        raise CaseError(f"--truth-node {', '.join(strangers)}: not of this job; it has {known}.")
    for name, moment in (("--onset", truth.onset_seconds), ("--halt", truth.halt_seconds)):
        if moment is not None and not 0 <= moment <= seconds:
            raise CaseError(
                f"{name}: lies {moment:.0f} s after --start, outside of the {seconds:.0f} s "
                "exported; give a time between --start and --end."
            )
