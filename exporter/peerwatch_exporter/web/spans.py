"""Answers ``/spans``: the single spans of a time range, as JSON lines, rank by rank.

The answer is written as it is read: at any time a rank's ring is in memory, and never all of them.
"""

from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl

from peerwatch_common.web.response import Response, text
from peerwatch_exporter.sources.spans.files import read_span_files
from peerwatch_exporter.sources.spans.ring import read_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peerwatch_exporter.sources.spans.ring import Span, SpanHeader

CONTENT_TYPE = "application/x-ndjson"
# Of two, each has a ring and its places in memory: some 20 MiB for a ring of the usual size.
MOST_ANSWERS = 2
# Some steps of most jobs.
_DEFAULT_SECONDS = 60.0
_PARAMETERS = ("job_id", "rank", "start", "end")
# A span is a line of some 60 bytes: 30 KB at a time.
_CHUNK_SPANS = 500
# As of ``/burst``: four parameters, of which a job's name has 128 characters.
_LONGEST_QUERY = 2000


class JobOfProcess(Protocol):
    """Knows the jobs of processes; ``KnownRanks`` is one."""

    def job_id(self, pid: int | None) -> str:
        """Return the job of a process, empty if none is known."""


class QueryError(ValueError):
    """The query cannot be answered; the message says why."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for: Unix times by rank 0's clock; None means any job, and all ranks."""

    job_id: str | None
    rank: int | None
    start: float
    end: float


class SpanAnswers:
    """Answers queries from the files of one directory.

    Parameters
    ----------
    directory
        Where ranks keep their spans.
    jobs
        The job of a rank whose environment names none.
    max_spans
        How many spans an answer has at most.
    clock
        Unix time in seconds.
    """

    def __init__(
        self, directory: Path, jobs: JobOfProcess, max_spans: int, clock: Callable[[], float]
    ) -> None:
        self._directory = directory
        self._jobs = jobs
        self._max_spans = max_spans
        self._clock = clock
        self._free = threading.BoundedSemaphore(MOST_ANSWERS)

    def answer(self, query: str) -> Response:
        """Return the answer to a query string."""
        try:
            wanted = parse(query, self._clock())
        except QueryError as error:
            return text(400, str(error))
        if not self._free.acquire(blocking=False):
            return text(503, "Other clients are reading spans; try again.", ("Retry-After", "2"))
        try:
            found = read_span_files(self._directory)
        except OSError as error:
            self._free.release()
            return text(500, f"heartbeat.directory cannot be read: {error}")
        chosen = [(path, header) for path, header in found.ranks if self._is_wanted(header, wanted)]
        lines = _Lines(self._free.release)
        lines.made_by(self._lines(chosen, found.problems, wanted, lines))
        return Response(200, b"", CONTENT_TYPE, (("Cache-Control", "no-store"),), parts=lines)

    def _is_wanted(self, header: SpanHeader, wanted: Query) -> bool:
        job_id = header.job_id or self._jobs.job_id(header.pid)
        return wanted.job_id in {None, job_id} and wanted.rank in {None, header.rank}

    def _lines(
        self,
        chosen: list[tuple[Path, SpanHeader]],
        problems: tuple[str, ...],
        wanted: Query,
        lines: _Lines,
    ) -> Iterator[bytes]:
        left, truncated, wrong = self._max_spans, False, list(problems)
        for number, (path, before) in enumerate(chosen):
            try:
                header, spans = read_spans(path, before.rank, wanted.start, wanted.end)
            except (OSError, ValueError) as error:
                wrong.append(f"{path}: {error}")
                continue
            yield _line(self._facts(header))
            # What is left is shared out evenly: a long range must not show the first rank only.
            share = left // (len(chosen) - number)
            for part in _parts(islice(spans, share), header):
                left -= len(part)
                yield "".join(part).encode()
            truncated = truncated or next(spans, None) is not None
        lines.close()  # before its client, having the last line, asks again
        yield _line(
            {"spans": self._max_spans - left, "truncated": truncated, "problems": wrong[:20]}
        )

    def _facts(self, header: SpanHeader) -> dict[str, object]:
        clock = header.clock
        return {
            "rank": header.rank,
            "job_id": header.job_id or self._jobs.job_id(header.pid),
            "world_size": header.world_size,
            "pid": header.pid,
            "updated": round(header.updated, 6),
            "dropped": header.dropped,
            "clock": None
            if clock is None
            else {
                "source": clock.source,
                "offset": round(clock.at(header.updated), 9),
                "error": round(clock.error_seconds, 9),
            },
            "gpu_pending": None
            if header.gpu_segment is None or header.gpu_since is None
            else [header.gpu_segment, round(_corrected(header, header.gpu_since), 6)],
        }


class _Lines:
    """The lines of an answer; closing gives its place to another, also if none was read."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._lines: Iterator[bytes] = iter(())
        self._release: Callable[[], None] | None = release

    def made_by(self, lines: Iterator[bytes]) -> None:
        """Set what makes the lines."""
        self._lines = lines

    def __iter__(self) -> Iterator[bytes]:
        return self._lines

    def close(self) -> None:
        """Let another answer begin."""
        release, self._release = self._release, None
        if release is not None:
            release()


def parse(query: str, now: float) -> Query:
    """Return what a query string asks for.

    Raises
    ------
    QueryError
        If it has an unknown parameter, one twice, or one without sense.
    """
    if len(query) > _LONGEST_QUERY:
        raise QueryError(f"The query has {len(query)} characters, at most {_LONGEST_QUERY} count.")
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _PARAMETERS or name in given:
            reason = "stands twice" if name in given else "is unknown"
            raise QueryError(f"{name!r:.50} {reason}; there are {', '.join(_PARAMETERS)}.")
        given[name] = value
    end = _time("end", given["end"]) if "end" in given else now
    start = _time("start", given["start"]) if "start" in given else end - _DEFAULT_SECONDS
    if start > end:
        raise QueryError(f"start {start:.3f} is after end {end:.3f}.")
    rank = given.get("rank")
    if rank is not None and not (rank.isascii() and rank.isdigit() and len(rank) <= 7):
        raise QueryError(f"rank {rank!r:.50} is no rank: give a number from 0.")
    return Query(given.get("job_id") or None, None if rank is None else int(rank), start, end)


def _time(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    # Until the year 2100; beyond it, it is milliseconds.
    if not 0 <= seconds <= 4_102_444_800:
        raise QueryError(f"{name} {value!r:.50} is no Unix time in seconds, such as 1767300000.5.")
    return seconds


def _parts(spans: Iterator[Span], header: SpanHeader) -> Iterator[list[str]]:
    while part := [_span(span, header) for span in islice(spans, _CHUNK_SPANS)]:
        yield part


def _span(span: Span, header: SpanHeader) -> str:
    """Return segment, start, duration and number; then group, collective and peer; then the GPU."""
    fields: list[object] = [
        span.segment,
        round(_corrected(header, span.start), 6),
        round(span.duration, 7),
        span.value,
    ]
    if span.detail is not None:
        fields += span.detail
    if span.on_gpu:
        fields += [None] * (7 - len(fields)) + [True]
    return json.dumps(fields, separators=(",", ":")) + "\n"


def _corrected(header: SpanHeader, time: float) -> float:
    return time if header.clock is None else time - header.clock.at(time)


def _line(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
