"""The demo's lines on the terminal: seconds since the start, one event a line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TextIO

_COLORS = {"good": "32", "bad": "31", "event": "33", "quiet": "2", "plain": ""}


class Console:
    """Prints lines with the time since the console was made.

    When nobody reads any more (``make demo | head``), one line raises and the rest is dropped.

    Parameters
    ----------
    output
        Where lines go; colour only if it is a terminal and NO_COLOR is not set.
    environment
        Where NO_COLOR is looked up.
    clock
        Seconds.
    """

    def __init__(
        self,
        output: TextIO,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._output = output
        self._clock = clock
        self._began = clock()
        self._unread = False
        self._colored = output.isatty() and not environment.get("NO_COLOR")

    def line(self, text: str, style: str = "plain") -> None:
        """Print one line, the time in front of it."""
        self._print(f"{self._clock() - self._began:6.1f} s  {text}", style)

    def text(self, text: str, style: str = "plain") -> None:
        """Print a block without a time."""
        self._print(text, style)

    def _print(self, text: str, style: str) -> None:
        color = _COLORS[style]
        if self._colored and color:
            text = f"\x1b[{color}m{text}\x1b[0m"
        if self._unread:
            return
        try:
            print(text, file=self._output, flush=True)
        except BrokenPipeError:
            self._unread = True  # what is said while things are taken down must not fail again
            raise
