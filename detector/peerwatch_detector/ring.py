"""The last minutes of one metric of one job, kept so that a cycle reads only what is new.

Columns are steps of Unix time modulo the capacity; rows are nodes, or GPUs of nodes. Writing
overwrites, so a late or repeated sample does no harm. The cycle writes while pages are drawn, so
every access takes the lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.frame import JobFrame, Series, from_grid, mean_over_gpus, to_grid


class Ring:
    """A float32 grid of rows and steps.

    Parameters
    ----------
    capacity
        Seconds kept.
    step_seconds
        Of the grid.
    """

    def __init__(self, capacity: int, step_seconds: float = 1.0) -> None:
        self.capacity = capacity
        self.step_seconds = step_seconds
        # In steps, as all that is private.
        self.newest = -1
        self._columns = math.ceil(round(capacity / step_seconds, 6))
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], int] = {}
        self._values = np.full((0, self._columns), np.nan, dtype=np.float32)

    def write(self, series: Iterable[Series]) -> None:
        """Put series with labels ``node`` and, per GPU, ``gpu`` onto the grid.

        A sample belongs to the step it is nearest to; of two in one step the later wins.
        """
        with self._lock:
            for one in series:
                if "node" in one.labels and len(one.times):
                    self._write_one(one)

    def _write_one(self, one: Series) -> None:
        row = self._row((one.labels["node"], one.labels.get("gpu", "")))
        steps = to_grid(one.times, self.step_seconds)
        self._advance(int(steps[-1]))
        good = np.isfinite(one.values) & (steps > self.newest - self._columns)
        self._values[row, steps[good] % self._columns] = one.values[good]

    def keep(self, nodes: Iterable[str]) -> None:
        """Drop the rows of nodes that left the job."""
        wanted = set(nodes)
        with self._lock:
            kept = [(key, row) for key, row in self._rows.items() if key[0] in wanted]
            if len(kept) < len(self._rows):
                self._values = self._values[[row for _, row in kept]]
                self._rows = {key: index for index, (key, _) in enumerate(kept)}

    def frame(
        self, job_id: str, metric: str, nodes: tuple[str, ...], start: float, end: float
    ) -> JobFrame:
        """Return the steps from ``start`` to ``end``, both included, for the given nodes.

        Steps outside the ring and nodes without a row are NaN.

        Parameters
        ----------
        job_id, metric, nodes
            What the frame is about.
        start, end
            Unix times; each stands for the step it is nearest to.
        """
        first, last = (int(to_grid(time, self.step_seconds)) for time in (start, end))
        steps = np.arange(first, last + 1)
        times = from_grid(steps, self.step_seconds)
        with self._lock:
            gpus = tuple(sorted({gpu for _, gpu in self._rows if gpu}, key=_gpu_order))
            keys = [(node, gpu) for node in nodes for gpu in gpus or ("",)]
            flat = self._gather(keys, steps)
        if not gpus:
            return JobFrame(job_id, metric, nodes, times, flat)
        per_gpu = flat.reshape(len(nodes), len(gpus), len(steps))
        return JobFrame(job_id, metric, nodes, times, mean_over_gpus(per_gpu), gpus, per_gpu)

    def _gather(self, keys: list[tuple[str, str]], steps: NDArray[np.int64]) -> NDArray[np.float32]:
        values = np.full((len(keys), len(steps)), np.nan, dtype=np.float32)
        held = (steps > self.newest - self._columns) & (steps <= self.newest)
        rows = [(index, self._rows[key]) for index, key in enumerate(keys) if key in self._rows]
        if rows and held.any():
            targets, origins = (list(part) for part in zip(*rows, strict=True))
            columns = steps[held] % self._columns
            values[np.ix_(targets, np.flatnonzero(held))] = self._values[np.ix_(origins, columns)]
        return values

    def _row(self, key: tuple[str, str]) -> int:
        if key not in self._rows:
            self._rows[key] = len(self._rows)
            blank = np.full((1, self._columns), np.nan, dtype=np.float32)
            self._values = np.concatenate([self._values, blank])
        return self._rows[key]

    def _advance(self, step: int) -> None:
        """Move the newest step forward and blank the columns that come into use."""
        if step <= self.newest:
            return
        first = max(self.newest + 1, step - self._columns + 1)
        self._values[:, np.arange(first, step + 1) % self._columns] = np.nan
        self.newest = step


def _gpu_order(gpu: str) -> tuple[int, str]:
    return (int(gpu), "") if gpu.isdigit() else (1 << 30, gpu)
