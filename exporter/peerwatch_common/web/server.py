"""Listens and accepts; every connection is served by a thread of its own (web/connection.py)."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import h11

from peerwatch_common.errors import PeerwatchError
from peerwatch_common.web.connection import Connection, Service
from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.pool import ConnectionPool
from peerwatch_common.web.response import Response, text, to_bytes
from peerwatch_common.web.security import Security

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_common.web.compression import GzipCache
    from peerwatch_common.web.connection import AnswersRequests
    from peerwatch_common.web.request import Request

_LOG = logging.getLogger(__name__)

# What Linux grants at least (net.core.somaxconn; 4096 since 5.4).
_BACKLOG = 128
# Kept free for the probes of liveness and readiness, which a kubelet makes one after the other.
# Chosen: several of them, as some may hang.
_PROBE_CONNECTIONS = 8
# How long answers under way may take when the server stops. Chosen: they take milliseconds.
_STOP_SECONDS = 0.5


class _ProbesOnly:
    """Answers probes, and nothing else, when all connections are in use."""

    def __init__(self, app: AnswersRequests, facts: WebFacts) -> None:
        self._app = app
        self._facts = facts

    def answer(self, request: Request) -> Response:
        if request.path.startswith("/-/"):
            return self._app.answer(request)
        self._facts.count_rejected_connection()
        return _crowded()


def _crowded() -> Response:
    return text(503, "Too many connections.", ("Retry-After", "5"))


class ListenError(PeerwatchError):
    """The address cannot be listened on; the message says why and what to do."""


class HttpServer:
    """Listens from the moment it is made; serves between ``start`` and ``stop``.

    Parameters
    ----------
    program
        Its name, such as ``peerwatch-exporter``.
    address, port
        Where to listen; port 0 lets the system choose.
    app
        Answers requests.
    security
        Returns TLS, logins and headers in force now; by default there are none.
    max_connections
        Connections at once. When all are in use, a new one takes the place of one that waits for
        its client, of the client that has most of them; where none waits, probes are answered all
        the same and everything else 503.
    facts
        Told of what was refused.
    gzip
        Compresses larger bodies; ``None`` sends them as they are.
    max_body_bytes
        The largest body of a POST that is taken; 0: only GET and HEAD are served.
    needs_login
        Whether a request needs the login that the settings ask for; all do by default.

    Raises
    ------
    ListenError
        If the address is in use, not this machine's, or not permitted.
    """

    def __init__(
        self,
        program: str,
        address: str,
        port: int,
        app: AnswersRequests,
        *,
        security: Callable[[], Security] = Security,
        max_connections: int = 64,
        facts: WebFacts | None = None,
        gzip: GzipCache | None = None,
        max_body_bytes: int = 0,
        needs_login: Callable[[Request], bool] = lambda _: True,
    ) -> None:
        self._facts = facts or WebFacts()
        self._service = Service(
            *(program, app, security, self._facts, gzip),
            max_body_bytes=max_body_bytes,
            needs_login=needs_login,
        )
        self._connections = ConnectionPool(max_connections)
        only_probes = _ProbesOnly(app, self._facts)
        self._probe_service = Service(program, only_probes, security, self._facts, gzip)
        self._probes = ConnectionPool(_PROBE_CONNECTIONS)
        self._stopping = False
        self._socket = _listen(address, port)
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)

    @property
    def port(self) -> int:
        """The port listened on, also where the system chose it."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, let answers under way go out, and end all connections."""
        if self._stopping:
            return
        self._stopping = True
        # Wakes accept(), which close() alone would not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        open_connections = self._connections.threads() | self._probes.threads()
        for connection in open_connections:
            connection.end()
        end = time.monotonic() + _STOP_SECONDS
        for thread in open_connections.values():
            thread.join(max(0.0, end - time.monotonic()))

    def _accept(self) -> None:
        while not self._stopping:
            try:
                accepted, address = self._socket.accept()
            except OSError as error:
                if self._stopping:
                    return
                # Out of descriptors or memory: others may end soon; spinning would not help them.
                _LOG.warning("cannot accept detail=%r", str(error))
                time.sleep(0.2)
                continue
            self._take(accepted, str(address[0]).removeprefix("::ffff:"))

    def _take(self, accepted: socket.socket, client: str) -> None:
        connection = Connection(self._service, accepted, client)
        if self._begin(self._connections, connection):
            return
        connection = Connection(self._probe_service, accepted, client, brief=True)
        if not self._begin(self._probes, connection):
            self._facts.count_rejected_connection()
            self._turn_away(accepted)

    def _begin(self, pool: ConnectionPool, connection: Connection) -> bool:
        """Serve a connection if there is room for it."""
        thread = threading.Thread(
            target=self._run, args=(pool, connection), name="connection", daemon=True
        )
        if not pool.add(connection, thread):
            return False
        try:
            thread.start()
        except RuntimeError as error:
            # The node has no more threads for us; the next scrape may be luckier.
            _LOG.warning("cannot serve client=%s detail=%r", connection.client, str(error))
            pool.remove(connection)
            connection.close()
        return True

    def _run(self, pool: ConnectionPool, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            pool.remove(connection)

    def _turn_away(self, accepted: socket.socket) -> None:
        # A client that speaks TLS could not read it; it sees a closed connection.
        response = _crowded()
        answer = to_bytes(
            h11.Connection(h11.SERVER),
            response,
            bytes(response.body),
            with_body=True,
            keep_alive=False,
            now=self._service.clock(),
        )
        try:
            accepted.setblocking(False)
            if self._service.security().context is None:
                accepted.send(answer)
        except OSError as error:
            _LOG.debug("could not turn away detail=%r", str(error))
        finally:
            accepted.close()


def _listen(address: str, port: int) -> socket.socket:
    # In brackets as in a URL: a file has an address of its own, without a port to part it from.
    bare = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    if not _can_be_a_host(bare):
        raise _cannot_listen(address, port, "this is no name of a host")
    try:
        return socket.create_server(
            (bare, port),
            family=socket.AF_INET6 if ":" in bare else socket.AF_INET,
            backlog=_BACKLOG,
            dualstack_ipv6=bare == "::",
        )
    except (OSError, OverflowError) as error:
        raise _cannot_listen(address, port, _reason(error)) from error


def _can_be_a_host(name: str) -> bool:
    """Return whether bind() takes a name at all: otherwise it raises TypeError."""
    if name.isascii():
        return "\0" not in name
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def _cannot_listen(address: str, port: int, reason: str) -> ListenError:
    return ListenError(
        f"Cannot listen on {address!r} port {port}: {reason}. "
        "Choose another with --listen HOST:PORT or listen.port."
    )


def _reason(error: OSError | OverflowError) -> str:
    number = getattr(error, "errno", None)
    # A name that cannot be resolved has a number, and words, of its own.
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return getattr(error, "strerror", None) or str(error)
