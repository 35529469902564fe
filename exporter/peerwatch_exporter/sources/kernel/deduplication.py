"""Counts once what two sources report, each in its own time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

# A fault makes a burst of reports; those of one source within this time of its first are one event.
# Chosen: a driver logs its burst within a second, and a job is not started again so soon.
_BURST_SECONDS = 5.0
# The kernel logs at once; NVML's events are taken once a second, by a process that may be late.
_APART_SECONDS = 5.0
# Chosen: 16 GPUs with 64 codes each, and more events of one at a time are a flood.
_MAX_KEYS = 1024
_MAX_EVENTS = 8


class EventDeduplicator:
    """Distinguishes new events from repetitions, by one source or by the other.

    It does not matter who is first. Two events that both report are two, also if one source
    reports both before the other reports the first.
    """

    def __init__(self) -> None:
        # By what was reported: the newest events, each with when every source began to report it.
        self._events: dict[Hashable, list[dict[str, float]]] = {}

    def is_new(
        self, key: Hashable, source: str, timestamp: float, *, retry_seconds: float | None = None
    ) -> bool:
        """Take a report; return whether it is the first of an event.

        Parameters
        ----------
        key
            What was reported.
        source
            Who reports it.
        timestamp
            When it happened, as far as the source knows (Unix time). A time before that of the
            same source's earlier reports begins another event: its log started again.
        retry_seconds
            For what is tried and fails again and again, how long one try takes: the event goes on
            as long as reports follow one another by no more than that and 5 s. None: an event is
            over 5 s after its first report.
        """
        longest = _BURST_SECONDS + (retry_seconds or 0.0)
        events = self._events.pop(key, [])
        self._events[key] = events
        for event in events:
            start = event.get(source)
            if start is not None and 0 <= timestamp - start < longest:
                if retry_seconds is not None:
                    event[source] = timestamp
                return False
        for event in events:
            # Lacking this source, it has the other one.
            start = next(iter(event.values()))
            if source not in event and abs(timestamp - start) <= _APART_SECONDS:
                event[source] = timestamp
                return False
        events.append({source: timestamp})
        del events[:-_MAX_EVENTS]
        if len(self._events) > _MAX_KEYS:
            # The one that was reported longest ago.
            del self._events[next(iter(self._events))]
        return True
