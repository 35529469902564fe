"""The schedule of a training step with pipeline, data and tensor parallelism.

What waits for what is that of StragglerAnalysis (ByteDance): computing runs in order of time; a
receive precedes its microbatch's computing and a send follows it; sends and receives of a kind are
in order; gradients are reduced after the last backward pass, and the optimizer ends the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from peerwatch_detector.diagnosis.stragglers.layout import Layout
from peerwatch_detector.diagnosis.stragglers.operations import (
    BACKWARD,
    BACKWARD_RECV,
    BACKWARD_SEND,
    CLIP,
    COLLECTOR,
    EMBEDDING,
    FORWARD,
    FORWARD_RECV,
    FORWARD_SEND,
    GRADS,
    LAYERNORM,
    OPTIMIZER,
    PARAMS,
    SEPARATE_GRADS,
    OperationType,
)
from peerwatch_detector.diagnosis.stragglers.schedule import Schedule, schedule
from peerwatch_detector.errors import TraceError

# Of a transfer: what computes for it, the type at the other end, where that end is, and whether it
# receives.
_TRANSFERS = {
    FORWARD_SEND: (FORWARD, FORWARD_RECV, +1, False),
    FORWARD_RECV: (FORWARD, FORWARD_SEND, -1, True),
    BACKWARD_SEND: (BACKWARD, BACKWARD_RECV, -1, False),
    BACKWARD_RECV: (BACKWARD, BACKWARD_SEND, +1, True),
}
# Clocks of ranks differ by this much, in seconds. Chosen: a fraction of a transfer, as
# docs/stragglers.md asks of them.
_CLOCK = 5e-5


def pipeline_schedule(layout: Layout) -> Schedule:
    """Return the schedule of a step.

    Raises
    ------
    TraceError
        If sends and receives do not fit the computing, or one another.
    """
    predecessors: list[set[int]] = [set() for _ in range(len(layout))]
    partners: dict[tuple[int, OperationType], list[int]] = {}
    for stage in layout.all_stages:
        _chain(predecessors, layout.of(stage, FORWARD, BACKWARD))
        _replicas(layout, stage, predecessors)
        _end_of_step(layout, stage, predecessors)
        for kind in _TRANSFERS:
            _chain(predecessors, layout.of(stage, kind))
            partners[stage, kind] = _transfers(layout, stage, kind, predecessors)
        _first_backward(layout, stage, predecessors)
    meetings = [*_pairs(layout, partners), *_meetings_of_all(layout)]
    return schedule(layout, predecessors, meetings)


def _chain(predecessors: list[set[int]], operations: Sequence[int]) -> None:
    for before, after in pairwise(operations):
        predecessors[after].add(before)


def _transfers(
    layout: Layout, stage: int, kind: OperationType, predecessors: list[set[int]]
) -> list[int]:
    """Join sends or receives to their microbatches; return those that have another end."""
    computing, _, towards, receives = _TRANSFERS[kind]
    computed = layout.of(stage, computing)
    found = _without_extra(layout, layout.of(stage, kind), computed, receives=receives)
    expected = [index for index in computed if _has_neighbour(layout, index, towards)]
    if len(found) == len(expected):
        pairs = list(zip(found, expected, strict=True))
    elif len(found) == len(computed):
        pairs = list(zip(found, computed, strict=True))
    elif receives and len(found) == len(computed) - 1 and computed[0] not in expected:
        # What the first part of the model receives first is nothing, and not always recorded.
        pairs = list(zip(found, computed[1:], strict=True))
    else:
        raise TraceError(
            f"Stage {stage} has {len(found)} {kind.name} for {len(expected)} microbatches that "
            f"need it ({computing.name}); the trace lacks operations, or seq_id is wrong."
        )
    for transfer, compute in pairs:
        if not receives:
            predecessors[transfer].add(compute)
            continue
        predecessors[compute].add(transfer)
        place = computed.index(compute)
        if place:
            predecessors[transfer].add(computed[place - 1])
    needed = set(expected)
    return [transfer for transfer, compute in pairs if compute in needed]


def _without_extra(
    layout: Layout, found: list[int], computed: list[int], *, receives: bool
) -> list[int]:
    """Leave out records of transfers that were never made, at the ends of a step."""
    if not computed or len(found) <= len(computed):
        return found
    begin, end = layout.offsets, layout.offsets + layout.duration.mean(axis=(1, 2))
    if receives:
        return [index for index in found if begin[index] <= begin[computed].max() + _CLOCK]
    return [index for index in found if end[index] >= end[computed].min() - _CLOCK]


def _has_neighbour(layout: Layout, compute: int, towards: int) -> bool:
    """Whether a part of the model comes before (-1) or after (+1) that of an operation."""
    if layout.positions[compute] >= 0:
        last = max(layout.positions)
        position = layout.positions[compute]
    else:
        last, position = max(layout.stages), layout.stages[compute]
    return 0 <= position + towards <= last


def _first_backward(layout: Layout, stage: int, predecessors: list[set[int]]) -> None:
    """Post the first backward transfers before the last forward pass of the warm-up."""
    computed = layout.of(stage, FORWARD, BACKWARD)
    kinds = [layout.kinds[index] for index in computed]
    first = kinds.index(BACKWARD) if BACKWARD in kinds else 0
    if first < 2:
        return
    for kind in (BACKWARD_RECV, BACKWARD_SEND):
        if transfers := layout.of(stage, kind):
            predecessors[transfers[0]].add(computed[first - 2])


def _replicas(layout: Layout, stage: int, predecessors: list[set[int]]) -> None:
    """Put parameters before the first forward pass of their part of the model."""
    _chain(predecessors, layout.of(stage, PARAMS, GRADS))
    forward = layout.of(stage, FORWARD)
    for chunk, gather in {layout.chunks[g]: g for g in layout.of(stage, PARAMS)}.items():
        needing = [index for index in forward if layout.chunks[index] == chunk]
        if needing:
            predecessors[needing[0]].add(gather)


def _end_of_step(layout: Layout, stage: int, predecessors: list[set[int]]) -> None:
    """Put gradients and the optimizer after the last backward pass."""
    computed = layout.of(stage, FORWARD, BACKWARD)
    reduces, collector = layout.of(stage, GRADS), layout.of(stage, COLLECTOR)
    _chain(predecessors, [*computed[-1:], *collector])
    before = {*computed[-1:], *collector[-1:]}
    middle: list[int] = reduces
    if separate := layout.of(stage, SEPARATE_GRADS):
        # Those of a part of the model are reduced as soon as it has its last backward pass.
        backward = layout.of(stage, BACKWARD)
        first = {layout.chunks[index]: index for index in reversed(reduces)}
        for chunk, reduce in first.items():
            own = [index for index in backward if layout.chunks[index] == chunk]
            predecessors[reduce] |= set(own[-1:])
        before |= set(reduces[-1:])
        middle = separate
    rest = [
        *layout.of(stage, LAYERNORM),
        *layout.of(stage, EMBEDDING),
        *middle,
        *layout.of(stage, CLIP),
        *layout.of(stage, OPTIMIZER),
    ]
    if rest:
        predecessors[rest[0]] |= before
    _chain(predecessors, rest)


def _pairs(
    layout: Layout, partners: dict[tuple[int, OperationType], list[int]]
) -> Iterable[tuple[int, ...]]:
    """Yield the two ends of each transfer between stages: they are in order on both."""
    stages = max(layout.stages) + 1
    for (stage, kind), sends in partners.items():
        _, other, towards, receives = _TRANSFERS[kind]
        if receives:
            continue
        neighbour = (stage + towards) % stages
        received = partners.get((neighbour, other), [])
        if len(sends) != len(received):
            raise TraceError(
                f"Stage {stage} has {len(sends)} {kind.name}, stage {neighbour} {len(received)} "
                f"{other.name}: every send needs its receive."
            )
        yield from zip(sends, received, strict=True)


def _meetings_of_all(layout: Layout) -> Iterable[tuple[int, ...]]:
    """Yield what the first and the last stage, or all, do together."""
    for kind in (EMBEDDING, CLIP):
        of_stages = [layout.of(stage, kind) for stage in layout.all_stages]
        counts = {len(found) for found in of_stages if found}
        if len(counts) > 1:
            raise TraceError(
                f"Stages have different numbers of {kind.name}: {sorted(counts)}; they do it "
                "together."
            )
        for together in zip(*(found for found in of_stages if found), strict=True):
            yield tuple(together)
