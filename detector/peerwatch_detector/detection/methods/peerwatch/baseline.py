"""A node's own normal offset from its peers, and how much it usually wanders around it.

Healthy workers differ for good: rank 0 also logs, one host has slower disks. What counts is that
a node moves away from its usual offset, so the offset is learned from its own past, without the
seconds in which it deviated. Per GPU where the metric is per GPU; a unit is one row of a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.config.methods import EVALUATED_EVERY
from peerwatch_detector.detection.methods.peerwatch.order import median_known
from peerwatch_detector.detection.methods.peerwatch.peers import Levels
from peerwatch_detector.detection.methods.peerwatch.rows import row_median, row_spreads
from peerwatch_detector.detection.methods.peerwatch.running_medians import RunningMedians

# The offsets are learned anew at every third step, at whole multiples of it, so that the same
# samples give the same offsets however the cycles fall.
_PERIOD = 3
# Lengths below are in samples, of a second at most. A unit is evaluated once so much of its past is
# known, or half of a shorter baseline: a minute holds some iterations.
_LEAST = 60
# The newest do not count yet: a slow deviation must not become normal while it grows.
_GUARD = 20
# Without a baseline, the spread is still taken of this long a past, the default baseline.
_SPREAD = 600
# What was usual for a unit is remembered so many times, one length of the past apart: an hour of
# default baselines, longer than most programs run beside a job.
_EARLIER = 6
# A median absolute deviation times this estimates a normal standard deviation.
_MAD_TO_STD = 1.4826
# What is evaluated is a mean over several samples, which wanders about half as much as they do.
_MEAN_TO_SAMPLE = 0.5


@dataclass(frozen=True)
class Usual:
    """What is normal for every unit of one metric.

    Parameters
    ----------
    offset
        From the job's median, in the metric's scale, shape (n_units,); NaN = not known yet.
    measure_spread
        Returns ``spread``. It is asked only where a unit deviates, which is rare.
    level
        The job's median level, in the metric's unit; NaN = not known yet.
    """

    offset: Levels
    measure_spread: Callable[[], Levels]
    level: float

    @cached_property
    def spread(self) -> Levels:
        """The larger of the unit's own and the typical spread, shape (n_units,)."""
        return self.measure_spread()

    @cached_property
    def factor(self) -> Levels:
        """What takes a unit's offset out of its values where it is one by factors."""
        return np.exp(-self.offset)


