"""What the lines of an exporter's ``/spans`` mean: facts about a rank, its spans, how it ended."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from peerwatch_detector.errors import TraceError

# Characters. Chosen: names of segments and groups have tens; what is longer is no name.
_LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class RankFacts:
    """A rank whose spans follow.

    Parameters
    ----------
    rank, job_id
        Whose they are; the job id is empty where the rank did not know it.
    dropped
        Spans that found no place in the ring since the rank began.
    clock_error
        How far its times may be off those of rank 0, in seconds; None: the clocks were never
        compared, its times are its own host's.
    """

    rank: int
    job_id: str
    dropped: int
    clock_error: float | None


@dataclass(frozen=True, slots=True)
class RankSpan:
    """One span of the rank that was told of last.

    Parameters
    ----------
    segment
        Such as ``forward``.
    start, duration
        Seconds; Unix time by rank 0's clock where it is known.
    number
        Of the step; of a collective, among those in its group; of a message, among those to or
        from this peer.
    group, collective, peer
        Of a collective; else empty and None.
    on_gpu
        Whether the GPU measured it.
    """

    segment: str
    start: float
    duration: float
    number: int
    group: str = ""
    collective: str = ""
    peer: int | None = None
    on_gpu: bool = False


@dataclass(frozen=True, slots=True)
class EndOfSpans:
    """The last line of an answer.

    Parameters
    ----------
    truncated
        Whether there were more spans than an answer may have.
    problems
        What could not be read on the node, and why.
    """

    truncated: bool
    problems: tuple[str, ...]


Line = RankFacts | RankSpan | EndOfSpans


def parse_lines(lines: Iterable[bytes], source: str) -> Iterator[Line]:
    """Yield what lines mean.

    Parameters
    ----------
    lines
        Of one exporter.
    source
        The exporter's address, for messages.

    Raises
    ------
    TraceError
        If a line is not of this format, or the last line is missing: the answer broke off.
    """
    ended = known = False
    for number, text in enumerate(lines, 1):
        try:
            line = _line(json.loads(text))
            if isinstance(line, RankSpan) and not known:
                raise ValueError("a span before its rank")
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise TraceError(
                f"{source}: line {number} is no line of spans ({error}): {text[:60]!r}."
            ) from error
        known = known or isinstance(line, RankFacts)
        ended = isinstance(line, EndOfSpans)
        yield line
    if not ended:
        raise TraceError(f"{source}: the answer broke off before its last line.")


def _line(document: Any) -> Line:  # noqa: ANN401 - whatever came
    if isinstance(document, list):
        return _span(document)
    if "truncated" in document:
        return EndOfSpans(
            bool(document["truncated"]), tuple(str(item) for item in document["problems"])
        )
    clock = document["clock"]
    return RankFacts(
        _whole(document["rank"]),
        str(document["job_id"] or ""),
        _whole(document["dropped"], math.inf),
        None if clock is None else _finite(clock["error"]),
    )


def _span(fields: list[Any]) -> RankSpan:
    segment, start, duration, number, *rest = fields
    if not isinstance(segment, str) or not 0 < len(segment) <= _LONGEST_NAME:
        raise ValueError("a segment without a name")
    seconds = _finite(duration)
    if seconds < 0:
        raise ValueError("a negative duration")
    rest += [None] * (4 - len(rest))
    group, collective, peer, on_gpu = rest
    return RankSpan(
        segment,
        _finite(start),
        seconds,
        _whole(number),
        "" if group is None else str(group)[:_LONGEST_NAME],
        "" if collective is None else str(collective)[:_LONGEST_NAME],
        None if peer is None else _whole(peer),
        bool(on_gpu),
    )


def _whole(value: Any, most: float = 2**32) -> int:  # noqa: ANN401 - whatever came
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r:.40} is no number from 0")
    return value


def _finite(value: Any) -> float:  # noqa: ANN401 - whatever came
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r:.40} is no finite number")
    return number
