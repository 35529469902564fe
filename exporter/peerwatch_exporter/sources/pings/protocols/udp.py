"""Pings by UDP: small, large, and as large as the interface allows without being divided.

Only requests are large. So a loss of large packets alone is one on the way to the peer.
"""

from __future__ import annotations

import socket
import time
from secrets import token_bytes
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.pings.datagrams import (
    largest_payload,
    never_divide,
    open_datagram_socket,
    receive,
    set_dscp,
)
from peerwatch_exporter.sources.pings.losses import Losses
from peerwatch_exporter.sources.pings.packets import (
    MOST_BYTES,
    SESSION_BYTES,
    SMALL_BYTES,
    TOKEN_BYTES,
    Kind,
    Packet,
    decode,
    encode,
)
from peerwatch_exporter.sources.pings.totals import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_exporter.settings.pings import PingsConfig
    from peerwatch_exporter.sources.pings.datagrams import Datagram
    from peerwatch_exporter.sources.pings.totals import PingTotals


class _Size:
    """What is sent in one size."""

    def __init__(self, size_bytes: int, losses: Losses) -> None:
        self.bytes = size_bytes
        self.losses = losses
        self.session = token_bytes(SESSION_BYTES)
        self.sequence = 0
        # Number, Unix and monotonic time of those sent that may still be answered.
        self.sent: dict[int, tuple[float, float]] = {}


class UdpPings:
    """Pings one peer by UDP.

    Parameters
    ----------
    peer
        Its address.
    config
        Port, sizes, timeout.
    secrets
        Returns the secrets; the first signs.
    totals
        Where is counted.
    patience_seconds
        How long a lost ping waits for an answer that tells its direction.

    Raises
    ------
    OSError
        If the peer's address cannot be used, as without a route to it.
    """

    def __init__(
        self,
        peer: str,
        config: PingsConfig,
        secrets: Callable[[], Sequence[bytes]],
        totals: PingTotals,
        patience_seconds: float,
    ) -> None:
        self._secrets = secrets
        self._timeout = config.timeout_seconds
        self._token = bytes(TOKEN_BYTES)
        self.answers = False
        self._patience = patience_seconds
        self._socket = open_datagram_socket(socket.AF_INET6 if ":" in peer else socket.AF_INET)
        try:
            never_divide(self._socket)
            set_dscp(self._socket, config.dscp)
            self._socket.connect((peer, config.port))
            sizes = _sizes(config, largest_payload(self._socket))
        except OSError:
            self._socket.close()
            raise
        self._sizes = {
            name: _Size(
                each, Losses(Target(peer, "udp", name), totals, self._timeout, patience_seconds)
            )
            for name, each in sizes.items()
        }
        self._by_session = {each.session: each for each in self._sizes.values()}

    @property
    def sizes(self) -> Sequence[str]:
        """The sizes it sends."""
        return tuple(self._sizes)

    def send(self, size: str) -> None:
        """Send one request."""
        each = self._sizes[size]
        each.sequence += 1
        sequence, now = each.sequence, time.monotonic()
        request = Packet(Kind.REQUEST, each.session, sequence, self._token)
        data = encode(request, self._secrets()[0], each.bytes)
        if self.answers:
            each.losses.sent(sequence, now)
        each.sent[sequence] = time.time(), now
        try:
            self._socket.send(data)
        except ConnectionRefusedError:
            # Of one sent before: its host is there, and its exporter is not.
            self._withdraw_all()
        except OSError:
            # No route, or too large for it: waits for its answer in vain, as one lost elsewhere.
            return

    def readable(self) -> Sequence[socket.socket]:
        """Return its socket."""
        return (self._socket,)

    def writable(self) -> Sequence[socket.socket]:
        """Return none: sending never waits."""
        return ()

    def ready(self, opened: socket.socket) -> None:
        """Take the answers that are there."""
        while True:
            try:
                datagram = receive(opened)
            except ConnectionRefusedError:
                self._withdraw_all()
                return
            except OSError:
                return
            if datagram is None:
                return
            self._take(datagram)

    def _withdraw_all(self) -> None:
        """Count nothing of what is under way: the peer's host says that nobody listens."""
        for each in self._sizes.values():
            for sequence in each.sent:
                each.losses.withdraw(sequence)

    def _take(self, datagram: Datagram) -> None:
        decoded = decode(datagram.data, self._secrets())
        each = self._by_session.get(decoded[0].session) if decoded else None
        if decoded is None or each is None:
            return
        made = decoded[0]
        times = each.sent.pop(made.sequence, None)
        if times is None or made.kind is Kind.REQUEST:
            return
        self._token = made.token
        if made.kind is Kind.TOKEN:
            each.losses.withdraw(made.sequence)
            return
        self.answers = True
        now = time.monotonic()
        seconds = _round_trip(datagram.time, *times, now) - made.microseconds / 1e6
        each.losses.answered(made.sequence, made.received, max(0.0, seconds), now)

    def expire(self) -> None:
        """Count what has waited too long."""
        now = time.monotonic()
        oldest = now - self._timeout - self._patience
        for each in self._sizes.values():
            each.losses.expire(now)
            late = [number for number, (_, sent) in each.sent.items() if sent < oldest]
            for number in late:
                del each.sent[number]

    def close(self) -> None:
        """Close its socket."""
        self._socket.close()


def _sizes(config: PingsConfig, most: int) -> dict[str, int]:
    """Return the sizes to send by name; what the interface does not allow is left out."""
    most = min(most, MOST_BYTES)
    sizes = {"small": SMALL_BYTES}
    if config.large_bytes <= most:
        sizes["large"] = config.large_bytes
    if config.full_packets and most > max(sizes.values()):
        sizes["full"] = most
    return sizes


def _round_trip(arrived: float | None, sent_clock: float, sent: float, now: float) -> float:
    """Return the seconds until the kernel had the answer, or until it was read.

    The kernel's time leaves out what this busy process takes to read it. Where the clock was set in
    between, the two do not fit.
    """
    read = now - sent
    if arrived is None or not 0 <= arrived - sent_clock <= read:
        return read
    return arrived - sent_clock
