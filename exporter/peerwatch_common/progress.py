"""The progress of a long command: a bar on a terminal, a line every few seconds elsewhere.

tqdm draws it; it is imported with the first bar, for the exporter runs without it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    from types import TracebackType

# Seconds between two lines where a bar cannot be redrawn. Chosen: a log stays readable with twelve
# lines a minute.
LINE_SECONDS = 5.0
_LINE_FORMAT = "{desc}: {n_fmt}/{total_fmt} {rate_noinv_fmt}, {remaining} left{postfix}"


class Progress:
    """Shows how far a command is and how long it still takes.

    Parameters
    ----------
    out
        Where it goes; a bar is drawn if it is a terminal.
    total
        Units of work in all.
    unit
        What is counted, such as ``case`` or ``step``.

    Examples
    --------
    >>> with Progress(sys.stderr, total=len(cases), unit="case") as progress:
    ...     for case in cases:
    ...         progress.describe(case.name)
    ...         replay(case)
    ...         progress.advance()
    """

    def __init__(self, out: TextIO, total: int, unit: str = "step") -> None:
        from tqdm import tqdm  # noqa: PLC0415 - only long commands pay for it

        self._out = out
        self._total = total
        self._terminal = out.isatty()
        # Its default lock is one of processes, and its monitor one more thread: neither is needed.
        tqdm.set_lock(threading.RLock())
        tqdm.monitor_interval = 0
        how: dict[str, Any] = {"dynamic_ncols": True, "leave": False}
        if not self._terminal:
            how = {
                "file": _Lines(out),
                "bar_format": _LINE_FORMAT,
                "mininterval": LINE_SECONDS,
                "delay": LINE_SECONDS,
                "leave": False,
            }
        # No smoothing: the mean rate since the start gives the steadiest estimate of what is left.
        # At every step it is checked whether to redraw: work may be slower than it was at first.
        self._bar = tqdm(
            **{
                "file": out,
                "total": total,
                "unit": f" {unit}",
                "smoothing": 0,
                "miniters": 1,
                **how,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def describe(self, title: str, detail: str = "") -> None:
        """Show what is being worked on, and a detail such as the present loss."""
        self._bar.set_description_str(title, refresh=False)
        self.detail(detail)

    def detail(self, text: str) -> None:
        """Show a detail, such as the present loss, behind the numbers."""
        self._bar.set_postfix_str(text, refresh=False)

    def advance(self, count: int = 1) -> None:
        """Count work as done."""
        self._bar.update(count)

    def skip(self, count: int) -> None:
        """Leave out work that need not be done: it takes no time and tells nothing of the rate."""
        self._total -= count
        self._bar.total = self._total

    def write(self, line: str, out: TextIO | None = None) -> None:
        """Write a whole line, above the bar if there is one; to another output if one is given."""
        out = out or self._out
        if self._terminal:
            self._bar.write(line, file=out)
        else:
            out.write(f"{line}\n")
        out.flush()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class _Lines:
    """A file in which every state of a bar is a line of its own."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> None:
        """Write what tqdm would redraw in place; what only clears the place says nothing."""
        line = text.strip()
        if line:
            self._out.write(f"{line}\n")

    def flush(self) -> None:
        """Show what was written."""
        self._out.flush()
