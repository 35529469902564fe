"""What else makes ranks wait: pauses that a job has had before, and work beside training."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from peerwatch_detector.diagnosis.collectives.series import Activity

# Bytes per second to or from storage from which on a rank saves or loads something large.
_STORAGE_RATE = 1e6


class Pauses:
    """Remembers since when the job waits for whom, and from how long a wait it has recovered."""

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}
        self._last: dict[Hashable, float] = {}
        self._longest: dict[Hashable, float] = {}
        self._furthest = 0

    def check(self, furthest: int) -> None:
        """Forget everything if the job was started again.

        Parameters
        ----------
        furthest
            Number of the newest collective of the busiest group; it begins anew with the job.
        """
        if furthest < self._furthest:
            for memory in (self._since, self._last, self._longest):
                memory.clear()
        self._furthest = furthest

    def seen(self, key: Hashable, since: float, now: float) -> tuple[float, float]:
        """Take in that the job waits for something.

        Parameters
        ----------
        key
            What it waits for.
        since
            Unix time at which it began, as far as is known now.
        now
            Unix time.

        Returns
        -------
        tuple
            Unix time at which it began, and the longest wait in seconds that it recovered from.
        """
        begun = min(since, self._since.get(key, since))
        self._since[key], self._last[key] = begun, now
        return begun, self._longest.get(key, 0.0)

    def update(self, now: float) -> None:
        """Take in that all that was not seen at ``now`` has ended."""
        for key in [key for key, last in self._last.items() if last < now]:
            waited = self._last.pop(key) - self._since.pop(key)
            self._longest[key] = max(waited, self._longest.get(key, 0.0))

    def end(self) -> None:
        """Take in that the job gets on."""
        self.update(float("inf"))


class Occupation:
    """Remembers what ranks did between two readings beside collectives."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, Activity]] = {}
        self._text: dict[int, str] = {}

    def update(self, activity: Mapping[int, Activity], read_at: Mapping[int, float]) -> None:
        """Take in the counts of each rank, and when they were read; equal times say nothing new."""
        for rank, counts in activity.items():
            time = read_at.get(rank)
            before = self._before.get(rank)
            if time is None or (before is not None and time <= before[0]):
                continue
            self._before[rank] = (time, counts)
            self._text[rank] = (
                "" if before is None else _describe(time - before[0], before[1], counts)
            )

    def of(self, rank: int) -> str:
        """Return what a rank does, for a sentence; empty if nothing that is known."""
        return self._text.get(rank, "")


def _describe(seconds: float, before: Activity, after: Activity) -> str:
    rate = (after.storage_bytes - before.storage_bytes) / seconds
    if rate >= _STORAGE_RATE:
        return f"it moves {rate / 1e6:.0f} MB/s to or from storage"
    if after.spans > before.spans:
        return "its own work goes on, as in an evaluation"
    return ""
