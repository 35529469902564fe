"""Spans as a trace: every rank's step as a chain of computing and collectives.

What a span takes itself is its time without the spans inside of it. A rank computes between two
collectives, in one segment or several; waiting happens in collectives alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.stragglers.layout import Layout
from peerwatch_detector.diagnosis.stragglers.meetings import backward_meetings
from peerwatch_detector.diagnosis.stragglers.operations import (
    BACKWARD,
    BACKWARD_MEETING,
    CHECKPOINT,
    CODES,
    COLLECTIVE,
    COLLECTOR,
    DATA,
    FORWARD,
    OPTIMIZER,
    OTHER,
    Trace,
)
from peerwatch_detector.diagnosis.stragglers.schedule import Schedule, schedule
from peerwatch_detector.diagnosis.stragglers.spans import SEGMENTS, STEP, UNKNOWN_STEP, Spans
from peerwatch_detector.errors import TraceError

_KINDS = {
    # What is in no segment is the program's own.
    STEP: OTHER,
    "data": DATA,
    "forward": FORWARD,
    "backward": BACKWARD,
    "optimizer": OPTIMIZER,
    "checkpoint": CHECKPOINT,
    "gc": COLLECTOR,
    "collective": COLLECTIVE,
}
_MEETING = len(SEGMENTS)
_CODES = [CODES[kind.name] for kind in (*map(_KINDS.__getitem__, SEGMENTS), BACKWARD_MEETING)]
_COLLECTIVE, _OTHER = CODES[COLLECTIVE.name], CODES[OTHER.name]
# A mean over steps says nothing where one is many times longer than all others. Chosen: above what
# a straggler costs a step, below what compiling adds to a program's first.
_PAUSE = 5
_WAITING = (_COLLECTIVE, CODES[BACKWARD_MEETING.name])


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a rank.

    Parameters
    ----------
    rank, step
        Which.
    collectives
        Start, duration, group and code of each, in order.
    computing
        Start and seconds by (number of collectives before it, code of the type).
    """

    rank: int
    step: int
    collectives: list[tuple[float, float, int, int]]
    computing: dict[tuple[int, int], list[float]]

    @property
    def seconds(self) -> float:
        """What it took, waiting included."""
        return sum(taken for _, taken in self.computing.values()) + sum(
            found[1] for found in self.collectives
        )


def trace_of(spans: Spans, path: Path) -> Trace:
    """Return spans as operations that follow one another in every rank.

    Raises
    ------
    TraceError
        If no span belongs to a step.
    """
    columns = _columns(spans)
    notices = [
        f"{count:,} spans of segment {name!r} were left out"
        for name, count in spans.others.most_common(3)
    ]
    if spans.truncated:
        notices.append("the exporter left out spans, for there were too many at a time")
    step, dropped = _steps(columns)
    if dropped:
        notices.append(f"{dropped:,} spans were left out that belong to no step")
    known = step != UNKNOWN_STEP
    if not known.any():
        raise TraceError(
            f"{path}: no span says its step, and there are no spans {STEP!r} that contain them."
        )
    columns = {name: values[known] for name, values in columns.items()}
    communicating = backward_meetings(columns, step[known])
    if communicating is not None:
        columns["segment"] = columns["segment"].copy()
        columns["segment"][communicating] = _MEETING
        notices.append(
            "backward passes end together, as with DistributedDataParallel, whose communication "
            "has no spans: a rank that is slow only in them is not told"
        )
    blocks = _blocks(columns, step[known])
    counts = Counter(len(block.collectives) for block in blocks)
    usual = counts.most_common(1)[0][0]
    ranks = len({block.rank for block in blocks})
    if counts[usual] < len(blocks) / 2:
        some = ", ".join(f"{count:,} in {found:,}" for count, found in counts.most_common(3))
        raise TraceError(
            f"{path}: its {ranks:,} ranks have different numbers of collectives in a step ({some} "
            "steps of ranks); spans can be replayed where all ranks do the same in every step, "
            "without pipeline parallelism."
        )
    blocks = [block for block in blocks if len(block.collectives) == usual]
    pauses = _pauses(blocks)
    if pauses:
        shown = ", ".join(map(str, sorted(pauses)[:5])) + (", ..." if len(pauses) > 5 else "")
        notices.append(
            f"{len(pauses):,} steps were left out that took more than {_PAUSE} times the median: "
            f"{shown}"
        )
        blocks = [block for block in blocks if block.step not in pauses]
    return _trace(blocks, spans, notices)


def _pauses(blocks: Sequence[_Step]) -> set[int]:
    """Return the steps that are none of the usual: the first of a program, or one that paused."""
    longest: dict[int, float] = {}
    for block in blocks:
        longest[block.step] = max(longest.get(block.step, 0.0), block.seconds)
    limit = _PAUSE * float(np.median(list(longest.values())))
    return {step for step, seconds in longest.items() if seconds > limit}


def chain_schedule(layout: Layout) -> Schedule:
    """Return the schedule of ranks whose operations follow one another."""
    predecessors: list[set[int]] = [set() for _ in range(len(layout))]
    for index in range(1, len(layout)):
        predecessors[index].add(index - 1)
    return schedule(layout, predecessors, [])


def _columns(spans: Spans) -> dict[str, NDArray[np.generic]]:
    start = np.frombuffer(spans.start, dtype=np.float64)
    return {
        "rank": np.frombuffer(spans.rank, dtype=np.int32),
        "step": np.frombuffer(spans.step, dtype=np.int32),
        "segment": np.frombuffer(spans.segment, dtype=np.int8),
        "group": np.frombuffer(spans.group, dtype=np.int32),
        "start": start,
        "end": start + np.frombuffer(spans.duration, dtype=np.float64),
    }


