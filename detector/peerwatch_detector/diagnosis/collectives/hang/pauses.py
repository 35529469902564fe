"""Since when a job waits for whom, and from how long a wait it has recovered before."""

from __future__ import annotations

from collections.abc import Hashable

# Process groups come and go while a job runs; of so many waits the length is remembered. Chosen:
# some for each group of a large job, in a few hundred kilobytes.
_MOST_REMEMBERED = 1024


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
            # Who recovered last stands last.
            self._longest[key] = max(waited, self._longest.pop(key, 0.0))
        while len(self._longest) > _MOST_REMEMBERED:
            del self._longest[next(iter(self._longest))]

    def end(self) -> None:
        """Take in that the job gets on."""
        self.update(float("inf"))
