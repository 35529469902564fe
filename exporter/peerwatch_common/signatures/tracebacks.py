"""Follows Python tracebacks over their lines: what counts is the last line, and who was first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_common.signatures.prefixes import Line

# A colon follows in Python's own; rich puts it into the upper edge of a box.
HEADER = b"Traceback (most recent call last)"
CHAINS = (
    b"During handling of the above exception, another exception occurred:",
    b"The above exception was the direct cause of the following exception:",
)
_FRAME = b'File "'
# "Type: message", also "ray.exceptions.RayTaskError(ValueError): ..."; no level such as "ERROR:".
_EXCEPTION = re.compile(
    rb"(?![A-Z_]{1,20}:)(?=[\w.]{0,200}(?:[A-Z]|\.))[A-Za-z_][\w.]{0,200}"
    rb"(?:\([\w.]{1,100}\))?(?:: |:?$)"
)
# Edges and margins of rich's boxes, and what it has for them where the encoding is ASCII.
_CORNER = re.compile("(?:[╭┌┏]|\\+-)".encode())
_BOX = tuple(each.encode() for each in ("│", "╭", "╰", "|", "+", "┌", "└", "┃", "┏", "┗"))
# A group's own lines stand behind a margin.
_MARGIN = re.compile(rb" {2,20}[|+] ")
# Chosen: 250 frames of two lines; Python cuts those of a recursion ("Previous line repeated").
_MOST_LINES = 500
# Who may write into one log at a time: chosen, four times the ranks of a node with 16 GPUs.
_MOST_OPEN = 64
# Chosen: the log of a whole job has hundreds of writers, and of each only its name is kept.
_MOST_CHAINED = 1024


@dataclass(slots=True)
class _Traceback:
    before: bytes
    cascade: bool
    is_boxed: bool = False
    indent: int | None = None
    lines: int = 0


@dataclass(frozen=True, slots=True)
class RaisedException:
    """The last line of a traceback.

    Attributes
    ----------
    text
        ``Type: message``, or the type alone.
    cascade
        Whether an exception came before it of which it follows.
    """

    text: bytes
    cascade: bool


class Tracebacks:
    """The tracebacks that a log is in the midst of; lines of several processes may be mixed."""

    def __init__(self) -> None:
        self._open: dict[object, _Traceback] = {}
        self._chained: dict[object, None] = {}

    @property
    def are_open(self) -> bool:
        """Whether the next line may belong to a traceback."""
        return bool(self._open)

    def take(self, line: Line) -> RaisedException | bool:
        """Take the next line; return the exception it is, else whether it is part of a traceback.

        Lines outside of a traceback matter only if they hold ``HEADER`` or one of ``CHAINS``.
        """
        text = line.text
        place = text.find(HEADER)
        if place >= 0:
            corner = _CORNER.search(text, 0, place)
            if text.startswith(b":", place + len(HEADER)):
                self._begin(line.writer, text[:place])
                return True
            if corner is not None:
                self._begin(line.writer, text[: corner.start()], is_boxed=True)
                return True
        traceback = self._open.get(line.writer)
        if traceback is None:
            if text.strip() in CHAINS:
                self._chained[line.writer] = None
                if len(self._chained) > _MOST_CHAINED:
                    del self._chained[next(iter(self._chained))]
                return True
            return False
        found = self._follow(traceback, text)
        traceback.lines += 1
        if isinstance(found, RaisedException) or traceback.lines > _MOST_LINES:
            del self._open[line.writer]
        return found

    def _begin(self, writer: object, before: bytes, *, is_boxed: bool = False) -> None:
        cascade = writer in self._chained
        self._chained.pop(writer, None)
        self._open.pop(writer, None)
        self._open[writer] = _Traceback(before, cascade, is_boxed)
        if len(self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]

    def _follow(self, traceback: _Traceback, text: bytes) -> RaisedException | bool:
        if traceback.before.strip() and text.startswith(traceback.before):
            # What stands before the header may stand before all its lines, such as a host's name.
            text = text[len(traceback.before) :]
        if traceback.is_boxed:
            return _follow_box(traceback, text.strip())
        text = _MARGIN.sub(b"", text, count=1)
        content = text.lstrip()
        indent = len(text) - len(content)
        if content.startswith(_FRAME) and traceback.indent is None:
            traceback.indent = max(indent - 2, 0)
        if indent > (traceback.indent or 0) or not content:
            return True
        if not _EXCEPTION.match(content):
            # Of another process, whose lines are mixed in: a line like any other.
            return False
        return RaisedException(content, traceback.cascade)


def _follow_box(traceback: _Traceback, content: bytes) -> RaisedException | bool:
    if not content or content.startswith(_BOX):
        return True
    if not _EXCEPTION.match(content):
        return False
    return RaisedException(content, traceback.cascade)
