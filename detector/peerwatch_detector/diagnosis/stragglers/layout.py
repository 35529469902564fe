"""A trace as a block: the same operations in every step of every replica."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.stragglers.operations import TYPES, OperationType, Trace
from peerwatch_detector.errors import TraceError

# An operation that most replicas and steps lack is no part of the schedule: a majority decides.
_USUAL_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Layout:
    """The operations that every step of every replica consists of, and when each ran.

    Parameters
    ----------
    kinds, stages, sequences, chunks, positions
        Of each operation, in order of stage and typical start.
    offsets
        Typical start of each operation, in seconds from the start of the step.
    start, duration
        Seconds, of shape (operations, replicas, steps).
    groups
        Number of the process group, of shape (operations, replicas), or -1.
    replicas, steps
        Their numbers in the trace.
    ranks
        By (replica number, stage).
    dropped_steps
        Steps that lack an operation of some rank.
    dropped_operations
        Operations that are no part of the usual step.
    nodes
        By rank, as far as they are known.
    chained
        Whether every rank's operations follow one another in order of time.
    """

    kinds: tuple[OperationType, ...]
    stages: tuple[int, ...]
    sequences: tuple[int, ...]
    chunks: tuple[int, ...]
    positions: tuple[int, ...]
    offsets: NDArray[np.float64]
    start: NDArray[np.float64]
    duration: NDArray[np.float64]
    groups: NDArray[np.int32]
    replicas: tuple[int, ...]
    steps: tuple[int, ...]
    ranks: dict[tuple[int, int], int]
    dropped_steps: int
    dropped_operations: int
    nodes: dict[int, str]
    chained: bool

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def all_stages(self) -> tuple[int, ...]:
        """The stages, in order."""
        return tuple(sorted(set(self.stages)))

    def of(self, stage: int, *kinds: OperationType) -> list[int]:
        """Return the operations of a stage, of some types, in order of time."""
        return [
            index
            for index, kind in enumerate(self.kinds)
            if kind in kinds and self.stages[index] == stage
        ]

    def describe(self, index: int) -> str:
        """Return the name of an operation for a message."""
        return f"{self.kinds[index].name} {self.sequences[index]} of stage {self.stages[index]}"


@dataclass(frozen=True, slots=True)
class _Cells:
    """Where rows of a trace belong in the block.

    Parameters
    ----------
    rows
        Numbers of the rows.
    operation, replica, step
        Their places along the three axes.
    """

    rows: NDArray[np.int64]
    operation: NDArray[np.int64]
    replica: NDArray[np.int64]
    step: NDArray[np.int64]

    def of(self, chosen: NDArray[np.bool_]) -> _Cells:
        """Return those of chosen rows."""
        return _Cells(
            self.rows[chosen], self.operation[chosen], self.replica[chosen], self.step[chosen]
        )


def arrange(trace: Trace) -> Layout:
    """Return a trace as a block; steps that are not complete are left out.

    Raises
    ------
    TraceError
        If an operation is there twice, or no step is complete.
    """
    workers = _workers(trace)
    _check_workers(workers)
    keys, operation = _operations(trace)
    replicas, replica = np.unique(trace.replica.astype(np.int64), return_inverse=True)
    steps, step = np.unique(trace.step.astype(np.int64), return_inverse=True)
    cells = _Cells(np.arange(len(trace)), operation, replica, step)
    columns = len(replicas) * len(steps)
    usual = np.bincount(operation, minlength=keys.shape[1]) >= _USUAL_SHARE * columns
    if not usual.any():
        raise TraceError(
            "No operation is in half of the steps and replicas: the steps have no common schedule."
        )
    cells = cells.of(usual[operation])
    cells = replace(cells, operation=(np.cumsum(usual) - 1)[cells.operation])
    keys = keys[:, usual]
    _check_twice(trace, cells)
    found = np.bincount(cells.step, minlength=len(steps))
    complete = found == keys.shape[1] * len(replicas)
    if not complete.any():
        raise _incomplete(keys, cells, replicas, len(steps))
    unusual = len(trace) - len(cells.rows)
    cells = cells.of(complete[cells.step])
    cells = replace(cells, step=(np.cumsum(complete) - 1)[cells.step])
    return _filled(trace, cells, keys, workers, (replicas, steps[complete]), (len(steps), unusual))


def _workers(trace: Trace) -> NDArray[np.int64]:
    """Return the distinct (replica, stage, rank) of a trace, as columns."""
    # Much faster than np.unique over rows of several columns.
    stages, ranks = int(trace.stage.max()) + 1, int(trace.rank.max()) + 1
    code = np.unique((trace.replica.astype(np.int64) * stages + trace.stage) * ranks + trace.rank)
    place, rank = np.divmod(code, ranks)
    return np.stack([*np.divmod(place, stages), rank])


def _check_workers(workers: NDArray[np.int64]) -> None:
    """Refuse a trace in which a rank has two places or a place two ranks."""
    ranks, counts = np.unique(workers[2], return_counts=True)
    if (counts > 1).any():
        raise TraceError(
            f"rank {ranks[np.argmax(counts > 1)]} is on more than one (dp_rank, stage); a rank has "
            "one place in a job."
        )
    places, counts = np.unique(workers[:2], axis=1, return_counts=True)
    if (counts > 1).any():
        replica, stage = places[:, np.argmax(counts > 1)]
        raise TraceError(
            f"dp_rank {replica}, stage {stage} is more than one rank; keep the operations of one "
            "rank for each place, such as the first of every tensor-parallel group."
        )


def _operations(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct operations as columns (stage, kind, sequence), and which a row is."""
    sequences = int(trace.sequence.max()) + 1
    code = (trace.stage.astype(np.int64) * len(TYPES) + trace.kind) * sequences + trace.sequence
    unique, operation = np.unique(code, return_inverse=True)
    stage_kind, sequence = np.divmod(unique, sequences)
    stage, kind = np.divmod(stage_kind, len(TYPES))
    return np.stack([stage, kind, sequence]), operation


