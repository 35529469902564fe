"""A node whose kernel log and driver report XIDs."""

from __future__ import annotations

from peerwatch_exporter.collectors.xid import (
    XidLog,
)

BOOT = 1767225600


BUS = "0000:19:00.0"


def counts(*messages):
    """Return the counts after (seconds, text) messages."""
    log = XidLog()
    for seconds, text in messages:
        log.add(text, seconds)
    return {key: found.count for key, found in log.occurrences.items()}


def tell_boards(fixture):
    """Let the XID collector know the boards, as the driver process does."""
    fixture.collect("gpu")


def write(busy, *lines):
    """Append lines to the node's kernel log."""
    with busy.sources.paths.kmsg.open("a") as log:
        log.writelines(f"{line}\n" for line in lines)
