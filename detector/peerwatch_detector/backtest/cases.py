"""Recorded cases: a folder with ``case.json`` and ``samples.npz`` (the format of the backtest)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import ReadMetric, names_by_alias
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, read_events
from peerwatch_detector.diagnosis.root.evidence.recorded import read_description
from peerwatch_detector.errors import DAMAGED_ARCHIVE, CaseError
from peerwatch_detector.frame import JobFrame, mean_over_gpus

DESCRIPTION, SAMPLES = "case.json", "samples.npz"
# Case units are those of the recording tools; the detector's are base units.
_TO_BASE = {"percent": ("ratio", 0.01), "megahertz": ("hertz", 1e6)}
_AXES = {2: ["node", "time"], 3: ["node", "gpu", "time"]}
# Not part of the format; some recorders add them, and then they must rise.
_CLOCKS = ("time", "times", "timestamps")


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
    gpus
        The GPUs at fault, where single ones are known to be.
    """

    fault: str | None
    nodes: tuple[str, ...]
    onset_seconds: float | None
    halt_seconds: float | None
    gpus: tuple[str, ...] = ()


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
        None if the folder has none.
    units
        By metric, in base units where the unit is known.
    roles
        What nodes do in the job, where they differ by design; see ``Job``.
    events
        What was observed beside the samples, in order of time.
    """

    name: str
    job_id: str
    step_seconds: float
    frames: dict[str, JobFrame]
    truth: Truth | None
    units: dict[str, str]
    roles: dict[str, str] = field(default_factory=dict)
    events: tuple[Evidence, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The job's nodes."""
        return next(iter(self.frames.values())).nodes

    @property
    def seconds(self) -> float:
        """Length of the case."""
        return len(next(iter(self.frames.values())).times) * self.step_seconds

    def fits(self, metric: ReadMetric) -> bool:
        """Whether the case has this metric, in its unit."""
        return self.units.get(metric.name) == metric.unit

    def not_compared(self, metrics: Iterable[ReadMetric]) -> tuple[str, ...]:
        """Return the metrics of the case that are not among ``metrics``, or in another unit."""
        compared = {metric.name for metric in metrics if self.fits(metric)}
        return tuple(f"{name} ({self.units[name]})" for name in self.units if name not in compared)

    def nodes_without_samples(self) -> tuple[str, ...]:
        """Return the nodes without a single sample of any metric."""
        with_samples = np.zeros(len(self.nodes), dtype=bool)
        for frame in self.frames.values():
            with_samples |= np.isfinite(frame.values).any(axis=1)
        return tuple(
            node for node, sampled in zip(self.nodes, with_samples, strict=True) if not sampled
        )


def find_cases(paths: Iterable[Path]) -> list[Path]:
    """Return the case folders at or below the paths, in order, each once.

    A path without any is returned itself: reading it says what is missing.
    """
    found: dict[Path, None] = {}
    for path in paths:
        here = {file.parent for name in (DESCRIPTION, SAMPLES) for file in path.rglob(name)}
        found |= dict.fromkeys(sorted(here) or [path])
    return list(found)


def load_case(folder: Path) -> Case:
    """Read a case folder.

    Infinite samples count as missing. Metrics under an alias get their detection metric's name.

    Raises
    ------
    CaseError
        If a file is missing or the two contradict each other; it names the file.
    """
    try:
        meta = read_description(folder / DESCRIPTION)
        nodes, times = _nodes(folder, meta), _times(folder, meta)
        frames, units = {}, {}
        # numpy leaves a file open that it opened itself and found to be broken.
        with (folder / SAMPLES).open("rb") as file, np.load(file) as samples:
            arrays = {str(name): samples[name] for name in samples.files}
        _check_clocks(folder, meta, arrays)
        for name, about in meta["metrics"].items():
            unit, factor = _TO_BASE.get(about["unit"], (about["unit"], 1.0))
            values = _values(folder, name, about, arrays, (len(nodes), len(times)))
            scaled = values * np.float32(factor)
            metric = _metric_name(name, meta["metrics"])
            units[metric] = unit
            gpus = _gpus(folder, name, about, values)
            frames[metric] = _frame(meta["job_id"], metric, gpus, nodes, times, scaled)
        truth = _truth(folder, meta.get("truth"), nodes)
        case = Case(
            str(meta["name"]),
            str(meta["job_id"]),
            float(meta["step_seconds"]),
            frames,
            truth,
            units,
            _roles(folder, meta.get("roles") or {}, nodes),
            read_events(meta.get("events", []), str(folder / DESCRIPTION)),
        )
    except OSError as error:
        raise CaseError(f"{folder}: cannot be read: {error}.") from error
    except DAMAGED_ARCHIVE as error:
        raise CaseError(
            f"{folder}: is not a case: {error!r}; it needs case.json and samples.npz that agree."
        ) from error
    if not frames:
        raise CaseError(f"{folder / DESCRIPTION}: lists no metrics; at least one is needed.")
    return case


