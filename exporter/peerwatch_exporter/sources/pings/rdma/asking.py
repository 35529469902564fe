"""Asks a peer for a server of ``rping``, by a request that is signed as pings are."""

from __future__ import annotations

import select
import socket
import time
from secrets import token_bytes
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.pings.datagrams import open_datagram_socket, receive, set_dscp
from peerwatch_exporter.sources.pings.packets import (
    SESSION_BYTES,
    TOKEN_BYTES,
    Kind,
    Packet,
    Status,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_exporter.settings.pings import PingsConfig
    from peerwatch_exporter.sources.pings.rdma.rping import Reason

_AGAIN_SECONDS = 0.5  # a datagram may be lost; far above round trips
_REASONS: dict[int, Reason] = {Status.BUSY: "busy", Status.NOT_SERVING: "not_serving"}


class Asker:
    """Asks one peer, again and again.

    Parameters
    ----------
    peer
        Its address.
    config
        Port and timeout.
    secrets
        Returns the secrets; the first signs.

    Raises
    ------
    OSError
        If the peer's address cannot be used, as without a route to it.
    """

    def __init__(
        self, peer: str, config: PingsConfig, secrets: Callable[[], Sequence[bytes]]
    ) -> None:
        self._secrets = secrets
        self._timeout = config.timeout_seconds
        self._session = token_bytes(SESSION_BYTES)
        self._sequence = 0
        self._token = bytes(TOKEN_BYTES)
        self._socket = open_datagram_socket(socket.AF_INET6 if ":" in peer else socket.AF_INET)
        try:
            set_dscp(self._socket, config.dscp)
            self._socket.connect((peer, config.port))
        except OSError:
            self._socket.close()
            raise
        # `select.select` refuses a descriptor from 1024 on, which a busy exporter has.
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)

    def ask(self) -> int | Reason:
        """Return the port of a server that waits for this node, or why there is none."""
        deadline = time.monotonic() + self._timeout
        # An answer that came too late belongs to a server that is gone.
        first = self._sequence + 1
        try:
            while (now := time.monotonic()) < deadline and self._secrets():
                self._send()
                made = self._answer(first, min(deadline, now + _AGAIN_SECONDS))
                if made is None:
                    continue
                self._token = made.token
                if made.kind is Kind.OPENED:
                    return made.port or _REASONS.get(made.status, "other")
        except OSError:
            # Nobody listens on the peer's port, or there is no way to it.
            return "no_session"
        return "no_session"

    def _send(self) -> None:
        self._sequence += 1
        asked = Packet(Kind.OPEN, self._session, self._sequence, self._token)
        self._socket.send(encode(asked, self._secrets()[0]))

    def _answer(self, first: int, until: float) -> Packet | None:
        """Return the next answer to a request from the number ``first`` on; None: none in time."""
        while (left := until - time.monotonic()) > 0:
            if not self._readable.poll(left * 1000):
                return None
            datagram = receive(self._socket)
            decoded = None if datagram is None else decode(datagram.data, self._secrets())
            if decoded is None:
                continue
            made = decoded[0]
            if (
                made.kind in (Kind.TOKEN, Kind.OPENED)
                and made.session == self._session
                and first <= made.sequence <= self._sequence
            ):
                return made
        return None

    def close(self) -> None:
        """Close its socket."""
        self._socket.close()
