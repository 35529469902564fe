"""What the job as a whole does: train, wait for one of its ranks, or nothing.

Synchronous training runs at the step rate of its slowest rank, so a fault that matters shows in the
progress of every node. While the GPUs are busy but do no work, the ranks spin in a collective
that one of them does not join.

What the job counts itself, its steps, is its step rate; the activity of its hardware stands for it
where nothing is counted. A job waits only if both say so: an evaluation makes no steps, but
computes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config.methods import PeerwatchConfig
from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.detection.methods.peerwatch.counter_rate import (
    counter_rate,
    last_fall,
    last_rise,
)
from peerwatch_detector.detection.methods.peerwatch.order import median_known, quantile
from peerwatch_detector.detection.methods.peerwatch.peers import Levels
from peerwatch_detector.detection.methods.peerwatch.phase import PRESENT_SECONDS, Choice, Phase
from peerwatch_detector.detection.methods.peerwatch.step_rate import (
    lost_share,
    ordinary_pause,
    other_work,
    usual_lull,
)
from peerwatch_detector.detection.methods.peerwatch.stillness import still_seconds
from peerwatch_detector.detection.methods.peerwatch.usual_step_rate import relative_step_rate
from peerwatch_detector.detection.methods.peerwatch.whole_seconds import whole_seconds

# Seconds remembered: an hour, to compare before and after a deviation as long as two histories.
_MEMORY = 3600
# The usual level is this quantile of this long a past: checkpoints and stalls, less than a fifth of
# ten minutes, do not lower it.
_USUAL_QUANTILE, _USUAL_SECONDS = 0.8, 600
# Over so many seconds GPUs are idle or the level has collapsed: one sample alone says neither.
_BUSY_SECONDS = 8
# Where iterations have long lulls the present level is that of twice a lull and some more, so that
# no single one is taken for a wait.
_LULLS, _MORE_SECONDS = 2, 5
# Progress is compared with that of so long before: a few checkpoints' worth, as they come and go.
_BEFORE_SECONDS = 300
# Around the onset nothing is compared: it is known to an evaluated step only.
_ONSET_SECONDS = 5
# Metrics that come every few seconds hold between two samples; no scrape interval in use is longer.
_CARRY_SECONDS = 10
# Seconds with less than this share of the usual progress are a pause, or the lull of an iteration:
# above peerwatch.waiting_share, so that whatever waits is left out.
_PAUSE_SHARE = 0.3
# A counter whose last sample is older tells nothing about the present.
_FRESH_SECONDS = 30
# Below this share of the usual step rate a step is overdue: enough where the hardware, too, does
# next to nothing.
_OVERDUE_SHARE = 0.6
# A step asks several times for the same rate.
_KEPT_RATES = 8
_NO_COUNTERS: Mapping[str, bool] = MappingProxyType({})


class ProgressTracker:
    """The job's progress, second by second, from the first metric that tells of it.

    Iterations last seconds, so progress is kept in seconds however fine the samples are: of
    several samples in a second their mean counts, once the second is over.

    Parameters
    ----------
    config
        Settings.
    least_seconds
        Seconds of past that make a usual level.
    sample_seconds
        Time between two samples, at most a second.
    counters
        Which of the progress metrics count finished work, and whether their rate is the job's step
        rate; the others are levels of activity.
    """

    def __init__(
        self,
        config: PeerwatchConfig,
        least_seconds: int,
        sample_seconds: float = 1.0,
        counters: Mapping[str, bool] = _NO_COUNTERS,
    ) -> None:
        self.config = config
        self._counters = counters
        self.least_seconds = least_seconds
        self.sample_seconds = sample_seconds
        self._per_second = round(1 / sample_seconds)
        self._series: dict[str, Levels] = {}
        self._rates: dict[tuple[str, int], Levels] = {}
        self._floors: dict[str, float] = {}
        self._newest: dict[str, int] = {}
        self._usual_before: dict[str, float] = {}
        self._began = -np.inf
        self._current: str | None = None
        self._usual = np.nan
        self._roles: dict[str, ProgressTracker] = {}
        # The level that told of progress when a job whose steps are counted began to wait.
        self._before_wait: tuple[str, float] | None = None
        self.known = False

    def write(self, metric: str, floor: float, times: NDArray[np.float64], levels: Levels) -> None:
        """Take in the job's median of a metric.

        Parameters
        ----------
        metric
            Its name; all but those configured are ignored.
        floor
            Below this usual level the metric tells nothing.
        times
            Unix seconds of samples, rising, shape (n_steps,).
        levels
            Same shape, NaN = no sample.
        """
        if metric not in self.config.leading_metrics:
            return
        seconds, levels = whole_seconds(times, levels, self._per_second)
        if not len(seconds):
            return
        self._rates.clear()
        series = self._series.setdefault(metric, np.full(_MEMORY, np.nan))
        last = int(seconds[-1])
        newest = self._newest.get(metric, last - _MEMORY)
        if last > newest:
            series[np.arange(max(newest, last - _MEMORY) + 1, last + 1) % _MEMORY] = np.nan
            self._floors[metric], self._newest[metric] = floor, last
        # What came late stands in an older second; it is taken in as well.
        known = np.isfinite(levels) & (seconds > self._newest[metric] - _MEMORY)
        series[seconds[known] % _MEMORY] = levels[known]

    def phase(self, time: float) -> Phase:
        """Return what the job does at ``time``; call it in order of time."""
        for role in self._roles.values():
            role.phase(time)
        second = self._second(time)
        self._current, self._usual = self._choose(second)
        self.known |= self._current is not None
        if self._current is None:
            # A metric that stops coming does not make an undisturbed job suspicious.
            return Phase(known=self.known)
        idle = self.is_idle(time)
        if self._current in self._counters:
            phase = self._counted_phase(second, idle=idle)
        else:
            noticed = self._level_waits(self._current, self._usual, second)
            phase = Phase(True, idle, noticed is not None, noticed or PRESENT_SECONDS)
        return replace(phase, ended=True) if idle and self._given_back(second) else phase

    def _given_back(self, second: int) -> bool:
        """Whether next to nothing is left of the memory that the job's processes held."""
        held = self._past(self.config.held_metric, second, _USUAL_SECONDS)
        if not np.isfinite(held).any():
            return False
        usual = float(np.nanquantile(held, _USUAL_QUANTILE))
        least = max(usual, self._floors[self.config.held_metric])
        return median_known(held[-_BUSY_SECONDS:]) < self.config.collapsed_share * least

    def _counted_phase(self, second: int, *, idle: bool) -> Phase:
        """Return what a job does whose steps are counted: all that tells of it must agree."""
        counters = list(self._known(second, counters=True))
        rested = min(self._step_seconds(counter, second) for counter, _ in counters)
        levels = self._levels(second)
        share = self.config.waiting_share if levels is None else _OVERDUE_SHARE
        waiting = all(
            median_known(self._past(counter, second, PRESENT_SECONDS)) < share * usual
            for counter, usual in counters
        )
        noticed: float | None = rested
        if levels is not None and waiting:
            noticed = self._level_waits(*levels, second)
        self._before_wait = levels if waiting and noticed is not None else None
        if not waiting or noticed is None:
            return Phase(True, idle, False, counted=levels is None, step_seconds=rested)
        counter, usual = counters[0]
        pause = ordinary_pause(self._past(counter, second, _MEMORY), _PAUSE_SHARE * usual, 0.0)
        return Phase(True, idle, True, noticed, levels is None, rested, pause)

    def _levels(self, second: int) -> tuple[str, float] | None:
        """Return the level that tells of progress and its usual value, None if there is none.

        While the job waits they are those from before the wait: after eight minutes of it, to wait
        would be usual.
        """
        known = self._known(second, counters=False)
        if self._before_wait is None:
            return next(known, None)
        metric, usual = self._before_wait
        return metric, max(usual, dict(known).get(metric, usual))

    def loss(self, since: float, time: float, least_seconds: float, parts: int = 0) -> float:
        """Return the share of progress lost since a moment, as a share of that before.

        A synchronous job slows down as a whole. What only one of its roles loses is that role's
        share of the work, so the least of what the roles lost counts.

        Parameters
        ----------
        since, time
            Unix times.
        least_seconds, parts
            As for ``lost_share``.

        Returns
        -------
        float
            0.1 = a tenth slower; NaN = not known.
        """
        start, second = int(since), self._second(time)
        counted = min(_MEMORY, max(0, second - start - _ONSET_SECONDS))
        if counted <= least_seconds:
            return float("nan")
        # All roles finish a step together: what is counted is the whole job's.
        roles = () if self._current in self._counters else self._roles.values()
        losses = [role.loss(since, time, least_seconds, parts) for role in roles]
        known = [loss for loss in losses if np.isfinite(loss)]
        if known:
            return min(known)
        if self._current is None:
            return float("nan")
        low = _PAUSE_SHARE * self._usual
        past = self._hour(self._current, second)
        if self.config.other_work and self._current not in self._counters:
            past = np.where(self._other_work(second, past, low), np.nan, past)
        after = past[_MEMORY - counted :]
        before = past[: max(0, _MEMORY - (second - start + _ONSET_SECONDS))][-_BEFORE_SECONDS:]
        return lost_share(before, after, low, least_seconds, parts)

    def _other_work(self, second: int, past: Levels, low: float) -> NDArray[np.bool_]:
        """Mark the seconds in which the job computed with much less traffic than it trains."""
        marked = np.zeros(len(past), dtype=np.bool_)
        for metric, _ in self._known(second, counters=False):
            if metric != self._current:
                marked |= other_work(past, self._hour(metric, second), low)
        return marked

    def still_seconds(self, time: float) -> float | None:
        """Return for how long the hardware has stood still; None where it works or steps are known.

        Of a metric that told of work within the hour, the first with samples.
        """
        if self._current in self._counters:
            return None
        second = self._second(time)
        for metric in self.config.progress_metrics:
            if metric in self._series and metric not in self._counters:
                past, floor = self._past(metric, second, _MEMORY), self._floors[metric]
                if np.isfinite(past).any() and np.nanmax(past) >= floor:
                    return still_seconds(past, floor, self.config.waiting_share)
        return None

    def is_idle(self, time: float) -> bool:
        """Whether the GPUs are not busy; False where that is not known."""
        busy = self._past(self.config.busy_metric, self._second(time), _BUSY_SECONDS)
        return bool(median_known(busy) < self.config.idle_share)

    def step_rate(self, time: float) -> JobStepRate | None:
        """Return the job's step rate against its own usual one at the step of the last ``phase``.

        None while it is not known: nothing counts its steps, or it has just begun, or begun anew
        by a resume or on other nodes.
        """
        counter, second = self._current, self._second(time)
        if counter is None or not self._counters.get(counter):
            return None
        raw, before = self._raw(counter, second), self._usual_before.get(counter, np.nan)
        first = 0
        if (fell := last_fall(raw)) is not None:
            first, before = fell, np.nan
        if np.isfinite(self._began):
            first = max(first, _MEMORY - 1 - max(0, second - round(self._began)))
        rates = self._past(counter, second, _MEMORY)[first:]
        ratio, usual = relative_step_rate(rates, self.config.patience_seconds, before)
        return JobStepRate(counter, usual, ratio) if np.isfinite(ratio) else None

    def restore(self, counter: str, usual: float) -> None:
        """Go on with the usual step rate that was published before this process began."""
        self._usual_before[counter] = usual

    def begin_anew(self, time: float) -> None:
        """Forget the usual step rate: from now on the job runs on other nodes."""
        self._began = time
        self._usual_before.clear()
        self._before_wait = None

    def choices(self) -> dict[str, Choice]:
        """Return what the last ``phase`` chose, by role; that of the whole job under ""."""
        own = Choice(self._current, self._usual, self.known)
        return {"": own} | {name: role.choices()[""] for name, role in self._roles.items()}

    def choose(self, choices: Mapping[str, Choice]) -> None:
        """Go back to an earlier choice, so that ``loss`` is that of its step."""
        own = choices[""]
        self._current, self._usual, self.known = own.metric, own.usual, own.known
        for name, role in self._roles.items():
            if name in choices:
                role.choose({"": choices[name]})

    def of_roles(self, roles: Collection[str]) -> dict[str, ProgressTracker]:
        """Follow these roles of the job too, and return the progress of each; see ``loss``."""
        blank = partial(ProgressTracker, self.config, self.least_seconds, self.sample_seconds)
        self._roles = {role: self._roles.get(role) or blank() for role in roles}
        return self._roles

    def _second(self, time: float) -> int:
        """Return the last second that is over once the sample of ``time`` is there."""
        return (round(time * self._per_second) + 1) // self._per_second - 1

    def _choose(self, time: int) -> tuple[str | None, float]:
        for counters in (True, False):
            for known in self._known(time, counters=counters):
                return known
        return None, np.nan

    def _known(self, time: int, *, counters: bool) -> Iterator[tuple[str, float]]:
        """Yield the metrics that tell of progress, counters or levels, and their usual value."""
        for metric in self.config.progress_metrics:
            if (metric in self._counters) != counters or metric not in self._series:
                continue
            past = self._past(metric, time, _MEMORY if counters else _USUAL_SECONDS)
            if counters and not np.isfinite(past[-_FRESH_SECONDS:]).any():
                continue
            latest, past = past[-_USUAL_SECONDS:], past[np.isfinite(past)]
            began = self._newest.get(metric, time) - time
            if len(past) and began > -_USUAL_SECONDS and self._reaches_back(latest):
                usual = quantile(past, _USUAL_QUANTILE)
                if usual >= self._floors[metric]:
                    yield metric, usual

    def _level_waits(self, metric: str, usual: float, second: int) -> float | None:
        """Return how long ago the wait began that a level shows; None = it shows none."""
        least = self.config.waiting_share * usual
        lull = usual_lull(self._past(metric, second, _USUAL_SECONDS), least)
        seconds = max(PRESENT_SECONDS, _LULLS * lull + _MORE_SECONDS)
        present = median_known(self._past(metric, second, seconds))
        return (PRESENT_SECONDS + seconds) / 2 if present < least else None

    def _step_seconds(self, counter: str, second: int) -> float:
        """Return for how long a counter has not risen."""
        return float(last_rise(self._raw(counter, second)) or 0)

    def _reaches_back(self, past: Levels) -> bool:
        """Whether the past of a metric reaches far enough back."""
        return len(past) - int(np.argmax(np.isfinite(past))) > self.least_seconds

    def _rate(self, counter: str, time: int) -> Levels:
        """Return the rate of a counter up to a second, as far back as is remembered."""
        found = self._rates.get((counter, time))
        if found is None:
            if len(self._rates) >= _KEPT_RATES:
                self._rates.clear()
            found = self._rates[counter, time] = counter_rate(self._raw(counter, time))
        return found

    def _raw(self, metric: str, time: int) -> Levels:
        """Return the samples of the hour up to and with ``time``."""
        found = np.full(_MEMORY, np.nan)
        if metric not in self._series:
            return found
        newest, first = self._newest[metric], time - _MEMORY + 1
        begin, end = max(first, newest - _MEMORY + 1), min(time, newest) + 1
        if begin < end:
            found[begin - first : end - first] = self._kept(metric, begin, end)
        return found

    def _hour(self, metric: str, time: int) -> Levels:
        """Return the hour up to and with ``time`` as ``_past`` does, NaN where nothing is kept."""
        past = self._past(metric, time, _MEMORY)
        behind = max(0, time - self._newest[metric]) if metric not in self._counters else 0
        ahead = _MEMORY - len(past) - behind
        return np.pad(past, (max(0, ahead), behind), constant_values=np.nan)[-_MEMORY:]

    def _past(self, metric: str, time: int, seconds: int) -> Levels:
        """Return the seconds up to and with ``time``: a counter's rate, or levels carried on."""
        if metric not in self._series or seconds <= 0:
            return np.empty(0)
        if metric in self._counters:
            return self._rate(metric, time)[-seconds:]
        newest = self._newest[metric]
        first = max(time - seconds, newest - _MEMORY) + 1
        lead = max(first - _CARRY_SECONDS, newest - _MEMORY + 1)
        values = self._kept(metric, lead, min(time, newest) + 1)
        known = np.isfinite(values)
        if not known.all():
            place = np.arange(len(values))
            source = np.maximum.accumulate(np.where(known, place, -_CARRY_SECONDS))
            values = np.where(place - source < _CARRY_SECONDS, values[source], np.nan)
        return values[first - lead :]

    def _kept(self, metric: str, begin: int, end: int) -> Levels:
        """Return a copy of the samples of the seconds from ``begin`` up to ``end``, all kept."""
        series, count = self._series[metric], max(0, end - begin)
        start = begin % _MEMORY
        if start + count <= _MEMORY:
            return series[start : start + count].copy()
        return np.concatenate((series[start:], series[: start + count - _MEMORY]))
