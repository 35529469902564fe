"""Follows the metrics of one job: the first read takes the whole range, later ones what is new."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Container, Sequence

from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.reading.decode.prepare import prepare
from peerwatch_detector.reading.grid_ring import GridRing
from peerwatch_detector.reading.range_reader import RangeReader, Reading
from peerwatch_detector.reading.selection import Grid, Selection
from peerwatch_detector.reading.settings import ReadingSettings


class Follower:
    """The last minutes of a job's metrics, brought up to date at each call.

    Parameters
    ----------
    job_id
        The training job.
    reader
        Where ranges come from.
    selections
        The metrics; each has another name.
    history_seconds
        How long a range is kept.
    settings
        How far reads end behind the clock, and how far they overlap.
    step_seconds
        Of the grid; whole milliseconds.
    """

    def __init__(
        self,
        job_id: str,
        reader: RangeReader,
        selections: Sequence[Selection],
        history_seconds: float,
        settings: ReadingSettings,
        step_seconds: float = 1.0,
    ) -> None:
        self.job_id, self.step_seconds = job_id, step_seconds
        self._reader, self._settings = reader, settings
        self._selections = {selection.metric: selection for selection in selections}
        self._step = round(step_seconds * 1000)
        self._history = round(history_seconds / step_seconds)
        self._overlap = math.ceil(round(settings.overlap_seconds / step_seconds, 6))
        self._rings = {
            metric: GridRing(self._history + 1, self._step) for metric in self._selections
        }
        self.read_until: dict[str, int] = {}

    @property
    def resident_bytes(self) -> int:
        """What the grids take."""
        return sum(ring.resident_bytes for ring in self._rings.values())

    def update(
        self,
        nodes: Sequence[str],
        now: float,
        metrics: Collection[str] | None = None,
        seconds: float | None = None,
    ) -> dict[str, ReadError | None]:
        """Read what is new of every metric, or of some.

        A metric that could not be read keeps what it had, and is read from there the next time.

        Parameters
        ----------
        nodes
            The job's nodes now; the rows of others are dropped.
        now
            Unix time.
        metrics
            Which; None is all.
        seconds
            How long reading may take; None is what the settings say.

        Returns
        -------
        dict[str, ReadError | None]
            Why a metric could not be read, by metric; None if it was.
        """
        errors: dict[str, ReadError | None] = {}
        due = self._due(now, self._selections if metrics is None else metrics)
        prepare()
        seconds = self._settings.deadline_seconds if seconds is None else seconds
        deadline = time.monotonic() + seconds
        # What has least to catch up with first: what failed before may take all of the time again.
        for grid in sorted(due, key=lambda grid: grid.start, reverse=True):
            readings = deque(self._reader.read(due[grid], grid, nodes, deadline))
            # One by one, so that a large job's history is never held twice.
            while readings:
                metric, error = self._take(readings.popleft(), grid, nodes)
                errors[metric] = error
        for ring in self._rings.values():
            ring.keep(nodes)
        return errors

    def release(self, metric: str, first: int, samples: int) -> None:
        """Let go of a metric's steps before one, where more samples than these are held."""
        self._rings[metric].release(first, samples)

    def _due(self, now: float, metrics: Container[str]) -> dict[Grid, list[Selection]]:
        """Return what to read; metrics that failed before have more to catch up with."""
        end = self.newest_step(now)
        first = end - self._history
        due: dict[Grid, list[Selection]] = {}
        for metric, selection in self._selections.items():
            if metric not in metrics:
                continue
            start = max(first, self.read_until.get(metric, first) - self._overlap)
            # A clock that went back reads all again.
            grid = self._grid(start if start <= end else first, end)
            due.setdefault(grid, []).append(selection)
        return due

    def _take(
        self, reading: Reading, grid: Grid, nodes: Sequence[str]
    ) -> tuple[str, ReadError | None]:
        metric = reading.selection.metric
        if isinstance(reading.outcome, ReadError):
            return metric, reading.outcome
        self._rings[metric].write(reading.outcome.block, nodes)
        self.read_until[metric] = grid.end // self._step
        return metric, None

    def newest_step(self, now: float) -> int:
        """Return the step at which a read of now ends, counted from 1970."""
        # A quotient of decimals may lie a hair below the whole number that it is.
        return math.floor(round((now - self._settings.lag_seconds) / self.step_seconds, 6))

    def holds(self, metric: str) -> bool:
        """Whether any node of the job ever had a sample of a metric."""
        return self._rings[metric].rows > 0

    def rows(self, metric: str) -> int:
        """How many series of a metric are held."""
        return self._rings[metric].rows

    def held_steps(self, metric: str) -> int:
        """How many steps of a metric are held."""
        return self._rings[metric].steps

    def frame(
        self, metric: str, nodes: Sequence[str], first: int, last: int, *, lent: bool = False
    ) -> JobFrame:
        """Return a metric between two steps, ends included; what was not read is NaN.

        Parameters
        ----------
        metric, nodes
            What, and of whom.
        first, last
            Steps, counted from 1970.
        lent
            Whether it is used before the next ``update`` only, and not changed.
        """
        grid = self._grid(first, last)
        return self._rings[metric].frame(self.job_id, metric, nodes, grid, lent=lent)

    def _grid(self, first: int, last: int) -> Grid:
        return Grid(first * self._step, last * self._step, self._step)
