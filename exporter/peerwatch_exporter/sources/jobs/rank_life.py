"""Which heartbeats were left behind by processes that are gone.

A process that cannot be found is gone, unless its heartbeat goes on: then it is one that the
exporter cannot see, such as in a container of which it shares neither processes nor environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.sources.jobs.heartbeat import Heartbeat

# A rank whose process is gone tells of its job for this much longer: a job that is started again
# in place keeps its node, and one that ended is gone from Prometheus within a minute.
ENDED_SECONDS = 30.0

HeartbeatKey = tuple[str, int, int | None]

# The last heartbeat may be read one tick after its process was found to be missing; one that comes
# twice more is given by somebody.
_GOES_ON = 2


def key_of(heartbeat: Heartbeat) -> HeartbeatKey:
    """Return whose heartbeat it is."""
    return heartbeat.job_id, heartbeat.rank, heartbeat.pid


class RankLife:
    """Remembers the heartbeats without a process; for one thread."""

    def __init__(self) -> None:
        self._without: dict[HeartbeatKey, tuple[float, int]] = {}

    def gone(self, heartbeats: Iterable[tuple[Heartbeat, bool]]) -> set[HeartbeatKey]:
        """Return the heartbeats whose processes are gone.

        Parameters
        ----------
        heartbeats
            All that were read now, and whether each one's process was found.
        """
        without: dict[HeartbeatKey, tuple[float, int]] = {}
        for heartbeat, found in heartbeats:
            if found:
                continue
            key = key_of(heartbeat)
            time, newer = self._without.get(key, (heartbeat.time, 0))
            without[key] = heartbeat.time, newer + (heartbeat.time > time)
        self._without = without
        return {key for key, (_, newer) in without.items() if newer < _GOES_ON}