def _check_twice(trace: Trace, cells: _Cells) -> None:
    replicas, steps = int(cells.replica.max()) + 1, int(cells.step.max()) + 1
    cell = (cells.operation * replicas + cells.replica) * steps + cells.step
    counts = np.bincount(cell)
    if counts.max(initial=0) > 1:
        row = cells.rows[np.flatnonzero(cell == np.argmax(counts > 1))[-1]]
        raise TraceError(
            f"{TYPES[trace.kind[row]].name} {trace.sequence[row]} of rank {trace.rank[row]} is in "
            f"step {trace.step[row]} twice ({(counts > 1).sum():,} such operations); remove what "
            "was recorded twice."
        )


def _incomplete(
    keys: NDArray[np.int64], cells: _Cells, replicas: NDArray[np.int64], steps: int
) -> TraceError:
    """Return the error of a trace whose every step lacks something, with the worst place."""
    counts = np.zeros((keys.shape[1], len(replicas)), dtype=np.int64)
    np.add.at(counts, (cells.operation, cells.replica), 1)
    index, row = np.unravel_index(np.argmin(counts), counts.shape)
    stage, kind, sequence = keys[:, index]
    return TraceError(
        f"No step is complete: {TYPES[kind].name} {sequence} of stage {stage}, dp_rank "
        f"{replicas[row]}, is in {counts[index, row]:,} of {steps:,} steps; every rank must have "
        "the operations that its peers have."
    )


def _filled(
    trace: Trace,
    cells: _Cells,
    keys: NDArray[np.int64],
    workers: NDArray[np.int64],
    columns: tuple[NDArray[np.int64], NDArray[np.int64]],
    left_out: tuple[int, int],
) -> Layout:
    """Return the block; ``columns`` are replicas and steps, ``left_out`` was counted before."""
    replicas, steps = columns
    shape = (keys.shape[1], len(replicas), len(steps))
    place = (cells.operation, cells.replica, cells.step)
    start, duration = np.empty(shape), np.empty(shape)
    start[place], duration[place] = trace.start[cells.rows], trace.duration[cells.rows]
    start -= start.min(axis=(0, 1))
    offsets = start.mean(axis=(1, 2))
    stage, kind, sequence = keys
    order = np.lexsort((kind, sequence, offsets, stage))
    constant = np.empty((2, shape[0]), dtype=np.int64)
    constant[:, cells.operation] = trace.chunk[cells.rows], trace.position[cells.rows]
    groups = np.empty(shape[:2], dtype=np.int32)
    groups[place[:2]] = trace.group[cells.rows]
    return Layout(
        tuple(TYPES[code] for code in kind[order]),
        tuple(stage[order].tolist()),
        tuple(sequence[order].tolist()),
        tuple(constant[0, order].tolist()),
        tuple(constant[1, order].tolist()),
        offsets[order],
        start[order],
        duration[order],
        groups[order],
        tuple(replicas.tolist()),
        tuple(steps.tolist()),
        {(replica, stage): rank for replica, stage, rank in workers.T.tolist()},
        left_out[0] - len(steps),
        left_out[1],
        trace.nodes,
        trace.chained,
    )
