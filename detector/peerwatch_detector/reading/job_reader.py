"""Reads one job, cycle by cycle: what is new into its rings, what is evaluated out of them."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from peerwatch_detector.config import DetectorConfig, MetricConfig, ReadMetric
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import JobFrame, to_grid
from peerwatch_detector.reading import Follower
from peerwatch_detector.reading.reader import Reader, reading_settings, selection_of

# These concern the request that was asked; anything else concerns the whole server.
_OF_ONE_METRIC = frozenset({"refused", "http_4xx", "too_large"})
# Up to so many samples a job's history is read at once, else so many metrics together: one is
# decoded while the server works on another. Chosen: 256 MB of float32; and eight GPUs, as an H100
# SXM node has, before anything is known.
_AT_ONCE, _LEAST_TOGETHER, _GPUS = 64_000_000, 2, 8


@dataclass(frozen=True, slots=True)
class JobReading:
    """What a cycle read of a job.

    Parameters
    ----------
    frames
        By metric, those that any node ever had a sample of and that could be read now.
    errors
        By metric, why it could not be read; None if it could.
    complete
        Whether this is all; else these are some metrics of a large job's first read.
    counters
        Those that nodes are not compared by: they alone do not make a job that can be evaluated.
    """

    frames: dict[str, JobFrame]
    errors: dict[str, ReadError | None]
    complete: bool = True
    counters: frozenset[str] = frozenset()

    @property
    def job_error(self) -> ReadError | None:
        """Why the job cannot be evaluated: the server failed, or refused every single metric."""
        compared = [error for name, error in self.errors.items() if name not in self.counters]
        found = [error for error in compared if error is not None]
        refused = found[0] if found and len(found) == len(compared) else None
        return self.server_error or refused

    @property
    def server_error(self) -> ReadError | None:
        """Why nothing can be evaluated whatever else is read: the server failed."""
        found = [error for error in self.errors.values() if error is not None]
        return next((error for error in found if error.reason not in _OF_ONE_METRIC), None)


class JobReader:
    """What is held of a job's series.

    Parameters
    ----------
    job_id
        The training job.
    reader
        Where series come from.
    config
        Which metrics, and how far back.
    """

    def __init__(self, job_id: str, reader: Reader, config: DetectorConfig) -> None:
        self._config, self._metrics = config, config.read_metrics()
        self._counters = frozenset(counter.name for counter in config.progress_counters())
        self._follower = Follower(
            job_id,
            reader,
            [selection_of(metric, job_id, config) for metric in self._metrics],
            config.history_seconds,
            reading_settings(config.prometheus),
            config.step_seconds,
        )

    def kept_seconds(self, metric: str) -> float:
        """How far back samples of a metric are held; 0 of one that there is not."""
        if not self._holds(metric):
            return 0.0
        return (self._follower.held_steps(metric) - 1) * self._config.step_seconds

    @property
    def resident_bytes(self) -> int:
        """What the samples take that are held."""
        return self._follower.resident_bytes

    def readings(
        self,
        nodes: Sequence[str],
        now: float,
        needed_from: Callable[[], Mapping[str, float]],
    ) -> Iterator[JobReading]:
        """Read what is new, and yield it: at once, but for a large job's first samples.

        Those take more memory than anything after them. So some metrics are read after the others,
        the method's leading ones first, and each part is to be compared before the next one is
        asked for: what ``needed_from`` then does not ask for is given back. The last reading is of
        all metrics.

        Parameters
        ----------
        nodes
            The job's nodes now.
        now
            Unix time.
        needed_from
            Tells by metric the Unix time from which its samples are needed.
        """
        parts = self._parts(nodes)
        names = next(parts)
        if len(names) == len(self._metrics):
            yield self.read(nodes, now, needed_from())
            return
        left = self._config.prometheus.reading.deadline_seconds
        errors: dict[str, ReadError | None] = {}
        for part in itertools.chain([names], parts):
            began = time.perf_counter()
            reading = self.read(nodes, now, needed_from(), part, left)
            left -= time.perf_counter() - began
            errors |= reading.errors
            yield replace(reading, complete=False)
            # Or these samples would stay until the next part is read.
            del reading
            self.release(needed_from(), now)
        good = [name for name, error in errors.items() if error is None]
        frames = self.frames(nodes, now, needed_from(), good)
        yield JobReading(frames, errors, counters=self._counters)

    def _parts(self, nodes: Sequence[str]) -> Iterator[frozenset[str]]:
        """Yield names of metrics to read one after the other; a single part is the rule."""
        names = [metric.name for metric in self._metrics]
        leading = self._config.method_config.leading_metrics
        known = set(self._follower.read_until)
        if known or leading is None or self._samples(nodes, names) <= _AT_ONCE:
            yield frozenset(names)
            return
        leading &= set(names)
        if leading:
            yield leading
        # Now it is known how many GPUs a node has.
        part: list[str] = []
        for name in names:
            if name in leading:
                continue
            if len(part) >= _LEAST_TOGETHER and self._samples(nodes, [*part, name]) > _AT_ONCE:
                yield frozenset(part)
                part = []
            part.append(name)
        if part:
            yield frozenset(part)

    def _samples(self, nodes: Sequence[str], names: Collection[str]) -> int:
        """Return about how many samples the whole history of some metrics has."""
        of_gpus = [metric.name for metric in self._metrics if metric.scope == "gpu"]
        seen = max((self._follower.rows(name) for name in of_gpus), default=0)
        rows = sum((seen or _GPUS * len(nodes)) if n in of_gpus else len(nodes) for n in names)
        return rows * round(self._config.history_seconds / self._config.step_seconds)

    def read(
        self,
        nodes: Sequence[str],
        now: float,
        evaluated_until: Mapping[str, float],
        metrics: Collection[str] | None = None,
        seconds: float | None = None,
    ) -> JobReading:
        """Read what is new of every metric, or of some, and cut the frames to evaluate.

        Parameters
        ----------
        nodes
            The job's nodes now.
        now
            Unix time.
        evaluated_until
            By metric, the Unix time up to which it was evaluated.
        metrics
            Which; None is all.
        seconds
            How long reading may take; None is what the configuration says.

        Returns
        -------
        JobReading
            Its frames hold until the next call, and are not to be changed.
        """
        self.release(evaluated_until, now)
        errors = self._follower.update(nodes, now, metrics, seconds)
        good = [name for name, error in errors.items() if error is None]
        frames = self.frames(nodes, now, evaluated_until, good)
        return JobReading(frames, errors, counters=self._counters)

    def frames(
        self,
        nodes: Sequence[str],
        now: float,
        evaluated_until: Mapping[str, float],
        metrics: Collection[str],
    ) -> dict[str, JobFrame]:
        """Cut the frames to evaluate out of what was read; see ``read``."""
        end = self._follower.newest_step(now)
        frames: dict[str, JobFrame] = {}
        for metric in self._metrics:
            if metric.name in metrics and self._follower.holds(metric.name):
                first = self._first(metric, evaluated_until.get(metric.name), end)
                frames[metric.name] = self._follower.frame(
                    metric.name, nodes, first, end, lent=True
                )
        return frames

    def frame(self, metric: str, nodes: Sequence[str], start: float, end: float) -> JobFrame | None:
        """Return what is held of a metric between two Unix times; None if that is nothing."""
        if not self._holds(metric):
            return None
        step = self._config.step_seconds
        first, last = (int(to_grid(time, step)) for time in (start, end))
        return self._follower.frame(metric, nodes, first, last)

    def _holds(self, metric: str) -> bool:
        known = {metric.name for metric in self._metrics}
        return metric in known and self._follower.holds(metric)

    def release(self, evaluated_until: Mapping[str, float], now: float) -> None:
        """Give back the memory of what is evaluated, where it is too much."""
        end = self._follower.newest_step(now)
        for metric in self._metrics:
            if metric.name in evaluated_until:
                first = self._first(metric, evaluated_until[metric.name], end)
                self._follower.release(metric.name, first, self._config.held_samples)

    def _first(self, metric: ReadMetric, evaluated_until: float | None, end: int) -> int:
        """Return the step at which the samples must begin that new windows are made of."""
        step = self._config.step_seconds
        first = end - round(self._config.history_seconds / step)
        since = first
        if evaluated_until is not None:
            since = math.floor(round(evaluated_until / step, 6))
        margin = self._config.margin_seconds
        if isinstance(metric, MetricConfig):
            margin += metric.peak_seconds or 0
        since -= math.ceil(round(margin / step, 6))
        return max(first, min(since, end - self._config.context_steps))
