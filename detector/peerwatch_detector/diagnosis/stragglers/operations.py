"""The operations of a training step: their types, and a trace of them as columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# With whom an operation waits until all have begun: nobody; the neighbouring stage; the first and
# the last stage; the other replicas of its stage; all ranks; the ranks of its process group.
Scope = Literal["rank", "neighbour", "ends", "replicas", "all", "group"]


@dataclass(frozen=True, slots=True)
class OperationType:
    """A type of operation.

    Parameters
    ----------
    name
        As in a trace.
    communicates
        Its ideal is the median, for a few transfers are many times slower; that of computing is
        the mean, which is what perfectly even work would take.
    scope
        With whom it waits.
    label
        How results are summed up; sends and receives are two ends of the same transfer.
    """

    name: str
    communicates: bool = False
    scope: Scope = "rank"
    label: str = ""

    def __str__(self) -> str:
        return self.label or self.name


FORWARD = OperationType("forward-compute")
BACKWARD = OperationType("backward-compute")
FORWARD_SEND = OperationType("forward-send", True, "neighbour", "forward-pp-comm")
FORWARD_RECV = OperationType("forward-recv", True, "neighbour", "forward-pp-comm")
BACKWARD_SEND = OperationType("backward-send", True, "neighbour", "backward-pp-comm")
BACKWARD_RECV = OperationType("backward-recv", True, "neighbour", "backward-pp-comm")
PARAMS = OperationType("params-all-gather", True, "replicas")
GRADS = OperationType("grads-reduce-scatter", True, "replicas")
# Gradients that are not reduced while the backward pass still computes.
SEPARATE_GRADS = OperationType("separate-grads-all-reduce", True, "replicas")
# Among tensor-parallel ranks, of which a trace has only the first: nobody to wait for.
LAYERNORM = OperationType("layernorm-grads-all-reduce", True)
EMBEDDING = OperationType("embedding-grads-all-reduce", True, "ends")
CLIP = OperationType("optimizer-clip-main-grad", True, "all")
OPTIMIZER = OperationType("optimizer")
COLLECTOR = OperationType("gc")
# Only in spans.
DATA = OperationType("data")
CHECKPOINT = OperationType("checkpoint")
OTHER = OperationType("other")
COLLECTIVE = OperationType("collective", True, "group")
# A backward pass that ends when those of all ranks do: DistributedDataParallel communicates in it.
# Most of it is computing, so that its ideal is the mean.
BACKWARD_MEETING = OperationType("backward-with-communication", False, "replicas")

# Those of a table, as published traces name them.
TABLE_TYPES = (
    FORWARD,
    BACKWARD,
    FORWARD_SEND,
    FORWARD_RECV,
    BACKWARD_SEND,
    BACKWARD_RECV,
    PARAMS,
    GRADS,
    SEPARATE_GRADS,
    LAYERNORM,
    EMBEDDING,
    CLIP,
    OPTIMIZER,
    COLLECTOR,
)
TYPES = (*TABLE_TYPES, DATA, CHECKPOINT, OTHER, COLLECTIVE, BACKWARD_MEETING)
CODES = {kind.name: code for code, kind in enumerate(TYPES)}


@dataclass(frozen=True, slots=True)
class Trace:
    """Operations of a job, a row each, in any order; all columns have the shape (operations,).

    Parameters
    ----------
    step
        Training step.
    replica, stage
        Which copy of the model (data-parallel rank), and which part of it (pipeline stage).
    rank
        Global rank.
    kind
        Index into ``TYPES``.
    start, duration
        Seconds; ``start`` on a clock that all ranks share within a step.
    sequence
        Which of the operations of its type in the step and rank.
    chunk, position
        Part of the model on the stage, and in the whole model, where stages hold several; -1:
        does not apply.
    group
        Number of the process group, among those of its step and sequence; -1: none.
    nodes
        By rank, as far as the trace has them.
    chained
        Whether every rank's operations follow one another in order of time, as spans do; else they
        depend on one another as those of pipeline-parallel training.
    notices
        What was left out of the trace, a sentence each.
    """

    step: NDArray[np.int32]
    replica: NDArray[np.int32]
    stage: NDArray[np.int32]
    rank: NDArray[np.int32]
    kind: NDArray[np.int32]
    start: NDArray[np.float64]
    duration: NDArray[np.float64]
    sequence: NDArray[np.int32]
    chunk: NDArray[np.int32]
    position: NDArray[np.int32]
    group: NDArray[np.int32]
    nodes: dict[int, str] = field(default_factory=dict)
    chained: bool = False
    notices: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.step)