def _steps(columns: dict[str, NDArray[np.generic]]) -> tuple[NDArray[np.int32], int]:
    """Return the step of each span, and how many have none; a collective may not say its own."""
    step = columns["step"].astype(np.int32)
    unknown = np.flatnonzero(step == UNKNOWN_STEP)
    if not len(unknown):
        return step, 0
    whole = (columns["segment"] == SEGMENTS.index(STEP)) & (step != UNKNOWN_STEP)
    for rank in np.unique(columns["rank"][unknown]).tolist():
        own = unknown[columns["rank"][unknown] == rank]
        containing = np.flatnonzero(whole & (columns["rank"] == rank))
        if not len(containing):
            continue
        containing = containing[np.argsort(columns["start"][containing])]
        place = np.searchsorted(columns["start"][containing], columns["start"][own], "right") - 1
        container = containing[np.maximum(place, 0)]
        inside = (place >= 0) & (columns["start"][own] < columns["end"][container])
        step[own[inside]] = step[container[inside]]
    return step, int((step == UNKNOWN_STEP).sum())


def _blocks(columns: dict[str, NDArray[np.generic]], step: NDArray[np.int32]) -> list[_Step]:
    """Return the steps of all ranks."""
    order = np.lexsort((-columns["end"].astype(float), columns["start"], step, columns["rank"]))
    rank, step = columns["rank"][order], step[order]
    changes = np.flatnonzero((np.diff(rank) != 0) | (np.diff(step) != 0)) + 1
    bounds = [0, *changes.tolist(), len(order)]
    codes = np.array(_CODES)[columns["segment"][order]].tolist()
    start, end = columns["start"][order].tolist(), columns["end"][order].tolist()
    group = columns["group"][order].tolist()
    blocks = []
    for first, last in pairwise(bounds):
        block = _Step(int(rank[first]), int(step[first]), [], {})
        part = slice(first, last)
        _exclusive(block, start[part], end[part], codes[part], group[part])
        blocks.append(block)
    return blocks


def _exclusive(
    block: _Step,
    start: Sequence[float],
    end: Sequence[float],
    codes: Sequence[int],
    groups: Sequence[int],
) -> None:
    """Fill a step with what each span takes itself; spans are in order of their start."""
    time = start[0]
    within: list[tuple[float, int]] = []
    for begin, finish, code, group in zip(start, end, codes, groups, strict=True):
        while within and within[-1][0] <= begin:
            time = _take(block, within.pop(), time)
        # Up to here it was the span around this one that ran.
        around = within[-1][1] if within else _OTHER
        time = _take(block, (begin, around), time)
        inside = around in _WAITING and finish <= within[-1][0]
        if code in _WAITING:
            if around in _WAITING:
                _cut(block, begin)
            block.collectives.append((begin, finish - begin, group, code))
        elif around in _WAITING and not inside:
            # What a rank computes while a collective still runs costs no time.
            time = within[-1][0]
        within.append((finish, around if inside else code))
    while within:
        time = _take(block, within.pop(), time)


def _cut(block: _Step, time: float) -> None:
    """End the last collective where the next one begins while it still runs."""
    begin, seconds, group, code = block.collectives[-1]
    block.collectives[-1] = (begin, min(seconds, time - begin), group, code)


def _take(block: _Step, span: tuple[float, int], time: float) -> float:
    """Add the time until the end of a span to its type; return that end."""
    end, code = span
    if end <= time:
        return time
    if code not in _WAITING:
        begun = block.computing.setdefault((len(block.collectives), code), [time, 0.0])
        begun[1] += end - time
    return end


def _trace(blocks: Sequence[_Step], spans: Spans, notices: Sequence[str]) -> Trace:
    """Return steps as rows; what a rank did not do in a step took it no time."""
    places = sorted({place for block in blocks for place in block.computing})
    collectives = len(blocks[0].collectives)
    rows = len(places) + collectives
    start, duration = np.zeros((2, len(blocks), rows))
    group = np.full((len(blocks), rows), -1, dtype=np.int32)
    for number, block in enumerate(blocks):
        begin = min(begun for begun, _ in block.computing.values()) if block.computing else 0.0
        begins = [begin, *(found[0] for found in block.collectives)]
        for column, place in enumerate(places):
            absent = (begins[place[0]], 0.0)
            start[number, column], duration[number, column] = block.computing.get(place, absent)
        for column, found in enumerate(block.collectives, len(places)):
            start[number, column], duration[number, column], group[number, column], _ = found
    codes = [*(code for _, code in places), *(found[3] for found in blocks[0].collectives)]
    kinds = np.array(codes, dtype=np.int32)
    sequences = np.array([*(before for before, _ in places), *range(collectives)], dtype=np.int32)
    rank = np.repeat(np.array([block.rank for block in blocks], dtype=np.int32), rows)
    none = np.full(len(rank), -1, dtype=np.int32)
    return Trace(
        np.repeat(np.array([block.step for block in blocks], dtype=np.int32), rows),
        rank,
        np.zeros_like(rank),
        rank,
        np.tile(kinds, len(blocks)),
        start.reshape(-1),
        duration.reshape(-1),
        np.tile(sequences, len(blocks)),
        none,
        none,
        group.reshape(-1),
        spans.nodes,
        chained=True,
        notices=tuple(notices),
    )
