"""The single spans of a node's ranks, line by line, from its exporter's ``/spans``.

The exporter's ``docs/spans.md`` has the format. The whole answer, its head included, is bound by
one deadline, and no line is longer than a span can be.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.reading.transport.credentials import basic_authentication
from peerwatch_detector.reading.transport.timed import TimedResponse

# A line is a span, or the facts about a rank; some 100 bytes. Chosen: hundreds of times as much.
_LONGEST_LINE = 1 << 16
# Bytes of an answer that refuses: a sentence or two, which a terminal still shows.
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class SpanReading:
    """How exporters are asked.

    Parameters
    ----------
    timeout_seconds
        Longest time for a whole answer.
    user
        User and password of basic authentication, or None.
    ca_file
        Whom to trust, in PEM format; None: whom the system trusts.
    """

    timeout_seconds: float = 30.0
    user: tuple[str, str] | None = None
    ca_file: Path | None = None


def read_span_lines(
    url: str, query: Mapping[str, str], how: SpanReading, endpoint: str = "spans"
) -> Iterator[bytes]:
    """Yield the lines of an exporter's answer.

    Parameters
    ----------
    url
        Of the exporter, such as ``http://node-1:9400``.
    query
        ``job_id``, ``start``, ``end``.
    how
        Limits and trust.
    endpoint
        Which of the exporter.

    Raises
    ------
    ReadError
        If it cannot be reached, refuses, is too slow or sends what is no line.
    """
    deadline = time.monotonic() + how.timeout_seconds
    connection = response = None
    try:
        connection = _connection(url, how, deadline)
        connection.request(
            "GET", f"{_path(url, endpoint)}?{urlencode(query)}", headers=_headers(how)
        )
        response = connection.getresponse()
        if response.status != 200:
            raise _refused(url, response.status, response.read(_LONGEST_REASON))
        while line := response.readline(_LONGEST_LINE):
            if not line.endswith(b"\n"):
                raise ReadError("truncated", f"{url}: the answer broke off within a line.")
            yield line
    except TimeoutError as error:
        raise ReadError(
            "timeout",
            f"{url} was not done after {how.timeout_seconds:g} s; ask for a shorter range or raise "
            "exporters.timeout_seconds.",
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ReadError(
            "unreachable",
            f"{url} cannot be read: {str(error) or type(error).__name__}; check that the exporter "
            "runs, and the settings below exporters.",
        ) from error
    finally:
        # The response keeps the socket open where the server will close it.
        for item in (response, connection):
            if item is not None:
                item.close()


def _connection(url: str, how: SpanReading, deadline: float) -> http.client.HTTPConnection:
    place = urlsplit(url)
    if place.scheme not in {"http", "https"} or not place.hostname:
        raise ValueError("is no address; give http://HOST:PORT")
    port = place.port or (443 if place.scheme == "https" else 80)
    limit = max(0.001, deadline - time.monotonic())
    if place.scheme == "https":
        context = ssl.create_default_context(cafile=None if how.ca_file is None else how.ca_file)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            place.hostname, port, timeout=limit, context=context
        )
    else:
        connection = http.client.HTTPConnection(place.hostname, port, timeout=limit)
    timed = partial(TimedResponse, remaining_seconds=partial(_remaining, deadline))
    connection.response_class = timed  # type: ignore[assignment]
    return connection


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _path(url: str, endpoint: str) -> str:
    return f"{urlsplit(url).path.rstrip('/')}/{endpoint}"


def _headers(how: SpanReading) -> dict[str, str]:
    headers = {"User-Agent": "peerwatch-detector", "Accept-Encoding": "identity"}
    if how.user is not None:
        headers |= basic_authentication(*how.user)
    return headers


def _refused(url: str, status: int, body: bytes) -> ReadError:
    text = " ".join(body.decode(errors="replace").split())
    hints = {
        401: "set exporters.username and exporters.password_file",
        404: "is this a Peerwatch exporter with heartbeat.directory set?",
        503: "try again in a moment",
    }
    reason: ReadFailure = "http_5xx" if status >= 500 else "http_4xx"
    hint = f"; {hints[status]}" if status in hints else ""
    return ReadError(reason, f"{url} answered {status}: {text or 'nothing'}{hint}")
