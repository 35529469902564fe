"""One request to a server over HTTP: its answer within a time and a size, or why there is none.

The library that sends it is the caller's: programs that ask nobody do without.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from peerwatch_common.errors import PeerwatchError
from peerwatch_common.settings.secret_file import read_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from peerwatch_common.settings.servers import AskedServer

# Chosen: small, so that the limit of time is looked at often, also where little comes in a second.
_CHUNK_BYTES = 1 << 13


class ClientError(PeerwatchError):
    """A server did not answer, or too slowly or too much; the message says which and how."""


class Response(Protocol):
    """What is needed of a response of ``requests``."""

    status_code: int

    def iter_content(self, chunk_size: int) -> Iterator[bytes]:
        """Yield what comes, decompressed."""


class Answer(NamedTuple):
    """Status and content."""

    status: int
    content: bytes


def ask(
    send: Callable[..., AbstractContextManager[Response]],
    server: AskedServer,
    path: str,
    timeout_seconds: float,
    most_bytes: int,
    **message: object,
) -> Answer:
    """Ask a server one thing.

    Parameters
    ----------
    send
        Sends a message, as ``requests.get`` does.
    server
        Where it is, and by whose word it is asked.
    path
        Of the address, from its first slash.
    timeout_seconds, most_bytes
        Limits of the whole answer.
    message
        What is sent besides, such as ``params``.

    Raises
    ------
    ClientError
        If there is no answer within the limits.
    """
    headers, login = dict(server.headers), None
    ends = time.monotonic() + timeout_seconds
    content = bytearray()
    try:
        if server.token_file is not None:
            headers["Authorization"] = f"Bearer {_secret(server, server.token_file)}"
        elif server.username:
            password = _secret(server, server.password_file) if server.password_file else ""
            # Of text the library would send what Latin-1 has.
            login = (server.username.encode(), password.encode())
        with send(
            server.url.rstrip("/") + path,
            headers=headers,
            auth=login,
            timeout=timeout_seconds,
            allow_redirects=False,
            stream=True,
            verify=str(server.ca_file) if server.ca_file else True,
            **message,
        ) as response:
            for part in response.iter_content(_CHUNK_BYTES):
                content += part
                if len(content) > most_bytes:
                    raise ClientError(f"{server.url}: answers more than {most_bytes} bytes")
                # The library's own limit is that of each read; this one is checked between chunks.
                if time.monotonic() > ends:
                    raise ClientError(f"{server.url}: answers for over {timeout_seconds:g} s")
            return Answer(response.status_code, bytes(content))
    except UnicodeEncodeError:
        # Its text would show what is in the header.
        raise ClientError(
            f"{server.url}: a header cannot be sent, for it has characters that HTTP does not; "
            "check token_file and headers"
        ) from None
    # Errors of ``requests`` are OSErrors.
    except OSError as error:
        raise ClientError(f"{server.url}: {error.__class__.__name__}") from error


def _secret(server: AskedServer, path: Path) -> str:
    """Return what a file holds."""
    try:
        return read_secret(path)
    except UnicodeDecodeError:
        raise ClientError(f"{server.url}: {path} is no text in UTF-8; save it as such") from None