class Baseline:
    """Running offsets of the units of one metric.

    Parameters
    ----------
    seconds
        Length of the past that counts; 0 switches the baseline off (offset 0).
    resolution_seconds
        As the setting: the length of what is counted in samples.
    """

    def __init__(self, seconds: float, resolution_seconds: float = 1.0) -> None:
        self.seconds, self.resolution_seconds = seconds, resolution_seconds
        self.nodes: tuple[str, ...] = ()
        self.gpus: tuple[str, ...] = ("",)
        self.learned_until = -np.inf
        length = round(seconds / resolution_seconds) or _SPREAD
        self._slots = max(4, length // EVALUATED_EVERY)
        self._guard = max(1, min(_GUARD, length // 6) // EVALUATED_EVERY)
        self._least = max(2, min(_LEAST, length // 2) // EVALUATED_EVERY)
        # Axes: node, gpu, slot of time.
        self._past: NDArray[np.float32] = self._blank(0, self._slots)
        self._levels: NDArray[np.float64] = np.full(self._slots, np.nan)
        # Offsets as they were, newest last; axes: node, gpu, time.
        self._earlier: NDArray[np.float32] = self._blank(0, _EARLIER)
        self._length = -1
        self._medians = RunningMedians()
        self._alike: set[str] = set()
        self._usual: Usual | None = None
        self._period = -1

    def empty(self) -> Baseline:
        """Return a baseline for some of the same nodes that has learned nothing yet."""
        other = Baseline(self.seconds, self.resolution_seconds)
        other._alike = set(self._alike)
        return other

    def forget(self, kept: Collection[str] = ()) -> None:
        """Begin anew with all nodes but those ``kept``, and those that are assumed to be alike.

        What was usual for them until now stays among what was usual earlier.
        """
        if self._usual is not None and self._period >= 0:
            self._note_earlier(self._usual.offset)
        kept = {*kept, *self._alike}
        others = [index for index, node in enumerate(self.nodes) if node not in kept]
        self._past[others] = np.nan
        self._period = -1

    def follow(self, nodes: tuple[str, ...], gpus: tuple[str, ...] | None = None) -> None:
        """Go on with these nodes and GPUs: known ones keep their past, new ones begin without.

        Parameters
        ----------
        nodes
            In order of the first axis.
        gpus
            In order of the second; None keeps those known.
        """
        gpus = self.gpus if gpus is None else gpus or ("",)
        if (nodes, gpus) == (self.nodes, self.gpus):
            return
        old_nodes, old_gpus = self.nodes, self.gpus
        rows = {node: index for index, node in enumerate(old_nodes)}
        columns = {gpu: index for index, gpu in enumerate(old_gpus)}
        stay = [(i, rows[node]) for i, node in enumerate(nodes) if node in rows]
        kept = [(i, columns[gpu]) for i, gpu in enumerate(gpus) if gpu in columns]
        self.nodes, self.gpus = nodes, gpus
        past, earlier = self._blank(len(nodes), self._slots), self._blank(len(nodes), _EARLIER)
        if stay and kept:
            to, origin = ([pair[side] for pair in stay] for side in (0, 1))
            to_gpu, origin_gpu = ([pair[side] for pair in kept] for side in (0, 1))
            places, origins = np.ix_(to, to_gpu), np.ix_(origin, origin_gpu)
            past[places], earlier[places] = self._past[origins], self._earlier[origins]
        for node in self._alike & set(nodes):
            row = past[nodes.index(node)]
            row[np.isnan(row).all(axis=1)] = 0.0
        self._past, self._earlier, self._period = past, earlier, -1

    def _blank(self, nodes: int, times: int) -> NDArray[np.float32]:
        return np.full((nodes, len(self.gpus), times), np.nan, dtype=np.float32)

    def assume_like_peers(self, node: str) -> None:
        """Evaluate ``node`` as if it had no offset: of its past only faulty seconds are known."""
        if node in self.nodes and self.seconds:
            self._alike.add(node)
            self._past[self.nodes.index(node)] = 0.0
            self._period = -1

    @property
    def learned(self) -> NDArray[np.int64]:
        """How many steps of every node's past are known, shape (n_nodes, n_gpus)."""
        count: NDArray[np.int64] = np.isfinite(self._past).sum(axis=2)
        return count

    def _step(self, time: float) -> int:
        """Return the number of an evaluated step, or of the last one before ``time``."""
        return round(time / self.resolution_seconds) // EVALUATED_EVERY

    def usual(self, time: float) -> Usual:
        """Return what is normal at the step of ``time``; learn afterwards."""
        step = self._step(time)
        if self._usual is None or self.period(time) != self._period:
            self._period = self.period(time)
            self._usual = self._summary(step)
            if step // self._slots != self._length:
                self._length = step // self._slots
                self._note_earlier(self._usual.offset)
        return self._usual

    def _note_earlier(self, offset: Levels) -> None:
        self._earlier = np.roll(self._earlier, -1, axis=2)
        self._earlier[:, :, -1] = offset.reshape(self._earlier.shape[:2])

    @property
    def earlier(self) -> NDArray[np.float32]:
        """Offsets that were usual within the last hour, shape (n_units, n_times); NaN = none."""
        return self._earlier.reshape(-1, _EARLIER)

    def period(self, time: float) -> int:
        """Return the number of the steps for which the same is normal as at ``time``."""
        return self._step(time) // _PERIOD

    def usual_until(self, time: float) -> float:
        """Return the time of the last step for which the same is normal as at ``time``."""
        last = (self.period(time) + 1) * _PERIOD - 1
        return round(last * EVALUATED_EVERY * self.resolution_seconds, 3)

    def _summary(self, step: int) -> Usual:
        guarded = (step - np.arange(1, self._guard + 1)) % self._slots
        past = self._past.reshape(-1, self._slots)
        levels = self._levels.copy()
        levels[guarded] = np.nan
        level = median_known(levels)
        middle = self._medians.of(past, guarded, self._least)
        offset = middle if self.seconds else np.where(np.isfinite(middle), 0.0, np.nan)
        # What is learned until the offsets are next replaces these.
        coming = (step + np.arange(_PERIOD)) % self._slots
        replaced = past[:, coming]

        def spread() -> Levels:
            before = past.copy()
            before[:, coming], before[:, guarded] = replaced, np.nan
            own = _MAD_TO_STD * _MEAN_TO_SAMPLE * row_spreads(before, self._least)[1]
            return np.fmax(own, float(row_median(own[None])[0]))

        return Usual(offset, spread, level)

    def learn(self, time: float, level: float, offset: Levels, healthy: NDArray[np.bool_]) -> None:
        """Add one step to the past.

        Parameters
        ----------
        time
            Unix seconds of an evaluated step.
        level
            The job's median level.
        offset
            Of every unit in this step, shape (n_units,), NaN = not known.
        healthy
            Same shape; the others are left out.
        """
        slot = self.learn_level(time, level)
        # A slot keeps its healthy step until another healthy one takes its place, so a long
        # fault cannot wash the healthy past out.
        here = (healthy & np.isfinite(offset)).reshape(self._past.shape[:2])
        np.copyto(self._past[:, :, slot], offset.reshape(here.shape), where=here)

    def learn_all(
        self, times: Sequence[float], levels: Sequence[float], offsets: NDArray[np.float32]
    ) -> None:
        """Add some steps of one period to the past at which every unit is healthy.

        Parameters
        ----------
        times, levels
            Of each step.
        offsets
            Shape (n_steps, n_units), NaN = not known.
        """
        past = self._past.reshape(-1, self._slots)
        for time, level, offset in zip(times, levels, offsets, strict=True):
            _take(offset, past[:, self.learn_level(time, level)])

    def learn_level(self, time: float, level: float) -> int:
        """Add the level of one step to the past, NaN = none, and return the step's slot."""
        slot = self._step(time) % self._slots
        if np.isfinite(level):
            self._levels[slot] = level
        return slot


@compiled.compiled
def _take(offset: NDArray[np.float32], past: NDArray[np.float32]) -> None:
    """Put what is known into the past of one slot."""
    for unit in range(len(offset)):
        if np.isfinite(offset[unit]):
            past[unit] = offset[unit]