def _metric_name(name: str, metrics: Mapping[str, Any]) -> str:
    """Return the detection metric that a case holds under ``name``, which may be an alias."""
    metric = names_by_alias().get(name, name)
    return name if metric in metrics else metric


def save_case(case: Case, folder: Path, *, more: Mapping[str, object] | None = None) -> None:
    """Write a case into a folder, which is made; ``load_case`` reads it back equal.

    Parameters
    ----------
    case
        What is written, in its base units.
    folder
        Where.
    more
        Further entries of ``case.json``, for readers other than ours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    truth = case.truth
    meta = {
        "name": case.name,
        "job_id": case.job_id,
        "step_seconds": case.step_seconds,
        "seconds": case.seconds,
        "nodes": list(case.nodes),
        "gpus_per_node": max(len(frame.gpus) for frame in case.frames.values()),
        "metrics": {name: _about(frame, case.units[name]) for name, frame in case.frames.items()},
        **({"roles": case.roles} if case.roles else {}),
        **({"events": [each.to_json() for each in case.events]} if case.events else {}),
        **(more or {}),
    }
    if truth is not None:
        meta["truth"] = {
            "fault": truth.fault,
            "nodes": list(truth.nodes),
            "onset_seconds": truth.onset_seconds,
            "halt_seconds": truth.halt_seconds,
            **({"gpus": list(truth.gpus)} if truth.gpus else {}),
        }
    arrays: dict[str, Any] = {
        name: frame.values if frame.gpu_values is None else frame.gpu_values
        for name, frame in case.frames.items()
    }
    (folder / DESCRIPTION).write_text(json.dumps(meta, indent=1) + "\n")
    with (folder / SAMPLES).open("wb") as file:
        np.savez_compressed(file, **arrays)


def _about(frame: JobFrame, unit: str) -> dict[str, object]:
    if frame.gpu_values is None:
        return {"unit": unit, "axes": _AXES[2]}
    return {"unit": unit, "axes": _AXES[3], "gpus": list(frame.gpus)}


def _nodes(folder: Path, meta: dict[str, Any]) -> tuple[str, ...]:
    nodes = tuple(str(node) for node in meta["nodes"])
    if not nodes or len(set(nodes)) < len(nodes):
        raise CaseError(
            f"{folder / DESCRIPTION}: nodes {meta['nodes']!r}: at least one, each once, is needed."
        )
    return nodes


def _roles(folder: Path, roles: dict[str, Any], nodes: tuple[str, ...]) -> dict[str, str]:
    if unknown := sorted(set(roles) - set(nodes)):
        raise CaseError(f"{folder / DESCRIPTION}: roles name {unknown!r}, not nodes of the job.")
    return {node: str(role) for node, role in roles.items()}


def _times(folder: Path, meta: dict[str, Any]) -> NDArray[np.float64]:
    """Return the times of the steps, seconds from the start of the case."""
    step, seconds = float(meta["step_seconds"]), float(meta["seconds"])
    if not 0 < step < np.inf or not 0 < seconds < np.inf:
        raise CaseError(
            f"{folder / DESCRIPTION}: time does not go forward: step_seconds {step!r} and seconds "
            f"{seconds!r} must be above 0."
        )
    return np.arange(round(seconds / step), dtype=np.float64) * step


def _check_clocks(
    folder: Path, meta: dict[str, Any], arrays: dict[str, NDArray[np.generic]]
) -> None:
    """Refuse timestamps that do not rise, where a recorder added some."""
    for name in _CLOCKS:
        if name not in arrays or name in meta["metrics"]:
            continue
        stamps = arrays[name].astype(np.float64).ravel()
        back = np.flatnonzero(~(np.diff(stamps) > 0))
        if len(back):
            step = int(back[0])
            raise CaseError(
                f"{folder / SAMPLES}: time goes backwards: {name}[{step + 1}] is "
                f"{stamps[step + 1]:g} after {stamps[step]:g}; samples must be in order of time."
            )


def _values(
    folder: Path,
    name: str,
    about: dict[str, Any],
    arrays: dict[str, NDArray[np.generic]],
    size: tuple[int, int],
) -> NDArray[np.float32]:
    """Check the array of one metric and return it, shape (node, time) or (node, gpu, time)."""
    file = folder / SAMPLES
    if name not in arrays:
        raise CaseError(
            f"{file}: has no array {name!r}, which case.json lists; add it or take the metric out."
        )
    values = arrays[name].astype(np.float32)
    axes = about.get("axes") or _AXES.get(values.ndim)
    if values.ndim not in _AXES or axes != _AXES[values.ndim]:
        raise CaseError(
            f"{file}: metric {name!r} has {values.ndim} axes, case.json says {axes!r}; there are "
            f"{_AXES[2]} and {_AXES[3]}."
        )
    if (values.shape[0], values.shape[-1]) != size or 0 in values.shape:
        raise CaseError(
            f"{file}: metric {name!r} has shape {values.shape!r}, case.json says "
            f"{size[0]} nodes and {size[1]} steps."
        )
    values[np.isinf(values)] = np.nan
    return values


def _gpus(
    folder: Path, name: str, about: dict[str, Any], values: NDArray[np.float32]
) -> tuple[str, ...]:
    """Return the names of the GPUs of one metric: their numbers where it names none."""
    if values.ndim == 2:
        return ()
    count = values.shape[1]
    gpus = about.get("gpus", list(range(count)))
    if not isinstance(gpus, list) or len(gpus) != count or len(set(map(str, gpus))) < count:
        raise CaseError(
            f"{folder / DESCRIPTION}: gpus of metric {name!r} are {gpus!r:.80}; it must be a list "
            f"of {count} names, as many as {SAMPLES} has, each once."
        )
    return tuple(str(gpu) for gpu in gpus)


def _frame(
    job_id: str,
    name: str,
    gpus: tuple[str, ...],
    nodes: tuple[str, ...],
    times: NDArray[np.float64],
    values: NDArray[np.float32],
) -> JobFrame:
    if values.ndim == 2:
        return JobFrame(job_id, name, nodes, times, values)
    return JobFrame(job_id, name, nodes, times, mean_over_gpus(values), gpus, values)


def _truth(folder: Path, about: dict[str, object] | None, known: tuple[str, ...]) -> Truth | None:
    if about is None:
        return None
    nodes, fault = about.get("nodes") or [], about.get("fault")
    gpus = about.get("gpus") or []
    if not isinstance(nodes, list):
        raise TypeError(f"truth.nodes {nodes!r} is not a list")
    if not isinstance(gpus, list):
        raise TypeError(f"truth.gpus {gpus!r} is not a list")
    truth = Truth(
        None if fault is None else str(fault),
        tuple(str(node) for node in nodes),
        _moment(folder, about, "onset_seconds"),
        _moment(folder, about, "halt_seconds"),
        tuple(str(gpu) for gpu in gpus),
    )
    if unknown := sorted(set(truth.nodes) - set(known)):
        raise CaseError(f"{folder / DESCRIPTION}: truth names {unknown!r}, not nodes of the job.")
    begin, end = truth.onset_seconds, truth.halt_seconds
    if begin is not None and end is not None and end < begin:
        raise CaseError(
            f"{folder / DESCRIPTION}: time goes backwards: the halt at {end:g} s comes before "
            f"the onset at {begin:g} s."
        )
    return truth


def _moment(folder: Path, about: dict[str, object], name: str) -> float | None:
    """Return when something was, in seconds from the start; below 0 is before the recording."""
    moment = about.get(name)
    if moment is None:
        return None
    if isinstance(moment, int | float) and not isinstance(moment, bool) and math.isfinite(moment):
        return float(moment)
    raise CaseError(
        f"{folder / DESCRIPTION}: truth.{name} is {moment!r:.80}; it must be a number of seconds "
        "from the start of the case, or null."
    )
