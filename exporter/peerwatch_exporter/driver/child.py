"""One driver process as its parent sees it: started, spoken to, listened to, ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import peerwatch_exporter
from peerwatch_exporter.driver.progress_marker import SharedProgressMarker
from peerwatch_exporter.driver.wire import FamilyUnpacker, Inbox, pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_exporter.driver.progress_marker import Activity

# As much is made ready for every reading; a second's answers have some 30 KiB.
_READ_BYTES = 1 << 16
COMMAND = (sys.executable, "-m", "peerwatch_exporter.driver")


class ChildGoneError(Exception):
    """The child closed its end: it ended, or was ended."""


class ChildProcess:
    """A running driver process.

    The kernel ends it when the thread that made it ends.

    Parameters
    ----------
    command
        How to start it; the options of its channel are added.
    settings
        The first message.

    Raises
    ------
    OSError
        If it cannot be started.
    """

    def __init__(self, command: Sequence[str], settings: dict[str, Any]) -> None:
        self.unpacker = FamilyUnpacker()
        self._inbox = Inbox()
        self._marker = SharedProgressMarker()
        self.socket, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                [*command, *_options(theirs.fileno(), self._marker.descriptor)],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), self._marker.descriptor),
                env=_environment(),
            )
        except OSError:
            self.close()
            raise
        finally:
            theirs.close()
        self.socket.setblocking(False)
        self.send("settings", settings)

    def send(self, *message: object) -> bool:
        """Send a message without waiting; return whether all of it went out."""
        frame = pack(message)
        try:
            return self.socket.send(frame) == len(frame)
        except OSError:
            return False

    def receive(self) -> list[tuple[Any, ...]]:
        """Return the messages that have come, without waiting.

        Raises
        ------
        ChildGoneError
            If the child closed its end and everything it sent was returned before.
        WireError
            If it sends something else than messages.
        """
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChildGoneError(str(error)) from error
        if not data:
            raise ChildGoneError("The channel was closed.")
        return self._inbox.feed(data)

    def activity(self) -> Activity:
        """Return what it is doing, without asking it."""
        return self._marker.read()

    def close(self) -> None:
        """Close this end of the channel."""
        self.socket.close()
        if self._marker.descriptor >= 0:
            self._marker.close()


def _options(channel: int, marker: int) -> list[str]:
    return ["--channel", str(channel), "--marker", str(marker), "--parent", str(os.getpid())]


def _environment() -> dict[str, str]:
    """Return an environment in which the child finds this very package."""
    root = str(Path(peerwatch_exporter.__file__).parent.parent)
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    return {**os.environ, "PYTHONPATH": path}


def _has_descriptor(stream: TextIO) -> bool:
    try:
        return isinstance(stream.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False
