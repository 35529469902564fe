"""Reads torchrun's table of the ranks that failed: who it was, and who was first.

The rows of one rank follow one another, and only one of them says that it failed::

    Root Cause (first observed failure):
    [0]:
      time      : 2026-03-01_10:20:30
      host      : node-1
      rank      : 3 (local_rank: 3)
      exitcode  : -9 (pid: 4242)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from peerwatch_common.signatures.timestamps import timestamp_of

if TYPE_CHECKING:
    from peerwatch_common.signatures.prefixes import Line

ROOT = b"Root Cause (first observed failure):"
OTHERS = b"Failures:"
_ROW = re.compile(rb" {1,8}(time|host|rank|exitcode) {1,8}: ([^\n]{1,300})")
_RANK = re.compile(rb"(\d{1,6}) \(local_rank: (\d{1,6})\)")
_END = b"====="
# A node has few ranks, but the row of a traceback has as many lines as the traceback. Chosen: room
# for four of the longest (tracebacks.py).
_MOST_LINES = 2000
# Who may write into one log at a time: chosen, four times the ranks of a node with 16 GPUs.
_MOST_OPEN = 64


@dataclass(slots=True)
class _Table:
    is_root: bool
    rows: dict[bytes, bytes] = field(default_factory=dict)
    lines: int = 0


class FailureTables:
    """The tables that a log is in the midst of, by who writes."""

    def __init__(self) -> None:
        self._open: dict[object, _Table] = {}

    @property
    def are_open(self) -> bool:
        """Whether the next line may belong to a table."""
        return bool(self._open)

    def take(self, line: Line, now: float) -> Line:
        """Take the next line; return it, with what the table says of the rank if it failed.

        Parameters
        ----------
        line
            Of a log.
        now
            The time of reading (Unix time).
        """
        text = line.text.strip()
        if text in (ROOT, OTHERS):
            if len(self._open) >= _MOST_OPEN:
                self._open.clear()
            self._open[line.writer] = _Table(text == ROOT)
            return line
        table = self._open.get(line.writer)
        if table is None:
            return line
        table.lines += 1
        if text.startswith(_END) or table.lines > _MOST_LINES:
            del self._open[line.writer]
            return line
        row = _ROW.match(line.text)
        if row is None:
            return line
        name, value = row.groups()
        if name != b"exitcode":
            table.rows[name] = value.strip()
            return line
        failed, table.rows = table.rows, {}
        return _failed(line, failed, now, is_root=table.is_root)


def _failed(line: Line, rows: dict[bytes, bytes], now: float, *, is_root: bool) -> Line:
    """Return the row with the exit code as a line of the rank that failed."""
    rank = _RANK.match(rows.get(b"rank", b""))
    if rank is None:
        return line
    host = rows.get(b"host", b"")
    text = b"%s rank %s on %s, %s" % (
        ROOT if is_root else OTHERS,
        rank[1],
        host or b"an unknown host",
        line.text.strip(),
    )
    written = timestamp_of(rows.get(b"time", b"").replace(b"_", b" "), now)
    return replace(
        line,
        text=text,
        rank=int(rank[1]),
        local_rank=int(rank[2]),
        timestamp=line.timestamp if written is None else written,
    )
