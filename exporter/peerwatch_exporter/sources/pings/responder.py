"""Answers pings: of who knows the secret, within a rate, and never with more than was asked."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from secrets import token_bytes
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from peerwatch_exporter.sources.pings.datagrams import answer, receive
from peerwatch_exporter.sources.pings.packets import (
    REQUESTS,
    SMALL_BYTES,
    TOKEN_BYTES,
    Kind,
    Packet,
    Status,
    decode,
    encode,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from peerwatch_exporter.sources.pings.datagrams import Datagram, SocketAddress

Reason = Literal["signature", "repeated", "not_sent"]
REASONS: tuple[Reason, ...] = get_args(Reason)
# Of 64 nodes that send their most; a flood costs less than 2 % of a core.
MOST_PER_SECOND = 400
# A token holds for this time and the next. Chosen: no ping is under way for longer, and recorded
# ones are soon worth nothing.
_TOKEN_SECONDS = 60.0
# Chosen: 64 nodes with some sessions each; addresses are as many as the settings may name.
_MOST_SESSIONS = 1024
_MOST_ADDRESSES = 16
# Requests of a session that come later than so many after them count as repeated: as IPsec's
# default.
_WINDOW = 64


class _Session:
    """What arrived of a session: how many, the last number, and which of those before it."""

    __slots__ = ("last", "received", "seen")

    def __init__(self) -> None:
        self.last = self.received = self.seen = 0

    def is_new(self, sequence: int) -> bool:
        """Note a request; return whether it is the first with its number."""
        ahead = sequence - self.last
        if ahead > 0:
            self.seen = ((self.seen << ahead) | 1) & ((1 << _WINDOW) - 1) if ahead < _WINDOW else 1
            self.last = sequence
        elif -ahead >= _WINDOW or self.seen >> -ahead & 1:
            return False
        else:
            self.seen |= 1 << -ahead
        self.received += 1
        return True


class Servers(Protocol):
    """Opens servers of another protocol for those who know the secret."""

    def open(self, client: str, own: str, reply: Callable[[Status, int], None]) -> None:
        """Open one at an own address for a client; returns at once.

        ``reply`` is called with the status and the port, at once or later by another thread.
        """


def _nowhere(_: bytes) -> None:
    """Send nothing."""


class Responder:
    """Answers what arrives at UDP sockets.

    Parameters
    ----------
    secrets
        Returns those that are accepted now.
    servers
        Opens what is asked for beside pings; None: nothing is.
    monotonic, clock
        Seconds for durations, and Unix time.

    Attributes
    ----------
    answered, refused
        How many requests were, the latter by reason.
    addresses
        Own addresses at which requests of others arrived.
    """

    def __init__(
        self,
        secrets: Callable[[], Sequence[bytes]],
        servers: Servers | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secrets = secrets
        self._servers = servers
        self._monotonic = monotonic
        self._clock = clock
        self._key = token_bytes(32)
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._second = -1.0
        self._left = 0
        self.answered = 0
        self.refused: dict[Reason, int] = dict.fromkeys(REASONS, 0)
        self.addresses: tuple[str, ...] = ()

    def may_read(self) -> bool:
        """Whether requests may be read now; those beyond the rate wait, or are lost."""
        second = self._monotonic() // 1
        if second != self._second:
            self._second, self._left = second, MOST_PER_SECOND
        return self._left > 0

    def serve(self, opened: socket.socket) -> None:
        """Answer what is there."""
        while self.may_read():
            try:
                datagram = receive(opened)
            except OSError:
                # An answer sent before did not arrive; the socket goes on.
                self._left -= 1
                continue
            if datagram is None:
                return
            self._left -= 1
            self._serve(opened, datagram)

    def _serve(self, opened: socket.socket, datagram: Datagram) -> None:
        send = partial(self._send, opened, datagram)
        made = self.reply(datagram, send)
        if made is not None:
            send(made)

    def _send(self, opened: socket.socket, datagram: Datagram, made: bytes) -> None:
        try:
            answer(opened, made, datagram)
        except OSError:
            self.refused["not_sent"] += 1

    def reply(self, datagram: Datagram, later: Callable[[bytes], None] = _nowhere) -> bytes | None:
        """Return the answer to a datagram; None if it gets none.

        Parameters
        ----------
        datagram
            What arrived.
        later
            Sends an answer that is not known yet; called by any thread.
        """
        decoded = decode(datagram.data, self._secrets())
        if decoded is None or decoded[0].kind not in REQUESTS:
            self.refused["signature"] += 1
            return None
        request, secret = decoded
        number = int(self._monotonic() // _TOKEN_SECONDS)
        token = self._token(datagram.source, number)
        session = request.session
        if request.token not in (token, self._token(datagram.source, number - 1)):
            made = Packet(Kind.TOKEN, session, request.sequence, token)
            return encode(made, secret, SMALL_BYTES)
        received = self._received(session, request.sequence)
        if received is None:
            self.refused["repeated"] += 1
            return None
        if request.kind is Kind.OPEN:
            self._open(
                datagram, Packet(Kind.OPENED, session, request.sequence, token), secret, later
            )
            return None
        self.answered += 1
        self._note(datagram.own_address)
        waited = 0.0 if datagram.time is None else self._clock() - datagram.time
        microseconds = max(0, int(waited * 1e6))
        made = Packet(Kind.ANSWER, session, request.sequence, token, received, microseconds)
        return encode(made, secret, SMALL_BYTES)

    def _open(
        self, datagram: Datagram, made: Packet, secret: bytes, later: Callable[[bytes], None]
    ) -> None:
        def send(status: Status, port: int) -> None:
            later(encode(replace(made, status=status, port=port), secret, SMALL_BYTES))

        if self._servers is None:
            send(Status.NOT_SERVING, 0)
        else:
            self._servers.open(str(datagram.source[0]), datagram.own_address, send)

    def _token(self, source: SocketAddress, number: int) -> bytes:
        where = f"{number} {source[0]} {source[1]}".encode()
        return hmac.digest(self._key, where, "sha256")[:TOKEN_BYTES]

    def _received(self, name: bytes, sequence: int) -> int | None:
        session = self._sessions.pop(name, None) or _Session()
        self._sessions[name] = session
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session.received if session.is_new(sequence) else None

    def _note(self, own: str) -> None:
        if own and own not in self.addresses and len(self.addresses) < _MOST_ADDRESSES:
            self.addresses = tuple(sorted((*self.addresses, own)))
