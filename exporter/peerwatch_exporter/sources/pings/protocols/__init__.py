"""By which protocols a peer is pinged: one file for each.

A protocol is a class like ``Pings`` below, made for one peer; ``mesh`` has the table of those in
use. RDMA is not among them: Python has no verbs, so that each ping is a process, which has a thread
of its own in ``rdma``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence


class Pings(Protocol):
    """Pings one peer by one protocol; nothing that it does waits.

    Before the peer ever answered nothing is counted: it may not be set up to do so.
    """

    @property
    def sizes(self) -> Sequence[str]:
        """The sizes it sends."""

    @property
    def answers(self) -> bool:
        """Whether the peer ever answered."""

    def send(self, size: str) -> None:
        """Begin one ping."""

    def readable(self) -> Sequence[socket.socket]:
        """Return sockets on which answers arrive."""

    def writable(self) -> Sequence[socket.socket]:
        """Return sockets that are waited for until they can be written to."""

    def ready(self, opened: socket.socket) -> None:
        """Take what a socket has."""

    def expire(self) -> None:
        """Count what has waited too long."""

    def close(self) -> None:
        """Free what it holds."""
