"""What one read delivers: a grid of series and steps, and how it becomes a frame."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.frame import JobFrame, mean_over_gpus
from peerwatch_detector.reading.decode.layout import Key, Layout
from peerwatch_detector.reading.selection import Grid


@dataclass(frozen=True, slots=True)
class Block:
    """Series on a time grid.

    Parameters
    ----------
    grid
        The steps.
    keys
        Node and GPU of each row; the GPU is empty for metrics per node. Each key comes once.
    values
        Shape (n_keys, n_steps); NaN = missing.
    samples
        How many samples it was made of.
    duplicates
        How many series shared a key with another. The series whose labels sort first fills the
        row, the others its gaps.
    unnamed
        How many series had no node and were dropped.
    layout
        How the rows came about, if they are those of one response.
    """

    grid: Grid
    keys: tuple[Key, ...]
    values: NDArray[np.float32]
    samples: int = 0
    duplicates: int = 0
    unnamed: int = 0
    layout: Layout | None = None

    def frame(self, job_id: str, metric: str, nodes: Sequence[str]) -> JobFrame:
        """Return the frame of a job; nodes without a row are NaN."""
        rows = {key: row for row, key in enumerate(self.keys)}
        places = FrameRows.of(tuple(nodes), rows)
        blank = np.empty((len(places.order), self.grid.steps), np.float32)
        values = self.values[places.order] if len(self.values) else blank
        values[places.order < 0] = np.nan
        return places.frame(job_id, metric, self.grid, values)

    def with_samples(self) -> Block:
        """Return the rows that have any value."""
        return self._rows_where(np.asarray(np.isfinite(self.values).any(axis=1)))

    def only(self, keys: Container[Key]) -> Block:
        """Return the rows that have one of some keys."""
        wanted = np.array([key in keys for key in self.keys], np.bool_)
        return self if wanted.all() else self._rows_where(wanted)

    def _rows_where(self, wanted: NDArray[np.bool_]) -> Block:
        keys = tuple(key for key, keep in zip(self.keys, wanted, strict=True) if keep)
        return replace(self, keys=keys, values=self.values[wanted], layout=None)


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Where the rows of a frame stand among those of a block or a ring.

    Parameters
    ----------
    nodes, gpus
        The axes of the frame; no GPUs for metrics per node.
    order
        Row of each node and GPU, -1 where there is none; shape (n_nodes * n_gpus,).
    """

    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, nodes: tuple[str, ...], rows: Mapping[Key, int]) -> FrameRows:
        """Return the places of some nodes, given the row of every key."""
        gpus = _gpus(rows)
        keys = _keys(nodes, gpus)
        return cls(nodes, gpus, np.array([rows.get(key, -1) for key in keys], np.int64))

    def frame(self, job_id: str, metric: str, grid: Grid, values: NDArray[np.float32]) -> JobFrame:
        """Return the frame that has these values, shape (n_nodes * n_gpus, n_steps)."""
        if not self.gpus:
            return JobFrame(job_id, metric, self.nodes, grid.times, values)
        per_gpu = values.reshape(len(self.nodes), len(self.gpus), grid.steps)
        mean = mean_over_gpus(per_gpu)
        return JobFrame(job_id, metric, self.nodes, grid.times, mean, self.gpus, per_gpu)


def frame_keys(nodes: tuple[str, ...], keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return the keys of a frame's rows in their order, given those that have samples.

    Empty if none of the nodes has any, or if a node has samples both with and without a GPU.
    """
    members = set(nodes)
    found = [key for key in keys if key[0] in members]
    gpus = _gpus(found)
    if not found or (gpus and any(not gpu for _, gpu in found)):
        return ()
    return tuple(_keys(nodes, gpus))


def _gpus(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(sorted({gpu for _, gpu in keys if gpu}, key=_gpu_order))


def _keys(nodes: tuple[str, ...], gpus: tuple[str, ...]) -> Iterator[Key]:
    return ((node, gpu) for node in nodes for gpu in gpus or ("",))


def _gpu_order(gpu: str) -> tuple[int, str]:
    return (int(gpu), "") if gpu.isdecimal() else (1 << 30, gpu)


def join_steps(blocks: Sequence[Block]) -> Block:
    """Return blocks of consecutive steps as one."""
    if len(blocks) == 1:
        return blocks[0]
    grid = Grid(blocks[0].grid.start, blocks[-1].grid.end, blocks[0].grid.step)
    keys = tuple(dict.fromkeys(key for block in blocks for key in block.keys))
    place = {key: row for row, key in enumerate(keys)}
    values = np.full((len(keys), grid.steps), np.nan, np.float32)
    first = 0
    for block in blocks:
        rows = np.array([place[key] for key in block.keys], np.int64)
        values[rows, first : first + block.grid.steps] = block.values
        first += block.grid.steps
    return _joined(grid, keys, values, blocks)


def join_nodes(blocks: Sequence[Block]) -> Block:
    """Return blocks of different nodes, of the same steps, as one."""
    keys = tuple(key for block in blocks for key in block.keys)
    values = np.concatenate([block.values for block in blocks])
    return _joined(blocks[0].grid, keys, values, blocks)


def _joined(
    grid: Grid, keys: tuple[Key, ...], values: NDArray[np.float32], blocks: Sequence[Block]
) -> Block:
    return Block(
        grid,
        keys,
        values,
        sum(block.samples for block in blocks),
        max(block.duplicates for block in blocks),
        max(block.unnamed for block in blocks),
    )
