"""What is said between the main process and the one that reads logs; neither end waits for ever."""

from __future__ import annotations

import json
import select
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.sources.logs.found import read_mark

if TYPE_CHECKING:
    import mmap
    import socket
    from collections.abc import Callable

# A quarter of the time between two reports, which have 50,000 positions of 200 bytes at most, and
# 20,000 counts.
_CHECK_SECONDS = 0.25
_READ_BYTES = 1 << 18
_LONGEST_LINE_BYTES = 1 << 26
# It checks four times a second: 20 checks that did not come.
_STOOD_STILL_SECONDS = 5.0


class HangError(Exception):
    """One call does not return, or nothing is heard; ``group`` is what is touched, if anything."""

    def __init__(self, group: str, text: str) -> None:
        super().__init__(text)
        self.group = group


class Conversation:
    """Talks with one process until it ends.

    Parameters
    ----------
    channel
        To the process.
    marks
        The memory in which it notes what it touches.
    wanted
        Returns the message that holds now; it is sent when it changes.
    take
        Takes a report.
    monotonic
        Seconds that only rise.
    hang_seconds, silence_seconds
        How long one call, and silence for whatever reason, may last.
    """

    def __init__(
        self,
        channel: socket.socket,
        marks: mmap.mmap,
        *,
        wanted: Callable[[], dict[str, Any]],
        take: Callable[[dict[str, Any]], None],
        monotonic: Callable[[], float],
        hang_seconds: float,
        silence_seconds: float,
    ) -> None:
        self._channel = channel
        self._marks = marks
        self._wanted = wanted
        self._take = take
        self._monotonic = monotonic
        self._hang_seconds = hang_seconds
        self._silence_seconds = silence_seconds
        self._outgoing = b""
        self._sent: dict[str, Any] | None = None
        self._incoming = b""
        self._heard_at = self._moved_at = self._checked_at = monotonic()
        self._mark = (0, "")

    def run(self, first: dict[str, Any], is_stopping: Callable[[], bool]) -> None:
        """Talk until the process ends or the exporter stops.

        Raises
        ------
        HangError
            If the process hangs.
        ValueError
            If it says what nobody understands.
        OSError
            If it closed its end.
        """
        self._channel.setblocking(False)
        self._queue(first)
        readable = select.poll()
        readable.register(self._channel, select.POLLIN)
        while not is_stopping():
            self._send()
            if readable.poll(_CHECK_SECONDS * 1000) and not self._receive():
                return
            self._check()

    def _queue(self, message: dict[str, Any]) -> None:
        self._outgoing += json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def _send(self) -> None:
        wanted = self._wanted()
        # One at a time: a process that hangs takes none, and none must pile up.
        if not self._outgoing and wanted != self._sent:
            self._queue(wanted)
            self._sent = wanted
        if self._outgoing:
            try:
                sent = self._channel.send(self._outgoing)
            except BlockingIOError:
                return
            self._outgoing = self._outgoing[sent:]

    def _receive(self) -> bool:
        """Take what has come; return whether the other end is open."""
        try:
            data = self._channel.recv(_READ_BYTES)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        if not data:
            return False
        self._heard_at = self._monotonic()
        *lines, self._incoming = (self._incoming + data).split(b"\n")
        if len(self._incoming) > _LONGEST_LINE_BYTES:
            raise ValueError(f"a report of more than {_LONGEST_LINE_BYTES} bytes")
        for line in lines:
            self._take(json.loads(line))
        return True

    def _check(self) -> None:
        now = self._monotonic()
        if now - self._checked_at > _STOOD_STILL_SECONDS:
            # This process itself stood still: every wait begins anew.
            self._heard_at = self._moved_at = now
        self._checked_at = now
        mark = read_mark(self._marks[:])
        if mark != self._mark:
            self._mark, self._moved_at = mark, now
        silent = now - self._heard_at
        if mark[1] and min(silent, now - self._moved_at) > self._hang_seconds:
            raise HangError(mark[1], f"A call does not return: {mark[1]}")
        if silent > self._silence_seconds:
            raise HangError("", f"Nothing heard for {silent:.0f} s")
