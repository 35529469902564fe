"""Reads a simulated line of a log as the exporter would: with the signatures that ship."""

from __future__ import annotations

import re
from functools import cache

from peerwatch_common.signatures.event import Event
from peerwatch_common.signatures.matcher import LogMatcher, MatchTable
from peerwatch_common.signatures.signature import Log
from peerwatch_common.signatures.signature_set import load_signatures

# Python writes such a line last, below a traceback; torch puts the rank before all of them.
_RAISED = re.compile(r"(\[rank\d+\]: )?[\w.]*(?:Error|Exception|Interrupt|Stopped)\b")
_TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/workspace/train.py", line 212, in <module>',
    "    main()",
)


def read_line(text: str, log: Log) -> Event | None:
    """Return what the exporter makes of a line, or None if no signature knows it.

    Parameters
    ----------
    text
        The line. A Python exception is read with the traceback that stands above it.
    log
        The log it is in: ``job`` or ``kernel``.
    """
    reader = matcher(log)
    events = (
        reader.feed(((_written(text) if log == "job" else text) + "\n").encode()) + reader.finish()
    )
    return events[-1] if events else None


def matcher(log: Log) -> LogMatcher:
    """Return a matcher of the shipped signatures for one log."""
    return LogMatcher(_table(log), clock=lambda: 0.0)


def _written(text: str) -> str:
    raised = _RAISED.match(text)
    if raised is None:
        return text
    prefix = raised[1] or ""
    return "\n".join([*(prefix + line for line in _TRACEBACK), text])


@cache
def _table(log: Log) -> MatchTable:
    return MatchTable(load_signatures().of_log(log))
