"""A part on its way to the server and back: what is asked for, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Self

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.reading.decode.block import Block, join_nodes, join_steps
from peerwatch_detector.reading.decode.grid_writer import (
    ROWS,
    SAMPLES,
    GridWriter,
    close_rows,
    new_grid_writer,
    rates,
)
from peerwatch_detector.reading.decode.layout import Layout, layout_of
from peerwatch_detector.reading.selection import Grid, SelectionPart
from peerwatch_detector.reading.settings import ReadingSettings
from peerwatch_detector.reading.transport.envelope import Annotations


@dataclass(frozen=True, slots=True)
class RangeResult:
    """A part that was read.

    Parameters
    ----------
    block
        The series.
    annotations
        What the server said beside them.
    received
        Bytes of the response.
    """

    block: Block
    annotations: Annotations
    received: int

    @classmethod
    def joined(cls, results: Sequence[Self], *, by_nodes: bool) -> Self:
        """Return parts as a whole: of different nodes, or of times that follow one another."""
        if len(results) == 1:
            return results[0]
        blocks = [result.block for result in results]
        return cls(
            join_nodes(blocks) if by_nodes else join_steps(blocks),
            reduce(add, (result.annotations for result in results), Annotations()),
            sum(result.received for result in results),
        )


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A part on its way: the steps to fill, those before them that rates need, and the time.

    Parameters
    ----------
    part
        What is wanted.
    settings
        The limits.
    deadline
        On the clock of ``time.monotonic``.
    series
        How many series to expect.
    open_left
        Whether the server leaves out a sample exactly as old as a range is long.
    skips_nan
        Whether the server takes NaN for the end of a series.
    known
        How an earlier response was laid out.
    """

    part: SelectionPart
    settings: ReadingSettings
    deadline: float
    series: int
    open_left: bool = False
    skips_nan: bool = False
    known: Layout | None = None

    @property
    def window(self) -> int:
        """Steps of the window of rates; 0 for gauges."""
        seconds = self.part.selection.rate_seconds
        return 0 if seconds is None else max(1, math.ceil(seconds * 1000 / self.part.grid.step))

    @property
    def age(self) -> int:
        """Greatest age of a sample in ms; 0 for expressions, which have a value per step."""
        if self.part.selection.expression is not None:
            return 0
        # Samples as far apart as the steps must not come and go with their jitter.
        return max(round(self.settings.max_age_seconds * 1000), 3 * self.part.grid.step // 2)

    @property
    def grid(self) -> Grid:
        """The steps to fill: those wanted, and the window before them."""
        grid = self.part.grid
        return Grid(grid.start - self.window * grid.step, grid.end, grid.step)

    @property
    def start(self) -> int:
        """Time in ms of the oldest sample that counts."""
        return self.grid.start - self.age

    def writer(self, age: int) -> GridWriter:
        """Return an empty grid for a response whose samples stand for some ms."""
        selection = self.part.selection
        return new_grid_writer(
            self.grid,
            age,
            skips_nan=self.skips_nan,
            counter=selection.rate_seconds is not None,
            labels=(selection.node_label, selection.gpu_label),
            rows=min(self.series, self.settings.max_series),
        )

    def block(self, writer: GridWriter, *, escaped: bool) -> Block:
        """Return the filled grid."""
        close_rows(writer)
        values = writer.values[: writer.counts[ROWS]]
        if self.window:
            seconds = self.window * self.part.grid.step / 1000
            values = rates(values, self.window, seconds, self.window)
        return self.folded(writer, values, escaped=escaped)

    def folded(self, writer: GridWriter, values: NDArray[np.float32], *, escaped: bool) -> Block:
        """Return values with the labels of an writer, one row per node and GPU."""
        layout = layout_of(writer, escaped=escaped, known=self.known)
        return Block(
            self.part.grid,
            layout.keys,
            layout.fold(values),
            int(writer.counts[SAMPLES]),
            layout.duplicates,
            layout.unnamed,
            layout,
        )
