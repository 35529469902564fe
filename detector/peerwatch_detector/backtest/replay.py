"""Replays a recorded job as the online detector would have evaluated it, cycle by cycle.

The stages are those of ``run``: only the samples come from a case instead of from Prometheus.
At the cycle that ends at time t nothing younger than ``t - prometheus.lag_seconds`` is looked
at, so a case cut short gives the same findings up to the cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from peerwatch_detector.backtest.cases import Case
from peerwatch_detector.config import DetectorConfig, MetricConfig, ReadMetric
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.detection.job_detector import Detection, JobDetector
from peerwatch_detector.detection.pipeline import evaluate
from peerwatch_detector.errors import CaseError
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.store import Bundle


@dataclass(frozen=True, slots=True)
class Replay:
    """What the detector would have said.

    Parameters
    ----------
    case
        Name of the case.
    findings
        In the order they were raised; ``raised`` is in seconds from the start of the case.
    node_seconds
        Nodes times length of the case, for rates of false findings.
    """

    case: str
    findings: tuple[Finding, ...]
    node_seconds: float


def replay(case: Case, config: DetectorConfig, bundle: Bundle) -> Replay:
    """Go through a case in cycles and collect every finding raised.

    Parameters
    ----------
    case
        The recorded job; its metrics that the configuration does not compare are not looked at.
    config
        Settings, the method among them.
    bundle
        Trained models.
    """
    raised: list[Finding] = []
    known: set[tuple[str, float]] = set()
    for detection in cycles(case, config, bundle, shown=False):
        for finding in detection.findings:
            key = (finding.node, finding.raised)
            if key not in known:
                known.add(key)
                raised.append(finding)
    frame = next(iter(case.frames.values()))
    length = len(frame.times) * case.step_seconds
    return Replay(case.name, tuple(raised), len(frame.nodes) * length)


def cycles(
    case: Case, config: DetectorConfig, bundle: Bundle, *, shown: bool = True
) -> Iterator[Detection]:
    """Yield the detection of every cycle of a case, at the steps of the case.

    Parameters
    ----------
    case, config, bundle
        As for ``replay``.
    shown
        Whether anybody looks at the scores; findings do not depend on it.

    Raises
    ------
    CaseError
        If the configuration is impossible at these steps.
    """
    config = _at_step(config, case)
    metrics = [metric for metric in config.read_metrics() if case.fits(metric)]
    compared = [metric for metric in metrics if isinstance(metric, MetricConfig)]
    detector = JobDetector(config, bundle.models(config, compared))
    detector.method.shows_scores = shown
    roles = {node: config.peers.role(node, case.roles.get(node, "")) for node in case.nodes}
    roles = {node: role for node, role in roles.items() if role}
    heard = _last_heard(case)
    frame = next(iter(case.frames.values()))
    end = float(frame.times[-1]) + case.step_seconds + config.prometheus.lag_seconds
    for cycle in range(1, int(end // config.cycle_seconds) + 1):
        now = cycle * config.cycle_seconds
        newest = now - config.prometheus.lag_seconds
        step = int(np.searchsorted(frame.times, newest, side="right"))
        if step == 0:
            continue
        needed = detector.method.needed_from()
        frames = {
            metric.name: _cut(
                case.frames[metric.name], metric, config, needed.get(metric.name, 0.0), step
            )
            for metric in metrics
        }
        yield evaluate(detector, _job(case, roles, heard, step), frames, newest)


def _at_step(config: DetectorConfig, case: Case) -> DetectorConfig:
    """Return the configuration for the steps of a case, checked like one from a file."""
    if case.step_seconds == config.step_seconds:
        return config
    values = config.model_dump(exclude_unset=True) | {
        "step_seconds": case.step_seconds,
        # A case holds rates already.
        "rate_window_seconds": max(config.rate_window_seconds, math.ceil(2 * case.step_seconds)),
    }
    try:
        return DetectorConfig.model_validate(values)
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(map(str, problem['loc']))}: "
            f"{str(problem['msg']).removeprefix('Value error, ')}"
            for problem in error.errors()
        )
        raise CaseError(
            f"{case.name}: cannot be evaluated at its steps of {case.step_seconds:g} s: {mistakes}."
        ) from error


def _last_heard(case: Case) -> NDArray[np.int64]:
    """Return, per step and node, the last step with a sample of any metric; -1 = none yet."""
    frames = list(case.frames.values())
    heard: NDArray[np.bool_] = np.zeros(frames[0].values.shape, dtype=np.bool_)
    for frame in frames:
        heard |= np.isfinite(frame.values)
    steps = np.arange(heard.shape[1])
    last: NDArray[np.int64] = np.where(heard, steps, -1)
    return np.maximum.accumulate(last, axis=1)


def _job(case: Case, roles: dict[str, str], heard: NDArray[np.int64], step: int) -> Job:
    last = heard[:, step - 1]
    times = next(iter(case.frames.values())).times
    absent = {
        node: float(times[last[index]])
        for index, node in enumerate(case.nodes)
        if 0 <= last[index] < step - 1
    }
    return Job(case.job_id, case.nodes, absent, roles=roles)


def _cut(
    frame: JobFrame, metric: ReadMetric, config: DetectorConfig, needed_from: float, step: int
) -> JobFrame:
    """Return the steps that the service would read at this cycle."""
    seconds = config.step_seconds
    since = int(np.searchsorted(frame.times, needed_from))
    margin = config.margin_seconds
    if isinstance(metric, MetricConfig):
        margin += metric.peak_seconds or 0
    since -= math.ceil(round(margin / seconds, 6))
    oldest = step - config.steps_in(config.history_seconds)
    left = max(0, min(since, step - config.context_steps), oldest)
    per_gpu = None if frame.gpu_values is None else frame.gpu_values[:, :, left:step]
    return JobFrame(
        frame.job_id,
        frame.metric,
        frame.nodes,
        frame.times[left:step],
        frame.values[:, left:step],
        frame.gpus,
        per_gpu,
    )
