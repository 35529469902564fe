"""Joins the parts in which container runtimes write a line.

A line that is longer than the runtime's buffer, or that the program writes in several calls, is
several records of a Kubernetes container log: ``P`` marks a part, ``F`` the last one.
"""

from __future__ import annotations

import re

_RECORD = re.compile(
    rb"(\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (std(?:out|err)) )([FP])(?:$| )"
)
_MARK = b" P"


class PartialLines:
    """Joins the parts of one log; standard output and error may alternate.

    Parameters
    ----------
    longest
        A line that grows longer goes on as another one.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open: dict[bytes, bytes] = {}

    def joined(self, block: bytes) -> bytes:
        """Return whole lines of a log with those joined that are parts of one.

        Parameters
        ----------
        block
            Lines separated by LF, without the last LF.
        """
        if not self._open and not (_RECORD.match(block) and _MARK in block):
            return block
        lines: list[bytes] = []
        for line in block.split(b"\n"):
            lines += self._line(line)
        return b"\n".join(lines)

    def finish(self) -> bytes:
        """Return the lines that have no end, and forget them."""
        lines = list(self._open.values())
        self._open = {}
        return b"\n".join(lines)

    def _line(self, line: bytes) -> list[bytes]:
        record = _RECORD.match(line)
        if record is None:
            return [line]
        header, stream, tag = record.groups()
        text = line[record.end() :]
        before = self._open.pop(stream, None)
        # The first part says when the line began.
        whole = header + b"F " + text if before is None else before + text
        if tag == b"F":
            return [whole]
        if len(whole) > self._longest:
            return [whole]
        # What a progress bar wrote over is a line of its own.
        done, bar, rest = whole.rpartition(b"\r")
        self._open[stream] = header + b"F " + rest if bar else whole
        return [done] if bar else []
