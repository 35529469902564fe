"""Signatures in the kernel log, which is no job's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.signatures.matcher import LogMatcher
from peerwatch_exporter.sources.kernel.log import KernelLog
from peerwatch_exporter.sources.logs.owners import Owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_common.signatures.event import Event
    from peerwatch_common.signatures.matcher import MatchTable
    from peerwatch_exporter.sources.host.access import HostAccess

# Counted by the collectors xid and sxid, by code and with what they call for.
_COUNTED_ELSEWHERE = ("xid_", "sxid_")
# A record counts for the node; jobs are joined to it by their nodes.
NODE = Owner("", None)


class KernelEvents:
    """Reads the kernel log from its oldest record, so that a restart counts the same again.

    Parameters
    ----------
    host
        For the log's path, the boot time and the clock.
    table
        The signatures of kernel logs.
    """

    def __init__(self, host: HostAccess, table: MatchTable) -> None:
        self._log = KernelLog(host, bool)
        self._matcher = LogMatcher(table, host.clock)

    def read(self) -> Iterator[tuple[Event, Owner, float]]:
        """Yield the new events and when they were logged (Unix time).

        Raises
        ------
        NoData
            If there is no kernel log.
        OSError
            If it cannot be read.
        """
        for text, timestamp in self._log.read():
            for event in self._matcher.feed(text.encode("utf-8", "replace") + b"\n"):
                if not event.signature.id.startswith(_COUNTED_ELSEWHERE):
                    yield event, NODE, timestamp
