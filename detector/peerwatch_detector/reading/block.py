"""What one read delivers: a grid of series and steps, and how it becomes a frame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import JobFrame, mean_over_gpus
from peerwatch_detector.reading.arrival import GPU, LABELS, NODE, ROWS, Arrival
from peerwatch_detector.reading.selection import Grid

Key = tuple[str, str]


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
    """

    grid: Grid
    keys: tuple[Key, ...]
    values: NDArray[np.float32]
    samples: int = 0
    duplicates: int = 0
    unnamed: int = 0

    def frame(self, job_id: str, metric: str, nodes: Sequence[str]) -> JobFrame:
        """Return the frame of a job; nodes without a row are NaN."""
        rows = {key: row for row, key in enumerate(self.keys)}
        return frame_of(job_id, metric, tuple(nodes), self.grid, rows, self.values)


def frame_of(
    job_id: str,
    metric: str,
    nodes: tuple[str, ...],
    grid: Grid,
    rows: dict[Key, int],
    values: NDArray[np.float32],
) -> JobFrame:
    """Return the frame of a job from rows in any order.

    Parameters
    ----------
    job_id, metric, nodes
        Of the frame.
    grid
        The steps of ``values``.
    rows
        Where the row of a key is.
    values
        Shape (n_rows, n_steps).
    """
    gpus = tuple(sorted({gpu for _, gpu in rows if gpu}, key=_gpu_order))
    order = np.array(
        [rows.get((node, gpu), -1) for node in nodes for gpu in gpus or ("",)], np.int64
    )
    blank = np.empty((len(order), grid.steps), np.float32)
    flat = values[order] if len(values) else blank
    flat[order < 0] = np.nan
    if not gpus:
        return JobFrame(job_id, metric, nodes, grid.times, flat)
    per_gpu = flat.reshape(len(nodes), len(gpus), grid.steps)
    return JobFrame(job_id, metric, nodes, grid.times, mean_over_gpus(per_gpu), gpus, per_gpu)


def _gpu_order(gpu: str) -> tuple[int, str]:
    return (int(gpu), "") if gpu.isdecimal() else (1 << 30, gpu)


@dataclass(slots=True)
class Names:
    """Turns bytes of labels into text, each spelling once.

    Parameters
    ----------
    escaped
        Whether the bytes are the inside of a JSON string.
    """

    escaped: bool
    known: dict[bytes, str] = field(default_factory=dict)

    def text(self, raw: bytes) -> str:
        """Return the text of a label's value.

        Raises
        ------
        ReadError
            If it is no valid text.
        """
        found = self.known.get(raw)
        if found is None:
            try:
                found = json.loads(b'"' + raw + b'"') if self.escaped else raw.decode()
            except ValueError as error:
                raise ReadError("malformed", f"A label value is no text: {raw[:80]!r}.") from error
            self.known[raw] = found
        return found


def fold(arrival: Arrival, grid: Grid, values: NDArray[np.float32], *, escaped: bool) -> Block:
    """Bring the rows of an arrival into one row per node and GPU.

    Parameters
    ----------
    arrival
        Whose labels the rows have.
    grid
        The steps of ``values``.
    values
        Shape (n_rows, n_steps).
    escaped
        Whether labels are inside JSON strings.

    Raises
    ------
    ReadError
        If a label is no valid text.
    """
    count = int(arrival.counts[ROWS])
    raw = arrival.labels.tobytes()
    names, spans = Names(escaped), arrival.spans[:count].tolist()
    rows: dict[Key, list[int]] = {}
    unnamed = 0
    for row, span in enumerate(spans):
        node = names.text(raw[span[NODE] : span[NODE + 1]]) if span[NODE] >= 0 else ""
        if not node:
            unnamed += 1
            continue
        gpu = names.text(raw[span[GPU] : span[GPU + 1]]) if span[GPU] >= 0 else ""
        rows.setdefault((node, gpu), []).append(row)
    for same in rows.values():
        if len(same) > 1:
            same.sort(key=lambda row: raw[spans[row][LABELS] : spans[row][LABELS + 1]])
            _fill_gaps(values, same)
    order = np.array([same[0] for same in rows.values()], np.int64)
    plain = len(order) == len(values) and bool((order == np.arange(len(order))).all())
    return Block(
        grid,
        tuple(rows),
        values if plain else values[order],
        int(arrival.counts[-1]),
        sum(len(same) - 1 for same in rows.values()),
        unnamed,
    )


def _fill_gaps(values: NDArray[np.float32], rows: list[int]) -> None:
    """Fill the first row's gaps from the others, in their order."""
    first = values[rows[0]]
    for other in rows[1:]:
        missing = np.isnan(first)
        first[missing] = values[other][missing]


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
