"""How far a run is, as lines on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from peerwatch_common.logs import one_line
from peerwatch_common.progress import LINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_checks.check import Check
    from peerwatch_common.check_results.record import Record


class ProgressLines:
    """Writes a line when a check begins, every 5 s while it runs, and when it ended.

    Parameters
    ----------
    out
        Where they go.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._place = ""
        self._next = 0.0

    def begins(self, check: Check, number: int, count: int) -> None:
        """Write that a check begins."""
        self._place = f"[{number}/{count}] {check.name}"
        self._next = LINE_SECONDS
        self._write(f"about {check.seconds:g} s")

    def runs(self, check: Check, seconds: float) -> None:
        """Write for how long it has been running, now and then."""
        if seconds >= self._next:
            self._next = seconds + LINE_SECONDS
            self._write(f"{seconds:.0f} s, {check.timeout_seconds:g} s at most")

    def ended(self, check: Check, found: Sequence[Record]) -> None:
        """Write how it ended: how many results of each status, or the only one that is no pass."""
        del check
        first = found[0]
        said = [record.status for record in found]
        text = ", ".join(f"{said.count(status)} {status}" for status in sorted(set(said)))
        if len(found) == 1 and first.status != "pass":
            text = f"{first.status}: {one_line(first.message)}"
        self._write(f"{text} after {first.duration_seconds:.1f} s")

    def _write(self, text: str) -> None:
        self._out.write(f"{self._place}: {text}\n")
        self._out.flush()
