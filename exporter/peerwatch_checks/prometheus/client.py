"""Instant queries, by the standard library alone: a node has no more installed.

What answers may be anything: every answer is bounded in time and size, and what is no answer of
Prometheus is a ``PrometheusError`` with its reason.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPSHandler, Request, build_opener

from peerwatch_common.logs import one_line
from peerwatch_common.settings.secret_file import read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Chosen: a read of it is short against the limit of time, which is looked at after each.
_CHUNK = 1 << 16
# Chosen: a hundred thousand series of 300 bytes; the queries here yield some of each node.
_MOST_BYTES = 32 << 20
# Of an answer that is none, as much as says what it is: chosen, a line or two.
_SHOWN = 200


class PrometheusError(Exception):
    """It gave no answer, with the reason as a sentence."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where Prometheus is, and how to be let in.

    Parameters
    ----------
    url
        Base URL of any server with its query API.
    timeout_seconds
        For one answer, with its body.
    username, password_file
        Basic authentication; the file holds the password.
    bearer_token_file
        A file with a token instead.
    ca_file, cert_file, key_file
        TLS: who signed the server's certificate (None: those of the system), and a certificate and
        key to show it.
    """

    url: str
    timeout_seconds: float = 10.0
    username: str = ""
    password_file: Path | None = None
    bearer_token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an answer: its labels, and its value."""

    labels: Mapping[str, str]
    value: float


def instant(server: Server, query: str, *, most_bytes: int = _MOST_BYTES) -> tuple[Sample, ...]:
    """Return what an instant query finds.

    Parameters
    ----------
    server
        Whom to ask.
    query
        In PromQL.
    most_bytes
        A longer answer is refused.

    Raises
    ------
    PrometheusError
        If there is no answer in time, or another one than Prometheus gives.
    """
    shown = _shown(server.url)
    try:
        body = _body(server, query, most_bytes)
    except HTTPError as error:
        text = f"{shown} answered {error.code}: {_reason(error)}"
        raise PrometheusError(one_line(text)) from error
    except (OSError, http.client.HTTPException, URLError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        text = f"{shown}: {reason or type(error).__name__}"
        raise PrometheusError(one_line(text)) from error
    return _samples(shown, body)


def _body(server: Server, query: str, most_bytes: int) -> bytes:
    end = time.monotonic() + server.timeout_seconds
    data = urlencode({"query": query}).encode()
    request = Request(f"{server.url.rstrip('/')}/api/v1/query", data=data)  # noqa: S310 - http only
    if authorization := _authorization(server):
        # Not sent on to another host by a redirection.
        request.add_unredirected_header("Authorization", authorization)
    opener = build_opener(HTTPSHandler(context=_tls(server)))
    parts: list[bytes] = []
    size = 0
    with opener.open(request, timeout=server.timeout_seconds) as answer:
        # read1 returns what one packet brought: a server that drips is noticed.
        while part := answer.read1(_CHUNK):
            parts.append(part)
            size += len(part)
            if size > most_bytes:
                raise ValueError(
                    f"its answer has more than {most_bytes} bytes; ask for fewer nodes by "
                    "--job-id or --selector"
                )
            if time.monotonic() > end:
                raise ValueError(f"its answer took longer than {server.timeout_seconds:g} s")
    return b"".join(parts)


def _authorization(server: Server) -> str:
    if server.bearer_token_file is not None:
        return f"Bearer {_secret(server.bearer_token_file)}"
    if server.username:
        password = "" if server.password_file is None else _secret(server.password_file)
        text = f"{server.username}:{password}".encode()
        return f"Basic {base64.b64encode(text).decode()}"
    return ""


def _secret(path: Path) -> str:
    text = read_secret(path)
    if len(text.splitlines()) != 1:
        raise ValueError(f"{path} must hold one line")
    return text


def _tls(server: Server) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=server.ca_file)
    if server.cert_file is not None:
        context.load_cert_chain(server.cert_file, server.key_file)
    return context


def _reason(error: HTTPError) -> str:
    """Return what the server says about a refusal; Prometheus says it in JSON."""
    try:
        text = error.read(_CHUNK).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return str(error.reason)
    try:
        return str(json.loads(text)["error"])[:_SHOWN]
    except (ValueError, LookupError, TypeError, RecursionError):
        return f"{error.reason}; {text[:_SHOWN]}"


def _samples(shown: str, body: bytes) -> tuple[Sample, ...]:
    try:
        data: Any = json.loads(body)["data"]
        if data["resultType"] != "vector":
            raise ValueError("no vector")
        return tuple(_sample(each) for each in data["result"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        begins = body[:_SHOWN].decode(errors="replace")
        text = f"{shown} does not answer like Prometheus: {begins!r}"
        raise PrometheusError(one_line(text)) from error


def _sample(each: Any) -> Sample:  # noqa: ANN401 - it may be anything that JSON holds
    labels = {str(name): str(value) for name, value in each["metric"].items()}
    value = float(each["value"][1])
    if not math.isfinite(value):
        raise ValueError("not a number")
    return Sample(labels, value)


def _shown(url: str) -> str:
    """Return an address without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
