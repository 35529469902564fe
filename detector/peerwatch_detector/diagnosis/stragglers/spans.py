"""Spans of a job, gathered from events: a Chrome trace, or JSON lines."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peerwatch_common.logs import printable
from peerwatch_detector.diagnosis.stragglers.columns import MOST_OPERATIONS
from peerwatch_detector.errors import TraceError

# What the hook calls the segments of a step; see docs/spans.md.
STEP, COLLECTIVE = "step", "collective"
SEGMENTS = (STEP, "data", "forward", "backward", "optimizer", "checkpoint", "gc", COLLECTIVE)
# In ``Spans.step`` where a span does not say its step.
UNKNOWN_STEP = -1
# As columns.py has it: few enough bits for several numbers to be one key.
_MOST_RANK = 2**20 - 1
# How the timeline calls a rank's process.
_TITLE = re.compile(r"rank (\d{1,7}) \((.{1,253})\)")


@dataclass(slots=True)
class Spans:
    """Spans as columns.

    Parameters
    ----------
    rank, step, segment, group
        Whole numbers: rank; step, or ``UNKNOWN_STEP``; index into ``SEGMENTS``; index into
        ``groups``, or -1.
    start, duration
        Seconds.
    groups
        Names of the process groups.
    nodes
        By rank.
    others
        How many spans of other segments were left out, by name.
    truncated
        Whether an exporter left out spans, for there were too many.
    """

    rank: array[int] = field(default_factory=lambda: array("i"))
    step: array[int] = field(default_factory=lambda: array("i"))
    segment: array[int] = field(default_factory=lambda: array("b"))
    group: array[int] = field(default_factory=lambda: array("i"))
    start: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    groups: dict[str, int] = field(default_factory=dict)
    nodes: dict[int, str] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.rank)


def gather(
    events: Iterable[Mapping[str, Any] | list[Any]], path: Path, steps: tuple[int, int] | None
) -> Spans:
    """Return the spans among events.

    Parameters
    ----------
    events
        Complete events (``ph`` X) of a Chrome trace, with ``pid`` the rank, ``ts`` and ``dur`` in
        microseconds and ``args`` with ``step`` and ``group``; or JSON lines with ``rank``,
        ``segment``, ``start`` and ``duration`` in seconds, ``step`` and ``group``; or the lines of
        an exporter's ``/spans``.
    path
        The file, for messages.
    steps
        First and last step to keep; None: all. A span without a step is kept.

    Raises
    ------
    TraceError
        If a span lacks something or has an impossible value, or there are too many.
    """
    spans = Spans()
    rank: object = None
    for number, event in enumerate(events, 1):
        try:
            if isinstance(event, list):
                _add(spans, _named(event, rank), steps)
            elif event.keys() & {"ph", "segment", "name"}:
                _add(spans, event, steps)
            else:
                rank = event.get("rank")
                spans.truncated |= event.get("truncated") is True
        except _WrongError as error:
            raise TraceError(f"{path}, event {number:,}: {error}.") from error
        if len(spans) > MOST_OPERATIONS:
            raise TraceError(
                f"{path}: more than {MOST_OPERATIONS:,} spans, which is the most that is analysed "
                "at a time; choose some steps with --steps FIRST-LAST."
            )
    if not spans:
        others = ", ".join(printable(name) for name, _ in spans.others.most_common(5))
        raise TraceError(
            f"{path}: has no spans of a training step ({', '.join(SEGMENTS)})"
            + (f", only {others}." if others else ".")
        )
    return spans


class _WrongError(Exception):
    """What is wrong with an event."""


def _named(values: list[Any], rank: object) -> Mapping[str, Any]:
    """Return a span of ``/spans``: segment, start, duration, number, group and more."""
    if rank is None:
        raise _WrongError("is an array before any object that says its rank")
    if len(values) < 4:
        raise _WrongError(f"has {len(values)} values; a span has four or more")
    # The number of a collective is not that of its step.
    number = {} if values[0] == COLLECTIVE else {"step": values[3]}
    group = {"group": values[4]} if len(values) > 4 and values[4] is not None else {}
    times = {"start": values[1], "duration": values[2]}
    return {"rank": rank, "segment": values[0], **times, **number, **group}


def _add(spans: Spans, event: Mapping[str, Any], steps: tuple[int, int] | None) -> None:
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    chrome = "ph" in event
    if chrome and event["ph"] != "X":
        # Metadata may name the node of a rank; counters, flows and instants are not needed.
        if event["ph"] == "M" and (title := _TITLE.fullmatch(str(args.get("name")))):
            spans.nodes[int(title[1])] = printable(title[2])
        return
    name = event.get("name") if chrome else event.get("segment", event.get("name"))
    if not isinstance(name, str):
        raise _WrongError("has no name of a segment")
    segment = name if name in SEGMENTS else event.get("cat")
    if segment not in SEGMENTS:
        spans.others[name] += 1
        return
    about = {**event, **args}
    step = _whole(about, "step", 2**31 - 1) if "step" in about else UNKNOWN_STEP
    if steps is not None and step != UNKNOWN_STEP and not steps[0] <= step <= steps[1]:
        return
    scale = 1e-6 if chrome else 1.0
    rank = _whole(event, "pid" if chrome else "rank", _MOST_RANK)
    start = _seconds(event, "ts" if chrome else "start") * scale
    duration = _seconds(event, "dur" if chrome else "duration") * scale
    if duration < 0:
        raise _WrongError(f"duration is {duration:g} s; it must be 0 s or more")
    if isinstance(about.get("node"), str):
        spans.nodes[rank] = printable(about["node"])
    group = about.get("group")
    spans.group.append(
        spans.groups.setdefault(str(group), len(spans.groups)) if group is not None else -1
    )
    spans.rank.append(rank)
    spans.step.append(step)
    spans.segment.append(SEGMENTS.index(segment))
    spans.start.append(start)
    spans.duration.append(duration)


def _whole(event: Mapping[str, Any], name: str, high: int) -> int:
    value = event.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
        raise _WrongError(f"{name} is {_short(value)}; it must be a whole number, 0 to {high}")
    return value


def _seconds(event: Mapping[str, Any], name: str) -> float:
    value = event.get(name)
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _WrongError(f"{name} is {_short(value)}; it must be a number")
    return number


def _short(value: object) -> str:
    return "missing" if value is None else repr(value)[:40]
