"""Pings by TCP: a connection is opened and closed again, and nothing is sent.

The kernel says how long the peer's answer took, and whether it had to ask again: that is a loss,
though the connection comes about.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.pings.datagrams import set_dscp
from peerwatch_exporter.sources.pings.totals import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_exporter.settings.pings import PingsConfig
    from peerwatch_exporter.sources.pings.totals import PingTotals

# struct tcp_info of linux/tcp.h: microseconds of the round trip, and packets sent again.
_INFO_BYTES = 104
_ROUND_TRIP = struct.Struct("=68xI28xI")
# Closes at once: nothing is left to wait for, on either side.
_RESET = struct.pack("=ii", 1, 0)


class TcpPings:
    """Pings one peer by TCP.

    Parameters
    ----------
    peer
        Its address.
    config
        Port and timeout.
    totals
        Where is counted.
    """

    sizes: Sequence[str] = ("small",)

    def __init__(self, peer: str, config: PingsConfig, totals: PingTotals) -> None:
        self._address = peer, config.port
        self._family = socket.AF_INET6 if ":" in peer else socket.AF_INET
        self._target = Target(peer, "tcp", "small")
        self._timeout = config.timeout_seconds
        self._dscp = config.dscp
        self._totals = totals
        self._open: dict[socket.socket, float] = {}
        self.answers = False

    def send(self, size: str) -> None:
        """Begin to open a connection."""
        del size
        kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        opened = socket.socket(self._family, kind)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        set_dscp(opened, self._dscp)
        self._open[opened] = time.monotonic()
        if opened.connect_ex(self._address) not in (0, errno.EINPROGRESS):
            self._end(opened, is_lost=True)

    def readable(self) -> Sequence[socket.socket]:
        """Return none: nothing is read."""
        return ()

    def writable(self) -> Sequence[socket.socket]:
        """Return the connections that are not open yet."""
        return tuple(self._open)

    def ready(self, opened: socket.socket) -> None:
        """Count a connection that is open, or that was refused."""
        if opened not in self._open:
            return
        waited = time.monotonic() - self._open[opened]
        error = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error in (errno.ECONNREFUSED, errno.ECONNRESET):
            # The peer's host is there, and its exporter is not.
            self._end(opened, is_lost=False)
            return
        info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        microseconds, again = _ROUND_TRIP.unpack(info) if len(info) == _INFO_BYTES else (0, 0)
        if error == 0:
            self.answers = True
        self._end(opened, is_lost=error != 0 or again > 0)
        if error == 0 and not again:
            self._totals.answered(self._target, microseconds / 1e6 or waited)

    def expire(self) -> None:
        """Count connections that do not open."""
        latest = time.monotonic() - self._timeout
        for opened in [each for each, since in self._open.items() if since <= latest]:
            self._end(opened, is_lost=True)

    def _end(self, opened: socket.socket, *, is_lost: bool) -> None:
        del self._open[opened]
        opened.close()
        if is_lost and self.answers:
            self._totals.lost(self._target, "unknown")

    def close(self) -> None:
        """Close all of them."""
        for opened in self._open:
            opened.close()
        self._open.clear()
