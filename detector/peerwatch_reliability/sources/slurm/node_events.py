"""Slurm's own history of nodes: when each was drained or down, and why.

A drain is written down only once no job is left on the node: one that was lifted while jobs ran is
not in it.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from peerwatch_reliability.records import OutOfService

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_reliability.records import Window

# The reason, which may hold anything, stands last.
_FORMAT = "NodeName,Start,End,State,Reason"
_BEGIN = re.compile(r"[^|\s]*\|([0-9]{1,11})\|([0-9]{1,11}|Unknown|None)\|[^|]*\|")


def event_arguments(window: Window) -> list[str]:
    """Return what to ask ``sacctmgr`` for all events of nodes that touched a window."""
    first = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(window.start))
    return ["--parsable2", "--noheader", "show", "event", f"Start={first}", f"format={_FORMAT}"]


def read_events(lines: Iterable[str]) -> list[OutOfService]:
    """Return the times for which nodes were out of service."""
    records: list[str] = []
    for line in lines:
        if _BEGIN.match(line):
            records.append(line)
        elif records:
            # A reason goes on in the next line.
            records[-1] += f"\n{line}"
    found = []
    for record in records:
        node, start, end, _state, reason = record.split("|", 4)
        # Without a node it is the whole cluster that began anew.
        if node:
            last = float(end) if end.isdecimal() and int(end) > 0 else None
            found.append(OutOfService(node, float(start), last, reason))
    return found
