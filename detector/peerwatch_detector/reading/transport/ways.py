"""The ways to ask for a piece: what each sends, and which decoder takes the answer.

remote_read   raw chunks; "Remote Read API" of the Prometheus documentation. The least work on both
              sides, but not every server has it.
export        VictoriaMetrics' raw samples as JSON lines (``/api/v1/export``).
query         raw samples of a range selector, ``series{...}[range]``, by ``/api/v1/query``.
query_range   a value per step by ``/api/v1/query_range``; the only one for expressions.

VictoriaMetrics' native export is not used: its layout is internal to it, and it hands out whole
blocks of up to 8,192 samples however short the range is.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import numpy as np

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.decode.arrival import Arrival
from peerwatch_detector.reading.decode.export_lines import take_lines
from peerwatch_detector.reading.decode.frames import take_frames
from peerwatch_detector.reading.decode.matrix import take_matrix
from peerwatch_detector.reading.decode.prepare import prepare
from peerwatch_detector.reading.selection import Matcher
from peerwatch_detector.reading.settings import Way
from peerwatch_detector.reading.transport.connection import FORM, Answer, Connection
from peerwatch_detector.reading.transport.envelope import RESULT, Remarks, check_status, data_of
from peerwatch_detector.reading.transport.plain import plain_matrix
from peerwatch_detector.reading.transport.protobuf import read_request
from peerwatch_detector.reading.transport.request import Question, Result
from peerwatch_detector.reading.transport.stream import LONGEST_PART, Stream, take_all

REMOTE_READ = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}
STREAMED = "application/x-streamed-protobuf"
# What stands before and behind the series is never longer.
_LONGEST_ENVELOPE = 1 << 20


def remote_read(connection: Connection, question: Question) -> Result:
    """Read a piece as streamed chunks.

    Raises
    ------
    ReadError
        If the server has no streamed remote read, or anything is wrong with its answer.
    """
    asked = question.piece.asked
    matchers = (Matcher("__name__", "=", asked.series), *asked.matchers)
    content = read_request(matchers, question.start, question.grid.end)
    answer = connection.post("api/v1/read", content, REMOTE_READ, question.deadline)
    check_status(answer)
    if not answer.content_type.startswith(STREAMED):
        answer.body.close()
        raise ReadError(
            "http_4xx",
            f"{answer.url} answered as {answer.content_type!r}, not {STREAMED!r}: it has no "
            "streamed remote read; set the way of reading to 'query'.",
        )
    stream = Stream(answer.body)
    arrival, _ = take_all(stream, question.arrival(question.age), _take_frames, question.settings)
    _complain_of_rest(stream)
    return Result(question.block(arrival, escaped=False), Remarks(), answer.body.read_bytes)


def _take_frames(
    arrival: Arrival, data: np.ndarray[tuple[int], np.dtype[np.uint8]], begin: int, end: int
) -> tuple[int, int]:
    return take_frames(arrival, data, begin, end, LONGEST_PART)


def export(connection: Connection, question: Question) -> Result:
    """Read a piece as VictoriaMetrics' JSON lines.

    Raises
    ------
    ReadError
        If anything is wrong with the answer.
    """
    form = {
        "match[]": question.piece.asked.selector,
        "start": f"{question.start / 1000:.3f}",
        "end": f"{question.grid.end / 1000:.3f}",
    }
    answer = _ask(connection, "api/v1/export", form, question)
    stream = Stream(answer.body)
    arrival, _ = take_all(stream, question.arrival(question.age), take_lines, question.settings)
    _complain_of_rest(stream)
    return Result(question.block(arrival, escaped=True), Remarks(), answer.body.read_bytes)


def query(connection: Connection, question: Question) -> Result:
    """Read a piece as the raw samples of a range selector.

    Raises
    ------
    ReadError
        If anything is wrong with the answer.
    """
    # One more, because newer servers leave out what is exactly as old as the range.
    length = question.grid.end - question.start + 1
    form = {
        "query": f"{question.piece.asked.selector}[{length}ms]",
        "time": f"{question.grid.end / 1000:.3f}",
    }
    return _matrix(connection, "api/v1/query", form, question, question.age)


def query_range(connection: Connection, question: Question) -> Result:
    """Read a piece as values at steps.

    ``last_over_time`` leaves a step empty whose newest sample is too old, where a plain selector
    would repeat it for five minutes.

    Raises
    ------
    ReadError
        If anything is wrong with the answer.
    """
    asked, grid = question.piece.asked, question.grid
    expression = asked.expression
    if expression is None:
        age = question.age + (1 if question.open_left else 0)
        expression = f"last_over_time({asked.selector}[{age}ms])"
    form = {
        "query": expression,
        "start": f"{grid.start / 1000:.3f}",
        "end": f"{grid.end / 1000:.3f}",
        "step": f"{grid.step / 1000:g}",
        # VictoriaMetrics would move the ends of longer ranges to suit its cache.
        "nocache": "1",
    }
    return _matrix(connection, "api/v1/query_range", form, question, 0)


WAYS: dict[Way, Callable[[Connection, Question], Result]] = {
    "remote_read": remote_read,
    "export": export,
    "query": query,
    "query_range": query_range,
}


def _ask(connection: Connection, path: str, form: dict[str, str], question: Question) -> Answer:
    form = {**form, "timeout": f"{question.settings.timeout_seconds:g}s"}
    if question.settings.partial == "refuse":
        # The names of Thanos and of VictoriaMetrics; others pass over them.
        form |= {"partial_response": "false", "deny_partial_response": "1"}
    answer = connection.post(path, urlencode(form).encode(), FORM, question.deadline)
    check_status(answer)
    return answer


def _matrix(
    connection: Connection, path: str, form: dict[str, str], question: Question, age: int
) -> Result:
    answer = _ask(connection, path, form, question)
    result = _decoded(answer, question, age) if prepare() else plain_matrix(answer, question, age)
    remarks = result.remarks
    if remarks.partial and question.settings.partial == "refuse":
        raise ReadError(
            "refused",
            f"{answer.url} gave a partial answer: {'; '.join(remarks.warnings) or 'no reason'}.",
        )
    return result


def _decoded(answer: Answer, question: Question, age: int) -> Result:
    stream = Stream(answer.body)
    head = _head(stream)
    arrival, finished = take_all(stream, question.arrival(age), take_matrix, question.settings)
    if not finished:
        _complain_of_rest(stream, head)
    tail = _tail(stream)
    _, remarks = data_of(answer.url, head + b"]" + tail, "matrix")
    return Result(question.block(arrival, escaped=True), remarks, answer.body.read_bytes)


def _head(stream: Stream) -> bytes:
    """Return what stands before the series, up to and with the bracket."""
    while True:
        text = stream.data[stream.begin : stream.end].tobytes()
        if found := RESULT.search(text):
            stream.passed_to(stream.begin + found.end())
            return text[: found.end()]
        if len(text) > _LONGEST_ENVELOPE or not stream.fill():
            stream.body.close()
            data_of(stream.body.url, text, "matrix")
            raise ReadError("malformed", f"{stream.body.url} answered without a list of series.")


def _tail(stream: Stream) -> bytes:
    """Return what stands behind the series, up to the end of the answer."""
    while stream.fill():
        if stream.end - stream.begin > _LONGEST_ENVELOPE:
            stream.body.close()
            raise ReadError("malformed", f"{stream.body.url} does not end after its series.")
    return stream.data[stream.begin : stream.end].tobytes()


def _complain_of_rest(stream: Stream, head: bytes = b"") -> None:
    """Refuse an answer that ended within a part."""
    if stream.begin < stream.end or head:
        raise ReadError(
            "truncated",
            f"{stream.body.url} ended in the middle of a series, after "
            f"{stream.body.read_bytes} bytes: "
            f"{stream.data[stream.begin : stream.end][:60].tobytes()!r}.",
        )
