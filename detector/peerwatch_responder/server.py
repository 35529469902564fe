"""Asks Alertmanager and Prometheus: one request, one answer, within its time and size."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import requests

from peerwatch_common.web.client import ClientError, ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_responder.settings.config import ServerConfig

# Chosen: 10,000 alerts with long annotations, 6 KiB each.
_MAX_BYTES = 64 * 1024**2


class ServerError(Exception):
    """A server did not answer as it should; the message says which and how."""


def get_json(server: ServerConfig, path: str, query: Mapping[str, str]) -> Any:  # noqa: ANN401
    """Return what a server answers, as JSON.

    Parameters
    ----------
    server
        Where it is, and by whose word it is asked.
    path, query
        Of the address.

    Raises
    ------
    ServerError
        If it does not answer, or not with JSON.
    """
    try:
        status, content = ask(
            requests.get, server, path, server.timeout_seconds, _MAX_BYTES, params=dict(query)
        )
    except ClientError as error:
        raise ServerError(str(error)) from error
    if status != 200:
        raise ServerError(f"{server.url}: answers {status}")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ServerError(f"{server.url}: answers no JSON") from None
