"""The last minutes of one metric of one job, kept so that a cycle reads only what is new.

Columns are whole Unix seconds modulo the capacity; rows are nodes, or GPUs of nodes. Writing
overwrites, so a late or repeated sample does no harm. The cycle writes while pages are drawn, so
every access takes the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.frame import JobFrame, Series, mean_over_gpus


class Ring:
    """A float32 grid of rows and seconds.

    Parameters
    ----------
    capacity
        Seconds kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.newest = -1
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], int] = {}
        self._values = np.full((0, capacity), np.nan, dtype=np.float32)

    def write(self, series: Iterable[Series]) -> None:
        """Put series with labels ``node`` and, per GPU, ``gpu`` onto the grid.

        A sample belongs to the second it is nearest to; of two in one second the later wins.
        """
        with self._lock:
            for one in series:
                if "node" in one.labels and len(one.times):
                    self._write_one(one)

    def _write_one(self, one: Series) -> None:
        row = self._row((one.labels["node"], one.labels.get("gpu", "")))
        seconds = np.rint(one.times).astype(np.int64)
        self._advance(int(seconds[-1]))
        good = np.isfinite(one.values) & (seconds > self.newest - self.capacity)
        self._values[row, seconds[good] % self.capacity] = one.values[good]

    def keep(self, nodes: Iterable[str]) -> None:
        """Drop the rows of nodes that left the job."""
        wanted = set(nodes)
        with self._lock:
            kept = [(key, row) for key, row in self._rows.items() if key[0] in wanted]
            if len(kept) < len(self._rows):
                self._values = self._values[[row for _, row in kept]]
                self._rows = {key: index for index, (key, _) in enumerate(kept)}

    def frame(
        self, job_id: str, metric: str, nodes: tuple[str, ...], start: int, end: int
    ) -> JobFrame:
        """Return the seconds ``start`` to ``end``, both included, for the given nodes.

        Seconds outside the ring and nodes without a row are NaN.
        """
        seconds = np.arange(start, end + 1)
        times = seconds.astype(np.float64)
        with self._lock:
            gpus = tuple(sorted({gpu for _, gpu in self._rows if gpu}, key=_gpu_order))
            keys = [(node, gpu) for node in nodes for gpu in gpus or ("",)]
            flat = self._gather(keys, seconds)
        if not gpus:
            return JobFrame(job_id, metric, nodes, times, flat)
        per_gpu = flat.reshape(len(nodes), len(gpus), len(seconds))
        return JobFrame(job_id, metric, nodes, times, mean_over_gpus(per_gpu), gpus, per_gpu)

    def _gather(
        self, keys: list[tuple[str, str]], seconds: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        values = np.full((len(keys), len(seconds)), np.nan, dtype=np.float32)
        held = (seconds > self.newest - self.capacity) & (seconds <= self.newest)
        rows = [(index, self._rows[key]) for index, key in enumerate(keys) if key in self._rows]
        if rows and held.any():
            targets, origins = (list(part) for part in zip(*rows, strict=True))
            columns = seconds[held] % self.capacity
            values[np.ix_(targets, np.flatnonzero(held))] = self._values[np.ix_(origins, columns)]
        return values

    def _row(self, key: tuple[str, str]) -> int:
        if key not in self._rows:
            self._rows[key] = len(self._rows)
            blank = np.full((1, self.capacity), np.nan, dtype=np.float32)
            self._values = np.concatenate([self._values, blank])
        return self._rows[key]

    def _advance(self, second: int) -> None:
        """Move the newest second forward and blank the columns that come into use."""
        if second <= self.newest:
            return
        first = max(self.newest + 1, second - self.capacity + 1)
        self._values[:, np.arange(first, second + 1) % self.capacity] = np.nan
        self.newest = second


def _gpu_order(gpu: str) -> tuple[int, str]:
    return (int(gpu), "") if gpu.isdigit() else (1 << 30, gpu)
