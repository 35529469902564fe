"""Notifies systemd that the exporter is ready, alive and ending, where systemd asks for it.

The protocol is a datagram of ``KEY=VALUE`` lines to the socket named in ``NOTIFY_SOCKET``.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOG = logging.getLogger(__name__)


class Notifier:
    """Speaks to systemd, or to nobody.

    Parameters
    ----------
    environment
        The process' environment: ``NOTIFY_SOCKET`` and ``WATCHDOG_USEC`` are read.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._watchdog = environment.get("WATCHDOG_USEC", "")

    @property
    def watchdog_seconds(self) -> float | None:
        """After this long without ``alive`` the exporter is restarted; ``None``: never."""
        if not self._address or not self._watchdog.isascii() or not self._watchdog.isdigit():
            return None
        return int(self._watchdog) / 1e6 or None

    def ready(self) -> None:
        """Say that the endpoints have something to expose."""
        self._say("READY=1")

    def alive(self) -> None:
        """Say that the clock still takes snapshots."""
        self._say("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that it ends."""
        self._say("STOPPING=1")

    def _say(self, message: str) -> None:
        if not self._address:
            return
        # An abstract socket is written with @ where its name has a zero byte.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
                to.settimeout(1)
                to.connect(address)
                to.send(message.encode())
        except OSError as error:
            _LOG.warning("cannot notify systemd message=%s detail=%r", message, str(error))
