"""The last minutes of one metric on the time grid, kept so that only what is new is read.

Columns are steps modulo the capacity; rows are nodes, or GPUs of nodes. A row of a node that left
is given to the next that joins, so a job whose nodes come and go takes no more room than its
largest size. Pages are drawn while a read is written, so every access takes the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.frame import JobFrame
from peerwatch_detector.reading.block import Block, Key, frame_of
from peerwatch_detector.reading.selection import Grid


class GridRing:
    """A float32 grid of rows and the newest steps.

    Parameters
    ----------
    capacity
        Steps kept.
    step
        Their width in ms.
    """

    def __init__(self, capacity: int, step: int = 1000) -> None:
        self.capacity, self.step = capacity, step
        self.newest: int | None = None
        self._lock = threading.Lock()
        self._rows: dict[Key, int] = {}
        self._free: list[int] = []
        self._values: NDArray[np.float32] = np.empty((0, capacity), np.float32)

    @property
    def resident_bytes(self) -> int:
        """What the grid takes."""
        return self._values.nbytes

    def write(self, block: Block) -> None:
        """Take the steps of a block, in place of what is there; steps too old are passed over.

        Raises
        ------
        ValueError
            If its steps have another width.
        """
        if block.grid.step != self.step:
            raise ValueError(f"A block of steps of {block.grid.step} ms in a ring of {self.step}.")
        with self._lock:
            self._advance(block.grid.end // self.step)
            assert self.newest is not None
            first, last = block.grid.start // self.step, block.grid.end // self.step
            oldest = max(first, self.newest - self.capacity + 1)
            if oldest > last or not block.keys:
                return
            rows = self._rows_of(block.keys)
            for left, right in self._stretches(oldest, last):
                column = left % self.capacity
                self._values[rows, column : column + right - left + 1] = block.values[
                    :, left - first : right - first + 1
                ]

    def keep(self, nodes: Iterable[str]) -> None:
        """Drop the rows of nodes that left the job."""
        wanted = set(nodes)
        with self._lock:
            for key in [key for key in self._rows if key[0] not in wanted]:
                self._free.append(self._rows.pop(key))

    def frame(self, job_id: str, metric: str, nodes: Iterable[str], grid: Grid) -> JobFrame:
        """Return some steps for some nodes; what the ring does not hold is NaN."""
        with self._lock:
            values = np.full((len(self._values), grid.steps), np.nan, np.float32)
            first, last = grid.start // self.step, grid.end // self.step
            if self.newest is not None:
                oldest, newest = max(first, self.newest - self.capacity + 1), min(last, self.newest)
                for left, right in self._stretches(oldest, newest):
                    column = left % self.capacity
                    values[:, left - first : right - first + 1] = self._values[
                        :, column : column + right - left + 1
                    ]
            return frame_of(job_id, metric, tuple(nodes), grid, self._rows, values)

    def _stretches(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return steps as stretches whose columns are consecutive; ends included."""
        found = []
        while first <= last:
            right = min(last, first + self.capacity - 1 - first % self.capacity)
            found.append((first, right))
            first = right + 1
        return found

    def _rows_of(self, keys: tuple[Key, ...]) -> NDArray[np.int64]:
        """Return the rows of keys; new ones get a blank row."""
        new = [key for key in keys if key not in self._rows]
        missing = len(new) - len(self._free)
        if missing > 0:
            have = len(self._values)
            # Room for a few more, so that nodes that join one by one do not copy all each time.
            more = max(missing, have // 16)
            self._values = np.concatenate(
                [self._values, np.empty((more, self.capacity), np.float32)]
            )
            self._free += range(have + more - 1, have - 1, -1)
        for key in new:
            row = self._rows[key] = self._free.pop()
            self._values[row] = np.nan
        return np.array([self._rows[key] for key in keys], np.int64)

    def _advance(self, step: int) -> None:
        """Move the newest step forward and blank the columns that come into use."""
        if self.newest is None:
            self.newest = step
        if step <= self.newest:
            return
        first = max(self.newest + 1, step - self.capacity + 1)
        for left, right in self._stretches(first, step):
            column = left % self.capacity
            self._values[:, column : column + right - left + 1] = np.nan
        self.newest = step
