"""Writes spans as a Chrome trace (JSON, object form), which Perfetto and chrome://tracing open.

Format: "Trace Event Format" (Google, 2016): X complete events, M metadata, s and f the ends of an
arrow. A process is a rank, a track in it a segment; times are microseconds from the beginning of
the range, for Unix time in microseconds leaves a double only a quarter of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from peerwatch_detector.diagnosis.timeline.lines import RankSpan

# Tracks from top to bottom; segments of the user's own come below, by first use.
_TRACKS = ("step", "data", "forward", "backward", "optimizer", "collective", "checkpoint", "gc")
_SENDS, _RECEIVES = ("send", "isend"), ("recv", "irecv")

# Group, sender, receiver and number of a message.
_Message = tuple[str, int, int, int]


@dataclass(slots=True)
class _Flows:
    """The half of each arrow whose other half has not come yet."""

    open: dict[tuple[_Message, bool], dict[str, Any]] = field(default_factory=dict)
    drawn: int = 0


class ChromeTrace:
    """A trace that is written as its spans come.

    Parameters
    ----------
    out
        Where; a JSON object is begun at once and ended by ``close``.
    base
        Unix time of the trace's zero, in seconds.
    """

    def __init__(self, out: TextIO, base: float) -> None:
        self._out = out
        self._base = base
        self._tracks: dict[str, int] = {name: place for place, name in enumerate(_TRACKS)}
        self._named: set[tuple[int, int]] = set()
        self._flows = _Flows()
        self._separator = ""
        self.spans = 0
        out.write('{"displayTimeUnit":"ms","traceEvents":[')

    @property
    def arrows(self) -> int:
        """How many sends were joined to their receives."""
        return self._flows.drawn

    def rank(self, rank: int, title: str) -> None:
        """Name the process of a rank; ranks stand in their order, whenever they come."""
        self._metadata("process_name", rank, 0, {"name": title})
        self._metadata("process_sort_index", rank, 0, {"sort_index": rank})

    def span(self, rank: int, span: RankSpan) -> None:
        """Draw a span of a rank."""
        track = self._track(rank, span)
        event = {
            "name": span.collective or span.segment,
            "cat": span.segment,
            "ph": "X",
            "pid": rank,
            "tid": track,
            "ts": self._microseconds(span.start),
            "dur": round(span.duration * 1e6, 3),
            "args": _arguments(span),
        }
        self._event(event)
        self.spans += 1
        if span.peer is not None:
            self._message(rank, span, event)

    def close(self, facts: Mapping[str, object]) -> None:
        """End the trace, with facts about the whole."""
        self._out.write('],"otherData":')
        self._out.write(json.dumps(dict(facts)))
        self._out.write("}\n")

    def _track(self, rank: int, span: RankSpan) -> int:
        name = f"{span.segment} (GPU)" if span.on_gpu else span.segment
        track = self._tracks.setdefault(name, len(self._tracks))
        if (rank, track) not in self._named:
            self._named.add((rank, track))
            self._metadata("thread_name", rank, track, {"name": name})
            self._metadata("thread_sort_index", rank, track, {"sort_index": track})
        return track

    def _message(self, rank: int, span: RankSpan, event: Mapping[str, Any]) -> None:
        """Join a send to its receive, once both are there."""
        sends = span.collective in _SENDS
        if not sends and span.collective not in _RECEIVES:
            return
        assert span.peer is not None
        ends = (rank, span.peer) if sends else (span.peer, rank)
        message = (span.group, *ends, span.number)
        other = self._flows.open.pop((message, not sends), None)
        if other is None:
            self._flows.open[message, sends] = dict(event)
            return
        start, end = (event, other) if sends else (other, event)
        self._flows.drawn += 1
        common = {"name": "message", "cat": "message", "id": self._flows.drawn}
        self._event(common | {"ph": "s"} | _place(start, start["ts"]))
        # Just before the receive ends: then the message was there, and the span still is.
        received = end["ts"] + end["dur"] - min(end["dur"] / 2, 1.0)
        self._event(common | {"ph": "f", "bp": "e"} | _place(end, received))

    def _metadata(self, name: str, rank: int, track: int, args: Mapping[str, object]) -> None:
        self._event({"name": name, "ph": "M", "pid": rank, "tid": track, "args": dict(args)})

    def _event(self, event: Mapping[str, object]) -> None:
        self._out.write(self._separator)
        self._out.write(json.dumps(event, separators=(",", ":")))
        self._separator = ",\n"

    def _microseconds(self, time: float) -> float:
        return round((time - self._base) * 1e6, 3)


def _arguments(span: RankSpan) -> dict[str, object]:
    if not span.collective:
        return {"step": span.number}
    message = {} if span.peer is None else {"peer": span.peer}
    return {"group": span.group, "seq": span.number, **message}


def _place(event: Mapping[str, Any], time: float) -> dict[str, object]:
    return {"pid": event["pid"], "tid": event["tid"], "ts": round(time, 3)}
