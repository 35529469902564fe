"""Recorded cases: a folder with ``case.json`` and ``samples.npz`` (the format of the backtest)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import MetricConfig
from peerwatch_detector.errors import DAMAGED_ARCHIVE, CaseError
from peerwatch_detector.frame import JobFrame, mean_over_gpus

# Case units are those of the recording tools; the detector's are base units.
_TO_BASE = {"percent": ("ratio", 0.01), "megahertz": ("hertz", 1e6)}


@dataclass(frozen=True, slots=True)
class Truth:
    """What was wrong in a case, as far as its folder tells.

    Parameters
    ----------
    fault
        Name of the fault, or None for a healthy case.
    nodes
        The faulty nodes.
    onset_seconds, halt_seconds
        Seconds from the start of the case; None if there was none.
    """

    fault: str | None
    nodes: tuple[str, ...]
    onset_seconds: float | None
    halt_seconds: float | None


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded job.

    Parameters
    ----------
    name, job_id
        Names of the case and of the job in it.
    step_seconds
        Time between two samples.
    frames
        By metric; times are seconds from the start of the case.
    truth
        None if the folder does not tell.
    units
        By metric, in base units where the unit is known.
    """

    name: str
    job_id: str
    step_seconds: float
    frames: dict[str, JobFrame]
    truth: Truth | None
    units: dict[str, str]

    def fits(self, metric: MetricConfig) -> bool:
        """Whether the case has this detection metric, in its unit."""
        return self.units.get(metric.name) == metric.unit


def load_case(folder: Path) -> Case:
    """Read a case folder.

    Raises
    ------
    CaseError
        If a file is missing or the two contradict each other.
    """
    try:
        meta = json.loads((folder / "case.json").read_text())
        nodes = tuple(str(node) for node in meta["nodes"])
        times = np.arange(int(meta["seconds"]), dtype=np.float64) * float(meta["step_seconds"])
        frames, units = {}, {}
        # numpy leaves a file open that it opened itself and found to be broken.
        with (folder / "samples.npz").open("rb") as file, np.load(file) as samples:
            for name, about in meta["metrics"].items():
                units[name], factor = _TO_BASE.get(about["unit"], (about["unit"], 1.0))
                values = samples[name].astype(np.float32) * np.float32(factor)
                frames[name] = _frame(folder, meta["job_id"], name, nodes, times, values)
        truth = _truth(meta.get("truth"))
    except OSError as error:
        raise CaseError(f"{folder}: cannot be read: {error}.") from error
    except DAMAGED_ARCHIVE as error:
        raise CaseError(
            f"{folder}: is not a case: {error!r}; it needs case.json and samples.npz that agree."
        ) from error
    return Case(meta["name"], meta["job_id"], float(meta["step_seconds"]), frames, truth, units)


def _truth(about: dict[str, object] | None) -> Truth | None:
    if about is None:
        return None
    nodes, fault = about.get("nodes") or [], about.get("fault")
    onset, halt = about.get("onset_seconds"), about.get("halt_seconds")
    if not isinstance(nodes, list):
        raise TypeError(f"truth.nodes {nodes!r} is not a list")
    return Truth(
        None if fault is None else str(fault),
        tuple(str(node) for node in nodes),
        float(onset) if isinstance(onset, (int, float)) else None,
        float(halt) if isinstance(halt, (int, float)) else None,
    )


def _frame(
    folder: Path,
    job_id: str,
    name: str,
    nodes: tuple[str, ...],
    times: NDArray[np.float64],
    values: NDArray[np.float32],
) -> JobFrame:
    """Check the axes of one metric and wrap it."""
    if values.ndim not in {2, 3} or values.shape[0] != len(nodes) or values.shape[-1] != len(times):
        raise CaseError(
            f"{folder}: metric {name!r} has shape {values.shape!r}, case.json says "
            f"{len(nodes)} nodes and {len(times)} steps."
        )
    if values.ndim == 2:
        return JobFrame(job_id, name, nodes, times, values)
    gpus = tuple(str(gpu) for gpu in range(values.shape[1]))
    return JobFrame(job_id, name, nodes, times, mean_over_gpus(values), gpus, values)
