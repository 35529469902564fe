"""The APIs to ask for a part: what each sends, and which decoder takes the response.

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
from peerwatch_detector.reading.decode.export_lines import decode_lines
from peerwatch_detector.reading.decode.frames import decode_frames
from peerwatch_detector.reading.decode.grid_writer import GridWriter
from peerwatch_detector.reading.decode.matrix import decode_matrix
from peerwatch_detector.reading.decode.prepare import prepare
from peerwatch_detector.reading.selection import Matcher
from peerwatch_detector.reading.settings import Api
from peerwatch_detector.reading.transport.connection import FORM, Connection, Response
from peerwatch_detector.reading.transport.envelope import (
    RESULT,
    Annotations,
    check_status,
    check_whole,
    common_form,
    data_of,
)
from peerwatch_detector.reading.transport.protobuf import read_request
from peerwatch_detector.reading.transport.request import RangeRequest, RangeResult
from peerwatch_detector.reading.transport.stream import LONGEST_PART, Stream, decode_stream
from peerwatch_detector.reading.transport.uncompiled import uncompiled_matrix

REMOTE_READ = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}
STREAMED = "application/x-streamed-protobuf"
# What stands before and behind the series is never longer: status and warnings, some kilobytes.
_LONGEST_ENVELOPE = 1 << 20


def remote_read(connection: Connection, request: RangeRequest) -> RangeResult:
    """Read a part as streamed chunks.

    Raises
    ------
    ReadError
        If the server has no streamed remote read, or anything is wrong with its response.
    """
    asked = request.part.asked
    matchers = (Matcher("__name__", "=", asked.series), *asked.matchers)
    content = read_request(matchers, request.start, request.grid.end)
    response = connection.post("api/v1/read", content, REMOTE_READ, request.deadline)
    check_status(response)
    if not response.content_type.startswith(STREAMED):
        response.body.close()
        raise ReadError(
            "http_4xx",
            f"{response.url} answered as {response.content_type!r}, not {STREAMED!r}: it has no "
            "streamed remote read; set the API to 'query'.",
        )
    stream = Stream(response.body)
    writer, _ = decode_stream(stream, request.writer(request.age), _decode_frames, request.settings)
    _check_finished(stream)
    return RangeResult(
        request.block(writer, escaped=False), Annotations(), response.body.read_bytes
    )


def _decode_frames(
    writer: GridWriter, data: np.ndarray[tuple[int], np.dtype[np.uint8]], begin: int, end: int
) -> tuple[int, int]:
    return decode_frames(writer, data, begin, end, LONGEST_PART)


def export(connection: Connection, request: RangeRequest) -> RangeResult:
    """Read a part as VictoriaMetrics' JSON lines.

    Raises
    ------
    ReadError
        If anything is wrong with the response.
    """
    form = {
        "match[]": request.part.asked.selector,
        "start": f"{request.start / 1000:.3f}",
        "end": f"{request.grid.end / 1000:.3f}",
    }
    response = _ask(connection, "api/v1/export", form, request)
    stream = Stream(response.body)
    writer, _ = decode_stream(stream, request.writer(request.age), decode_lines, request.settings)
    _check_finished(stream)
    return RangeResult(request.block(writer, escaped=True), Annotations(), response.body.read_bytes)


def query(connection: Connection, request: RangeRequest) -> RangeResult:
    """Read a part as the raw samples of a range selector.

    Raises
    ------
    ReadError
        If anything is wrong with the response.
    """
    # One more, because newer servers leave out what is exactly as old as the range.
    length = request.grid.end - request.start + 1
    form = {
        "query": f"{request.part.asked.selector}[{length}ms]",
        "time": f"{request.grid.end / 1000:.3f}",
    }
    return _matrix(connection, "api/v1/query", form, request, request.age)


def query_range(connection: Connection, request: RangeRequest) -> RangeResult:
    """Read a part as values at steps.

    ``last_over_time`` leaves a step empty whose newest sample is too old, where a plain selector
    would repeat it for five minutes.

    Raises
    ------
    ReadError
        If anything is wrong with the response.
    """
    asked, grid = request.part.asked, request.grid
    expression = asked.expression
    if expression is None:
        age = request.age + (1 if request.open_left else 0)
        expression = f"last_over_time({asked.selector}[{age}ms])"
    form = {
        "query": expression,
        "start": f"{grid.start / 1000:.3f}",
        "end": f"{grid.end / 1000:.3f}",
        "step": f"{grid.step / 1000:g}",
        # VictoriaMetrics would move the ends of longer ranges to suit its cache.
        "nocache": "1",
    }
    return _matrix(connection, "api/v1/query_range", form, request, 0)


APIS: dict[Api, Callable[[Connection, RangeRequest], RangeResult]] = {
    "remote_read": remote_read,
    "export": export,
    "query": query,
    "query_range": query_range,
}


def _ask(
    connection: Connection, path: str, form: dict[str, str], request: RangeRequest
) -> Response:
    form = {**form, **common_form(request.settings)}
    response = connection.post(path, urlencode(form).encode(), FORM, request.deadline)
    check_status(response)
    return response


def _matrix(
    connection: Connection, path: str, form: dict[str, str], request: RangeRequest, age: int
) -> RangeResult:
    response = _ask(connection, path, form, request)
    result = (
        _decoded(response, request, age) if prepare() else uncompiled_matrix(response, request, age)
    )
    check_whole(response.url, result.annotations, request.settings)
    return result


def _decoded(response: Response, request: RangeRequest, age: int) -> RangeResult:
    stream = Stream(response.body)
    head = _head(stream)
    writer, finished = decode_stream(stream, request.writer(age), decode_matrix, request.settings)
    if not finished:
        _check_finished(stream, head)
    tail = _tail(stream)
    _, annotations = data_of(response.url, head + b"]" + tail, "matrix")
    return RangeResult(request.block(writer, escaped=True), annotations, response.body.read_bytes)


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
    """Return what stands behind the series, up to the end of the response."""
    while stream.fill():
        if stream.end - stream.begin > _LONGEST_ENVELOPE:
            stream.body.close()
            raise ReadError("malformed", f"{stream.body.url} does not end after its series.")
    return stream.data[stream.begin : stream.end].tobytes()


def _check_finished(stream: Stream, head: bytes = b"") -> None:
    """Refuse a response that ended within a part."""
    if stream.begin < stream.end or head:
        raise ReadError(
            "truncated",
            f"{stream.body.url} ended in the middle of a series, after "
            f"{stream.body.read_bytes} bytes: "
            f"{stream.data[stream.begin : stream.end][:60].tobytes()!r}.",
        )
