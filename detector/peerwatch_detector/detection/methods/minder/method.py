"""Method ``minder``: the algorithm of the paper (NSDI'25, section 4), window by window.

Every window of every metric has at most one candidate, the node with the highest normal score if
that is over the threshold. A node that stays the candidate for the continuity threshold is named,
by the first metric in the priority that has such a node; the metrics after it are not asked then.

The paper calls its detection every eight minutes on the last fifteen; here each window is evaluated
once, when it comes. The nearest sample stands for a missing one, yet never one from after the
window, so that a window looks the same whenever it is evaluated. The paper compares machines, so a
metric of GPUs is their mean.

Windows that cannot matter are passed over (``minder_windows``): they belong to no deviation that is
long enough or still runs, and while a finding stands they are asked whether its node is quiet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.findings import Deviation, Finding, still_standing
from peerwatch_detector.detection.gpu_attribution import deviating_gpu
from peerwatch_detector.detection.methods.minder.windows import Candidates, MetricWindows, Points
from peerwatch_detector.detection.similarity import Mask
from peerwatch_detector.detection.state import JobState, MetricState
from peerwatch_detector.detection.threads import each, worthwhile
from peerwatch_detector.detection.zscores import zscores
from peerwatch_detector.errors import ModelError
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import INTEGRATED, Model
from peerwatch_detector.models.integrated import IntegratedLstmVae

Ranked = Sequence[tuple[int, MetricConfig]]


@dataclass(slots=True)
class Part:
    """One metric's new windows, and how far they are taken into its deviations.

    Parameters
    ----------
    rank, metric, frame, memory
        Whose windows.
    windows
        The windows.
    candidates
        Their candidates, by the metric alone or by all joined.
    passed
        How many windows are in the deviations.
    """

    rank: int
    metric: MetricConfig
    frame: JobFrame
    memory: MetricState
    windows: MetricWindows
    candidates: Candidates
    passed: int = 0

    def row(self, time: int) -> int | None:
        """Return which window ends at a time, if there is one."""
        ends = self.candidates.ends
        row = int(np.searchsorted(ends, time))
        return row if row < len(ends) and ends[row] == time else None

    def candidate(self, time: int) -> int:
        """Return the candidate at a time that was looked at; negative = none."""
        row = self.row(time)
        return -1 if row is None else int(self.candidates.found[row])

    def follow(self, time: float) -> None:
        """Take the windows up to a time into the deviations; what nobody looked at had nobody."""
        ends, found = self.candidates.ends, self.candidates.found
        until = int(np.searchsorted(ends, time, side="right"))
        marked = self.passed + np.flatnonzero(found[self.passed : until] >= 0)
        for row in marked:
            self._rest(int(row))
            self._update(int(row))
        self._rest(until)

    def _update(self, row: int) -> None:
        mask: Mask = np.zeros(len(self.frame.nodes), dtype=bool)
        mask[self.candidates.found[row]] = True
        # A window with another candidate ends a deviation, heard from its node or not.
        end = float(self.candidates.ends[row])
        self.memory.similarity.update(end, mask, np.ones_like(mask))
        self.passed = row + 1

    def _rest(self, until: int) -> None:
        """Take windows without a candidate into the deviations."""
        rows = slice(self.passed, until)
        self.memory.similarity.rest(self.candidates.ends[rows][self.candidates.heard[rows]])
        self.passed = max(self.passed, until)

    def keep_peak(self) -> None:
        """Keep the score of the deviation that runs, in its last window."""
        for node in np.flatnonzero(np.isfinite(self.memory.similarity.start)):
            rows = np.flatnonzero(self.candidates.found == node)
            if len(rows):
                self.memory.peak[node] = self.candidates.score(int(rows[-1]))

    def settle(self, name: str, enough: float) -> None:
        """Correct for how long a node has been quiet, up to the last window passed.

        Parameters
        ----------
        name
            Of the node.
        enough
            Seconds beyond which more do not matter.
        """
        deviations = self.memory.similarity
        if name not in deviations.nodes:
            return
        node = deviations.nodes.index(name)
        quiet, before, step = 0.0, None, deviations.step_seconds
        for row in np.flatnonzero(self.candidates.heard[: self.passed])[::-1]:
            end = int(self.candidates.ends[row])
            quiet += 0.0 if before is None else min(before - end, step)
            if quiet >= min(enough, deviations.quiet[node]):
                break
            if self.candidates.is_candidate(int(row), node):
                deviations.quiet[node] = quiet
            before = end


def walk(
    job: Job,
    ranked: Ranked,
    frames: Mapping[str, JobFrame],
    models: Mapping[str, Model],
    config: DetectorConfig,
    state: JobState,
    now: float,
) -> list[Deviation]:
    """Evaluate all new windows of a job.

    Parameters
    ----------
    job
        The job as discovered.
    ranked
        The metrics with their places in the priority.
    frames, models
        By metric; the model of all metrics under ``INTEGRATED``.
    config
        Settings.
    state
        Changed in place, findings included.
    now
        Unix time, for the findings' ``raised``.

    Returns
    -------
    list[Deviation]
        The running deviations after the last window.
    """
    threads = worthwhile(config.scheduling.detection_threads, frames.values())
    begin = partial(_part, frames=frames, models=models, config=config, state=state)
    parts = each(begin, ranked, threads)
    if config.minder.join == "per_metric":
        each(partial(_find_deviations, config=config), parts, threads)
    else:
        _join(parts, models.get(INTEGRATED), config)
    each(partial(_publish, config=config), parts, threads)
    for time in sorted({int(end) for part in parts for end in part.candidates.ends}):
        if not state.standing and all(part.candidate(time) < 0 for part in parts):
            # Nobody can be named, and nothing can fall.
            continue
        for part in parts:
            part.follow(time)
        _clear(job, parts, time, config, state)
        if len(job.nodes) >= config.min_nodes:
            _name(job.job_id, parts, time, now, config, state)
    _finish(parts, config, state)
    shown = _asked(parts, config)
    return [deviation for part in shown for deviation in _deviations(part, config)]


def _needed(config: DetectorConfig) -> float:
    return config.continuity.threshold_seconds if config.minder.continuity else 0.0


def _part(
    ranked: tuple[int, MetricConfig],
    frames: Mapping[str, JobFrame],
    models: Mapping[str, Model],
    config: DetectorConfig,
    state: JobState,
) -> Part:
    rank, metric = ranked
    frame, memory = frames[metric.name], state.metrics[metric.name]
    windows = MetricWindows(metric, frame, models[metric.name], config, memory.evaluated_until)
    candidates = Candidates(
        windows.ends,
        windows.heard(),
        windows.points,
        windows.distance,
        config.similarity_threshold,
    )
    return Part(rank, metric, frame, memory, windows, candidates)


def _find_deviations(part: Part, config: DetectorConfig) -> None:
    part.candidates.find_deviations(_needed(config), _running_since(part))


def _running_since(part: Part) -> float:
    """Return when the deviation began that runs since the last cycle; NaN = none does."""
    start = part.memory.similarity.start
    running = start[np.isfinite(start)]
    return float(running[0]) if len(running) else np.nan


def _publish(part: Part, config: DetectorConfig) -> None:
    """Keep what the newest window of a metric tells of its nodes."""
    memory, last = part.memory, len(part.windows.ends) - 1
    if last < 0:
        return
    cut = part.windows.cut(last)
    levels = np.where(np.isfinite(cut).all(axis=1), cut.mean(axis=1, dtype=np.float64), np.nan)
    memory.normal = part.windows.scores(last)
    memory.z = zscores(levels[None])[0]
    newest = part.frame.values[:, -config.window_length :]
    memory.coverage = float(np.isfinite(newest).any(axis=1).mean())


def _finish(parts: list[Part], config: DetectorConfig, state: JobState) -> None:
    """Take all windows into the deviations; the next cycle cannot ask for what was skipped."""
    for part in parts:
        part.follow(np.inf)
        part.keep_peak()
        for node in state.standing:
            part.settle(node, config.continuity.clear_seconds)
        if len(part.candidates.ends):
            part.memory.evaluated_until = int(part.candidates.ends[-1])


def _join(parts: list[Part], integrated: Model | None, config: DetectorConfig) -> None:
    """Give all metrics the candidates of their joined points.

    Evaluated are the windows that all metrics have. A metric that no node has does not count; a
    node takes part if it has all others.
    """
    if not parts:
        return
    ends = parts[0].windows.ends
    for part in parts[1:]:
        ends = np.intersect1d(ends, part.windows.ends)

    def points(row: int) -> Points:
        rows = [int(np.searchsorted(part.windows.ends, ends[row])) for part in parts]
        single = [part.windows.points(row) for part, row in zip(parts, rows, strict=True)]
        return _joined(parts, single, integrated, config)

    heard: Mask = np.ones(len(ends), dtype=bool)
    distance, threshold = config.minder.distance, config.similarity_threshold
    candidates = Candidates(ends, heard, points, distance, threshold)
    candidates.look_everywhere()
    for part in parts:
        part.candidates = candidates


def _joined(
    parts: list[Part], single: list[Points], integrated: Model | None, config: DetectorConfig
) -> Points:
    """Join what all metrics tell of the nodes in one window."""
    known = [one.present for one in single]
    present: Mask = np.any(known, axis=0) & np.all([one | (not one.any()) for one in known], axis=0)
    if config.minder.join == "integrated":
        return _through_one_model(parts, single, present, integrated)
    return Points(np.concatenate([one.values for one in single], axis=1), present)


def _through_one_model(
    parts: list[Part], single: list[Points], present: Mask, model: Model | None
) -> Points:
    """Embed the scaled windows of all metrics together (INT); 0 where a node takes no part.

    Raises
    ------
    ModelError
        If there is no model of all metrics.
    """
    if not isinstance(model, IntegratedLstmVae):
        raise ModelError(
            "minder.join integrated needs a model of all metrics; take the shipped one (models: "
            "default) or train one with `peerwatch-detector train --integrated`."
        )
    by_metric = {
        # In a window in which nobody has a metric it stands at its usual level for all.
        part.metric.name: one.values
        if one.present.any()
        else np.full_like(one.values, model.levels[part.metric.name])
        for part, one in zip(parts, single, strict=True)
    }
    stacked = model.stack(by_metric, single[0].values.shape)
    found = model.embed(stacked[present])
    joined = np.zeros((len(present), found.shape[1]), dtype=np.float32)
    joined[present] = found
    return Points(joined, present)


def _asked(parts: list[Part], config: DetectorConfig) -> list[Part]:
    """Return the parts that are evaluated: joined they all say the same."""
    return parts if config.minder.join == "per_metric" else parts[:1]


def _clear(job: Job, parts: list[Part], time: int, config: DetectorConfig, state: JobState) -> None:
    """Let findings fall whose nodes have not been candidates for long enough."""
    silent = state.last_absent.keys() | job.absent_since.keys()
    enough = config.continuity.clear_seconds
    quiet: dict[str, float] = {}
    for node in state.standing.keys() - silent:
        # What was quiet before a fault began says nothing about its end.
        seconds = min(_quiet(node, state), time - state.standing[node].since)
        if seconds >= enough:
            for part in parts:
                part.settle(node, enough)
            seconds = min(_quiet(node, state), seconds)
        quiet[node] = seconds
    state.standing = still_standing(state.standing, quiet, enough)


def _quiet(node: str, state: JobState) -> float:
    """Return for how long no metric had a node as candidate, as far as anybody looked."""
    all_deviations = [memory.similarity for memory in state.metrics.values()]
    known = [one.quiet[one.nodes.index(node)] for one in all_deviations if node in one.nodes]
    return float(min(known, default=0.0))


def _name(
    job_id: str, parts: list[Part], time: int, now: float, config: DetectorConfig, state: JobState
) -> None:
    """Name the node of the first metric in the priority that has one."""
    for part in _asked(parts, config):
        row, deviations = part.row(time), part.memory.similarity
        index = part.candidate(time)
        if row is None or index < 0 or not time - deviations.start[index] >= _needed(config):
            continue
        node = part.frame.nodes[index]
        if node not in state.standing:
            joined = config.minder.join != "per_metric"
            shown = _showing(parts, time, index) if joined else part
            state.standing[node] = Finding(
                job_id,
                node,
                deviating_gpu(shown.frame, index, shown.metric),
                shown.metric.name,
                "minder",
                "critical",
                shown.rank,
                float(deviations.start[index]),
                now,
                part.candidates.score(row),
            )
        return


def _showing(parts: list[Part], time: int, node: int) -> Part:
    """Return the metric in which a node named by all of them together stands out most."""
    own = [
        float(part.windows.scores(int(np.searchsorted(part.windows.ends, time)))[node])
        for part in parts
    ]
    return parts[int(np.argmax(np.nan_to_num(own, nan=-np.inf)))]


def _deviations(part: Part, config: DetectorConfig) -> list[Deviation]:
    deviations = part.memory.similarity
    lengths = deviations.seconds()
    needed = config.continuity.threshold_seconds if config.minder.continuity else 1.0
    return [
        Deviation(
            deviations.nodes[index],
            deviating_gpu(part.frame, int(index), part.metric),
            part.metric.name,
            "minder",
            part.rank,
            float(deviations.start[index]),
            float(lengths[index]),
            needed,
            float(np.nan_to_num(part.memory.peak[index])),
            float(deviations.quiet[index]),
        )
        for index in np.flatnonzero(np.isfinite(deviations.start))
    ]
