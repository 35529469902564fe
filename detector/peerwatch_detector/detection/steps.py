"""Between seconds and ticks: the detection counts time in ticks, everything around it in seconds.

A tick is a step of the samples where that is shorter than a second, else a second. So one code
evaluates samples of every second and of every 10 ms: what it calls seconds are ticks, its windows
hold as many samples and its habits, such as evaluating every fifth, cost as much. Settings in
seconds keep their length; what has no setting shrinks with the step. With steps of a second or more
a tick is a second, and nothing here changes a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import Deviation, Finding
from peerwatch_detector.frame import JobFrame, mean_over_gpus, to_grid
from peerwatch_detector.jobs import Job

# What becomes of every setting named seconds, by section; a test refuses one that is missing.
# Lengths are compared with times, counts are whole numbers of ticks, samples of steps.
LENGTHS: Mapping[str, frozenset[str]] = {
    "peerwatch": frozenset(
        {"fast_seconds", "fast_pair_seconds", "slack_seconds", "patience_seconds"}
    ),
    "continuity": frozenset({"threshold_seconds", "gap_seconds", "clear_seconds"}),
    "zscore": frozenset({"period_seconds"}),
    "absent": frozenset({"after_seconds", "threshold_seconds"}),
}
COUNTS: Mapping[str, frozenset[str]] = {
    "similarity": frozenset({"baseline_seconds"}),
    "peerwatch": frozenset({"level_seconds"}),
}
SAMPLES: Mapping[str, frozenset[str]] = {
    "": frozenset({"fill_limit_seconds"}),
    "minder": frozenset({"fill_seconds"}),
}
# Read before anything is evaluated, or by those who read.
UNTOUCHED: Mapping[str, frozenset[str]] = {
    "": frozenset({"step_seconds", "cycle_seconds", "history_seconds", "rate_window_seconds"}),
    "prometheus": frozenset({"timeout_seconds", "lag_seconds"}),
    "prometheus.reading": frozenset(
        {
            "deadline_seconds",
            "max_age_seconds",
            "overlap_seconds",
            "increment_seconds",
            "longest_wait_seconds",
        }
    ),
    "metrics.extra": frozenset({"peak_seconds"}),
    "metrics.overrides": frozenset({"peak_seconds"}),
}


@dataclass(frozen=True, slots=True)
class Ticks:
    """Turns times and lengths of time into ticks and back.

    Parameters
    ----------
    per_second
        Ticks in a second.
    """

    per_second: int = 1

    @classmethod
    def of(cls, step_seconds: float) -> Ticks:
        """Return the ticks of a step."""
        return cls(max(1, round(1 / step_seconds)))

    def job(self, job: Job) -> Job:
        """Return a job with its silent nodes' times in ticks."""
        silent = {node: since * self.per_second for node, since in job.absent_since.items()}
        return replace(job, absent_since=silent)

    def frame(self, frame: JobFrame) -> JobFrame:
        """Return a frame with its times in ticks."""
        if self.per_second == 1:
            return frame
        times = to_grid(frame.times, 1 / self.per_second).astype(np.float64)
        return replace(frame, times=times)

    def finding(self, finding: Finding) -> Finding:
        """Return a finding with its times in ticks."""
        return replace(
            finding,
            since=finding.since * self.per_second,
            raised=finding.raised * self.per_second,
        )

    def finding_in_seconds(self, finding: Finding) -> Finding:
        """Return a finding with its times in seconds."""
        return replace(
            finding,
            since=finding.since / self.per_second,
            raised=finding.raised / self.per_second,
        )

    def deviation_in_seconds(self, deviation: Deviation) -> Deviation:
        """Return a deviation with its times in seconds."""
        return replace(
            deviation,
            since=deviation.since / self.per_second,
            seconds=deviation.seconds / self.per_second,
            threshold=deviation.threshold / self.per_second,
            quiet=deviation.quiet / self.per_second,
        )

    def in_seconds(self, lengths: Mapping[str, float]) -> dict[str, float]:
        """Return lengths of time in seconds."""
        if self.per_second == 1:
            return dict(lengths)
        return {name: length / self.per_second for name, length in lengths.items()}

    def standing_in_seconds(self, standing: Mapping[str, Finding]) -> dict[str, Finding]:
        """Return the findings by node with their times in seconds."""
        return {node: self.finding_in_seconds(one) for node, one in standing.items()}


def in_ticks(config: DetectorConfig) -> DetectorConfig:
    """Return the settings that the detection counts with.

    Parameters
    ----------
    config
        In seconds, as written.

    Returns
    -------
    DetectorConfig
        Its durations in ticks, or in samples where samples are counted.
    """
    ticks, step = Ticks.of(config.step_seconds), config.step_seconds
    values = {name: getattr(config, name) for name in SAMPLES[""]}
    changes: dict[str, object] = {name: round(value / step) for name, value in values.items()}
    for name in LENGTHS.keys() | COUNTS.keys() | (SAMPLES.keys() - {""}):
        section = getattr(config, name)
        new = {one: getattr(section, one) * ticks.per_second for one in LENGTHS.get(name, ())}
        for one in COUNTS.get(name, ()):
            new[one] = round(getattr(section, one) * ticks.per_second)
        for one in SAMPLES.get(name, ()):
            new[one] = round(getattr(section, one) / step)
        changes[name] = section.model_copy(update=new)
    return config.model_copy(update=changes)


def context_steps(step_seconds: float) -> int:
    """Return how many steps before the newest a frame reaches back at least.

    As far as the guilty GPU is looked for and progress counts seconds: 30 of either.
    """
    return max(30, round(30 / step_seconds))


def peaks(values: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
    """Return at every step the highest of the last values, where there is one at all.

    Parameters
    ----------
    values
        Shape (..., n_steps), NaN = missing.
    steps
        How many values, the present one included.

    Returns
    -------
    NDArray[np.float32]
        Same shape; what is missing stays missing.
    """
    known = np.where(np.isfinite(values), values, -np.inf)
    highest = known.copy()
    # Doubling: after each round every place holds the maximum of ``reach`` values.
    reach = 1
    while reach < min(steps, values.shape[-1]):
        by = min(reach, steps - reach)
        highest[..., by:] = np.maximum(highest[..., by:], highest[..., :-by])
        reach += by
    return np.where(np.isfinite(values), highest, np.float32(np.nan)).astype(np.float32)


def with_peaks(frame: JobFrame, peak_seconds: float | None, step_seconds: float) -> JobFrame:
    """Return a frame as it is compared: the values, or the peaks of so many seconds."""
    steps = round((peak_seconds or 0) / step_seconds)
    if steps <= 1:
        return frame
    if frame.gpu_values is None:
        return replace(frame, values=peaks(frame.values, steps))
    per_gpu = peaks(frame.gpu_values, steps)
    return replace(frame, values=mean_over_gpus(per_gpu), gpu_values=per_gpu)
