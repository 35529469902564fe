"""What the process that reads logs has reported since the exporter's start, within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.sources.logs.tally import EventKey, FirstError, PeerKey

if TYPE_CHECKING:
    from collections.abc import Collection

OTHER = "other"


@dataclass(slots=True)
class LogTotals:
    """Counters and newest values; they outlive the process that counts.

    Parameters
    ----------
    max_series
        How many combinations of labels are kept of events, and of peers.
    """

    max_series: int
    events: dict[EventKey, int] = field(default_factory=dict)
    last: dict[EventKey, float] = field(default_factory=dict)
    peers: dict[PeerKey, int] = field(default_factory=dict)
    firsts: dict[tuple[str, str], FirstError] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)

    def add(self, report: dict[str, Any]) -> None:
        """Take a report.

        Raises
        ------
        KeyError, TypeError, ValueError
            If it is none.
        """
        for job_id, rank, event_class, signature, count, last in report["events"]:
            key = self._event(EventKey(job_id, rank, event_class, signature))
            self.events[key] = self.events.get(key, 0) + count
            self.last[key] = max(self.last.get(key, 0.0), last)
        for job_id, rank, peer, signature, count in report["peers"]:
            complaint = self._peer(PeerKey(job_id, rank, peer, signature))
            self.peers[complaint] = self.peers.get(complaint, 0) + count
        for job_id, rank, *first in report["firsts"]:
            # The earliest counts, also when a file was found late.
            error = FirstError(*first)
            known = self.firsts.get((job_id, rank))
            if (known is None and len(self.firsts) < self.max_series) or (
                known is not None and error.time < known.time
            ):
                self.firsts[job_id, rank] = error
        for job_id, count in report["read"].items():
            self.read[job_id] = self.read.get(job_id, 0) + count
        for job_id, count in report["skipped"].items():
            self.skipped[job_id] = self.skipped.get(job_id, 0) + count

    def copy(self) -> LogTotals:
        """Return a copy that nobody changes."""
        return LogTotals(
            self.max_series,
            dict(self.events),
            dict(self.last),
            dict(self.peers),
            dict(self.firsts),
            dict(self.read),
            dict(self.skipped),
        )

    def forget(self, job_ids: Collection[str]) -> None:
        """Forget these jobs."""
        gone = frozenset(job_ids)
        for by_key in (self.events, self.last, self.peers):
            for key in [key for key in by_key if key.job_id in gone]:
                del by_key[key]  # type: ignore[arg-type]
        for pair in [pair for pair in self.firsts if pair[0] in gone]:
            del self.firsts[pair]
        for by_job in (self.read, self.skipped):
            for job_id in gone & by_job.keys():
                del by_job[job_id]

    def forget_first(self, job_id: str, rank: str) -> None:
        """Forget the first error of a rank, and that of the job's lines that name none."""
        self.firsts.pop((job_id, rank), None)
        self.firsts.pop((job_id, ""), None)

    def _event(self, key: EventKey) -> EventKey:
        if key in self.events or len(self.events) < self.max_series:
            return key
        # One per job and class: few enough to come on top.
        return EventKey(key.job_id, OTHER, key.event_class, OTHER)

    def _peer(self, key: PeerKey) -> PeerKey:
        if key in self.peers or len(self.peers) < self.max_series:
            return key
        return PeerKey(key.job_id, OTHER, OTHER, OTHER)
