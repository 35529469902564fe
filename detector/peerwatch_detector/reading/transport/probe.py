"""Finds out what a server can do, by asking it for a series that does not exist."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlencode

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.selection import Matcher
from peerwatch_detector.reading.settings import Api
from peerwatch_detector.reading.transport.apis import REMOTE_READ, STREAMED
from peerwatch_detector.reading.transport.connection import (
    FORM,
    Connection,
    Response,
    read_text,
)
from peerwatch_detector.reading.transport.envelope import check_status
from peerwatch_detector.reading.transport.hints import hint_of_answer
from peerwatch_detector.reading.transport.protobuf import read_request

_NOTHING = "peerwatch_probe"
_EXPORTED = "application/stream+json"


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server can do.

    Parameters
    ----------
    apis
        How ranges can be read, the cheapest first.
    open_left
        Whether a range leaves out a sample exactly as old as it is long: VictoriaMetrics, and
        Prometheus since 3.0 (its migration guide, "Range selectors and lookback exclude samples
        coinciding with the left boundary").
    skips_nan
        Whether NaN is only ever the end of a series: VictoriaMetrics.
    """

    apis: tuple[Api, ...]
    open_left: bool
    skips_nan: bool


def probe(connection: Connection, deadline: float) -> Abilities:
    """Ask a server what it can do.

    Parameters
    ----------
    connection
        To the server.
    deadline
        On the clock of ``time.monotonic``.

    Raises
    ------
    ReadError
        If it cannot be reached, or is no server with the query API.
    """
    exports = _exports(connection, deadline)
    apis: tuple[Api, ...] = ("query", "query_range")
    if exports:
        apis = ("export", *apis)
    elif _reads_remotely(connection, deadline):
        apis = ("remote_read", *apis)
    return Abilities(apis, exports or _is_open_left(connection, deadline), exports)


def _reads_remotely(connection: Connection, deadline: float) -> bool:
    content = read_request([Matcher("__name__", "=", _NOTHING)], 0, 1)
    response = connection.post("api/v1/read", content, REMOTE_READ, deadline)
    return _succeeded(response, STREAMED)


def _exports(connection: Connection, deadline: float) -> bool:
    form = urlencode({"match[]": _NOTHING, "start": "0", "end": "1"})
    response = connection.post("api/v1/export", form.encode(), FORM, deadline)
    return _succeeded(response, _EXPORTED)


def _is_open_left(connection: Connection, deadline: float) -> bool:
    """Tell whether two seconds from a whole one to a whole one hold two steps of 1 s, not three."""
    form = urlencode({"query": "count_over_time(vector(1)[2s:1s])", "time": "1000"})
    response = connection.post("api/v1/query", form.encode(), FORM, deadline)
    if response.status == 429 or response.retry_after > 0:
        # Says nothing about what the server can do; it is asked again later.
        check_status(response)
    status, text = response.status, read_text(response)
    try:
        found = json.loads(text)["data"]["result"][0]["value"][1]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        if status < 300 or status in {404, 405}:
            hint = hint_of_answer(status, text.decode(errors="replace"), response.location)
            raise ReadError(
                "malformed",
                f"{response.url} answered {status}: {text[:80]!r}; "
                f"{hint or 'is prometheus.url the query API?'}",
            ) from error
        # Refuses this request, for a reason that every request will show.
        return False
    return bool(found == "2")


def _succeeded(response: Response, content_type: str) -> bool:
    """Tell whether a response is a success of some type, and read it to its end."""
    read_text(response)
    if not response.body.finished:
        response.body.close()
    return response.status == 200 and response.content_type.startswith(content_type)
