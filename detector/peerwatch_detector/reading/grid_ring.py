"""The last minutes of one metric on the time grid, kept so that only what is new is read.

Columns are steps modulo their number; rows are nodes, or GPUs of nodes. A row of a node that left
is given to the next that joins, so a job whose nodes come and go takes no more room than its
largest size. Views are drawn while a read is written, so every access takes the lock.

A large job's range is most of what a detector holds. Its first read is kept in the order of frames,
so that it can be evaluated where it lies; what is evaluated is held for as long as there is room.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.frame import JobFrame
from peerwatch_detector.reading.decode.block import Block, FrameRows, frame_keys
from peerwatch_detector.reading.decode.layout import Key
from peerwatch_detector.reading.selection import Grid


class GridRing:
    """A float32 grid of rows and the newest steps.

    Parameters
    ----------
    capacity
        Steps kept, unless ``release`` lets go of some.
    step
        Their width in ms.
    """

    def __init__(self, capacity: int, step: int = 1000) -> None:
        self.capacity, self.step = capacity, step
        self.newest: int | None = None
        self._lock = threading.Lock()
        self._rows: dict[Key, int] = {}
        # Blank rows, each where a frame has a key that has no samples yet.
        self._reserved: dict[Key, int] = {}
        self._free: list[int] = []
        self._values: NDArray[np.float32] = np.empty((0, capacity), np.float32)
        # The step of the first column, and the oldest that must not be lost; None is all.
        self._origin = 0
        self._needed: int | None = None
        # What was found the last time, None when it holds no more.
        self._kept: set[str] | None = None
        self._frame_rows: FrameRows | None = None
        self._written: tuple[tuple[Key, ...], NDArray[np.int64]] | None = None

    @property
    def rows(self) -> int:
        """How many series it holds."""
        return len(self._rows)

    @property
    def steps(self) -> int:
        """How many steps it holds at present."""
        steps: int = self._values.shape[1]
        return steps

    @property
    def resident_bytes(self) -> int:
        """What the grid takes."""
        return self._values.nbytes

    def write(self, block: Block, nodes: Iterable[str] = ()) -> None:
        """Write the steps of a block, in place of what is there; steps too old are passed over.

        Parameters
        ----------
        block
            The series.
        nodes
            The job's nodes, as far as they are known.

        Raises
        ------
        ValueError
            If its steps have another width.
        """
        if block.grid.step != self.step:
            raise ValueError(f"A block of steps of {block.grid.step} ms in a ring of {self.step}.")
        first, last = block.grid.start // self.step, block.grid.end // self.step
        with self._lock:
            if not self._rows and (self.newest is None or last >= self.newest):
                block = self._begin(block, tuple(nodes))
            self._advance(last)
            assert self.newest is not None
            oldest = max(first, self.newest - self.steps + 1)
            if oldest > last or not block.keys:
                return
            rows = self._rows_of(block.keys)
            for left, right in self._stretches(oldest, last):
                column = self._column(left)
                self._values[rows, column : column + right - left + 1] = block.values[
                    :, left - first : right - first + 1
                ]

    def release(self, first: int, samples: int) -> None:
        """Let go of the steps before one, as far as there is no room for them.

        Parameters
        ----------
        first
            All from this step on are kept, up to the capacity.
        samples
            How many of all rows together there is room for.
        """
        with self._lock:
            self._needed = first
            if self.newest is None or not len(self._values):
                return
            room = samples // len(self._values)
            wanted = min(self.capacity, max(room, self.newest - first + 1))
            # Memory is moved for a quarter of it or more.
            if wanted <= 0.75 * self.steps:
                self._resize(wanted)

    def keep(self, nodes: Iterable[str]) -> None:
        """Drop the rows of nodes that left the job."""
        wanted = set(nodes)
        with self._lock:
            if wanted == self._kept:
                return
            for rows in (self._rows, self._reserved):
                for key in [key for key in rows if key[0] not in wanted]:
                    self._free.append(rows.pop(key))
                    self._frame_rows = self._written = None
            self._kept = wanted

    def frame(
        self, job_id: str, metric: str, nodes: Iterable[str], grid: Grid, *, lent: bool = False
    ) -> JobFrame:
        """Return some steps for some nodes; what the ring does not hold is NaN.

        Parameters
        ----------
        job_id, metric, nodes, grid
            Of the frame.
        lent
            Whether it is used before the next ``write`` only, and not changed: it may be the
            ring's own memory then.
        """
        with self._lock:
            places = self._frame_rows_of(tuple(nodes))
            if lent and self._is_whole(places, grid):
                values = self._values
            else:
                values = self._cut(places, grid)
            return places.frame(job_id, metric, grid, values)

    def _is_whole(self, places: FrameRows, grid: Grid) -> bool:
        """Whether a frame is just what the ring holds, in the same order."""
        first, last = grid.start // self.step, grid.end // self.step
        if (first, last) != (self._origin, self.newest) or grid.steps != self.steps:
            return False
        if len(places.order) != len(self._values):
            return False
        own, missing = np.arange(len(self._values)), places.order < 0
        in_place = np.array_equal(np.where(missing, own, places.order), own)
        return in_place and set(own[missing].tolist()) <= set(self._reserved.values())

    def _cut(self, places: FrameRows, grid: Grid) -> NDArray[np.float32]:
        """Return the rows and steps of a frame, shape (n_rows, n_steps)."""
        values = np.full((len(places.order), grid.steps), np.nan, np.float32)
        if self.newest is None or not len(self._values):
            return values
        first, last = grid.start // self.step, grid.end // self.step
        oldest, newest = max(first, self.newest - self.steps + 1), min(last, self.newest)
        for left, right in self._stretches(oldest, newest):
            column = self._column(left)
            stretch = self._values[:, column : column + right - left + 1]
            values[:, left - first : right - first + 1] = stretch[places.order]
        values[places.order < 0] = np.nan
        return values

    def _column(self, step: int) -> int:
        return (step - self._origin) % self.steps

    def _stretches(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return steps as stretches whose columns are consecutive; ends included."""
        found = []
        while first <= last:
            right = min(last, first + self.steps - 1 - self._column(first))
            found.append((first, right))
            first = right + 1
        return found

    def _begin(self, block: Block, nodes: tuple[str, ...]) -> Block:
        """Make room for the first block in the order of frames; return what of it is kept."""
        wanted = frame_keys(nodes, block.keys)
        # GPUs that only few nodes have would make it larger than what came.
        if not wanted or len(wanted) > 1.25 * len(block.keys):
            return block
        self._values = np.full((len(wanted), self.capacity), np.nan, np.float32)
        self._reserved = {key: row for row, key in enumerate(wanted)}
        self._origin = max(0, block.grid.end // self.step - self.capacity + 1)
        self._free, self._frame_rows, self._written, self._kept = [], None, None, None
        return block.only(self._reserved.keys())

    def _resize(self, steps: int) -> None:
        """Hold another number of steps; the newest stay."""
        assert self.newest is not None
        old, oldest = self._values, self.newest - min(steps, self.steps) + 1
        held = [
            (left, right, self._column(left))
            for left, right in self._stretches(oldest, self.newest)
        ]
        self._values = np.full((len(old), steps), np.nan, np.float32)
        self._origin = self.newest - steps + 1
        for left, right, column in held:
            to = self._column(left)
            count = right - left + 1
            self._values[:, to : to + count] = old[:, column : column + count]

    def _frame_rows_of(self, nodes: tuple[str, ...]) -> FrameRows:
        """Return where the rows of nodes are, as found the last time if nothing changed since."""
        if self._frame_rows is None or self._frame_rows.nodes != nodes:
            self._frame_rows = FrameRows.of(nodes, self._rows)
        return self._frame_rows

    def _rows_of(self, keys: tuple[Key, ...]) -> NDArray[np.int64]:
        """Return the rows of keys, which are those of the last block as a rule."""
        if self._written is None or self._written[0] is not keys:
            self._written = keys, self._found_rows(keys)
        return self._written[1]

    def _found_rows(self, keys: tuple[Key, ...]) -> NDArray[np.int64]:
        """Return the rows of keys; new ones get a blank row."""
        for key in [key for key in keys if key in self._reserved]:
            self._rows[key] = self._reserved.pop(key)
            self._frame_rows = self._kept = None
        new = [key for key in keys if key not in self._rows]
        missing = len(new) - len(self._free)
        if missing > 0:
            have = len(self._values)
            # Room for a few more, so that nodes that join one by one do not copy all each time.
            more = max(missing, have // 16)
            self._values = np.concatenate([self._values, np.empty((more, self.steps), np.float32)])
            self._free += range(have + more - 1, have - 1, -1)
        if new:
            self._frame_rows = self._kept = None
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
        needed = min(self.capacity, step - (self._needed or 0) + 1)
        if needed > self.steps:
            self._resize(needed)
        first = max(self.newest + 1, step - self.steps + 1)
        for left, right in self._stretches(first, step):
            column = self._column(left)
            self._values[:, column : column + right - left + 1] = np.nan
        self.newest = step
