"""Which jobs were here lately, and which ranks were started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_exporter.sources.logs.targets import Targets


class JobMemory:
    """Remembers the jobs of this node for a while.

    Parameters
    ----------
    forget_after_seconds
        How long a job counts that is gone.
    monotonic
        Seconds that only rise.
    """

    def __init__(self, forget_after_seconds: float, monotonic: Callable[[], float]) -> None:
        self.forget_after_seconds = forget_after_seconds
        self._monotonic = monotonic
        self._seen: dict[str, float] = {}
        self._pids: dict[tuple[str, int], int] = {}

    def update(self, targets: Targets) -> list[str]:
        """Note the jobs that are here; return those that count no more."""
        now = self._monotonic()
        for job_id in targets.job_ids:
            self._seen[job_id] = now
        forgotten = [
            job_id for job_id, seen in self._seen.items() if now - seen > self.forget_after_seconds
        ]
        for job_id in forgotten:
            del self._seen[job_id]
        self._pids = {key: pid for key, pid in self._pids.items() if key[0] in self._seen}
        return forgotten

    def restarted(self, targets: Targets) -> list[tuple[str, int]]:
        """Return job and rank of those whose process is another one than before."""
        again = []
        for target in targets.ranks:
            key = target.job_id, target.rank
            if self._pids.setdefault(key, target.pid) != target.pid:
                self._pids[key] = target.pid
                again.append(key)
        return again
