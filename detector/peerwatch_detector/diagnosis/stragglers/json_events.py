"""Reads events from JSON as they come, so that a trace need not fit into memory as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peerwatch_detector.errors import TraceError

# An object, or an array as the exporter writes spans.
Event = dict[str, Any] | list[Any]

# Characters that are read at once: thousands of events, so that reading costs less than parsing.
_CHUNK = 1 << 20
# Characters of an event, or of what precedes the events of a file. Chosen: events have hundreds;
# what goes on for 16 million is no trace, and is refused before it fills the memory.
_LONGEST = 16 << 20
_ARRAY = re.compile(r'"traceEvents"\s*:\s*\[')
_SEPARATORS = re.compile(r"[\s,]*")


def read_events(read: Callable[[int], str], path: Path) -> Iterator[Event]:
    """Yield the events of a Chrome trace, or the lines of spans as JSON lines.

    Parameters
    ----------
    read
        Reads at most that many characters; an empty text at the end.
    path
        The file, for messages.

    Raises
    ------
    TraceError
        If it is no such JSON, or ends in the middle of an event.
    """
    buffer = _Buffer(read, path)
    buffer.begin()
    yield from buffer.objects()


class _Buffer:
    """A window onto the text of a file.

    Parameters
    ----------
    read, path
        See ``read_events``.
    """

    def __init__(self, read: Callable[[int], str], path: Path) -> None:
        self._read = read
        self._path = path
        self._text = ""
        self._place = 0
        self._count = 0

    def begin(self) -> None:
        """Go to the first event."""
        self._more()
        self._place = _SEPARATORS.match(self._text).end()  # type: ignore[union-attr]
        if self._text.startswith("[", self._place):
            self._place += 1
            return
        if self._is_line():
            return
        while (found := _ARRAY.search(self._text)) is None:
            if len(self._text) > _LONGEST or not self._more():
                raise TraceError(
                    f'{self._path}: is JSON without "traceEvents"; a Chrome trace has them, spans '
                    "as JSON lines have one object per line."
                )
        self._place = found.end()

    def objects(self) -> Iterator[Event]:
        """Yield the events from here to the end of their array, or of the file."""
        decoder = json.JSONDecoder()
        while True:
            self._place = _SEPARATORS.match(self._text, self._place).end()  # type: ignore[union-attr]
            if self._place == len(self._text):
                if not self._more():
                    return
                continue
            if self._text[self._place] == "]":
                return
            try:
                event, end = decoder.raw_decode(self._text, self._place)
            # A ValueError of its own is a whole number that is too long for Python.
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._place <= _LONGEST and self._more():
                    continue
                raise TraceError(
                    f"{self._path}: is no JSON after {self._count:,} events: {_reason(error)}; it "
                    "may have been cut off."
                ) from error
            if not isinstance(event, dict | list):
                raise TraceError(
                    f"{self._path}: event {self._count + 1:,} is no object but {str(event)[:40]!r}."
                )
            self._place = end
            self._count += 1
            yield event

    def _is_line(self) -> bool:
        """Whether the first line is an object of its own that holds no events."""
        line = self._text[self._place :].partition("\n")[0]
        try:
            first = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(first, dict) and "traceEvents" not in first

    def _more(self) -> bool:
        """Read on; return whether there was more."""
        chunk = self._read(_CHUNK)
        if not chunk:
            return False
        self._text = self._text[self._place :] + chunk
        self._place = 0
        return True


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "too deep" if isinstance(error, RecursionError) else "a number is too long"
