"""Sums over processes that never fall, although processes end and take their counters along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_exporter.sources.host.processes import ProcessKey

_NOTHING: Mapping[str, float] = {}


class MonotonicSum:
    """Adds up what each process's counters grew by.

    Prometheus takes a counter that falls for a restart of the exporter and would count the whole
    remainder again, so what an ended process had used must stay in the sum.
    """

    def __init__(self) -> None:
        self._last: Mapping[ProcessKey, Mapping[str, float]] = {}
        self._totals: dict[str, float] = {}

    def update(self, present: Mapping[ProcessKey, Mapping[str, float]]) -> dict[str, float]:
        """Take the counters of the processes that run now; return the sum of each counter.

        Parameters
        ----------
        present
            Counters by name for each process; a process seen for the first time counts with all
            it has used since it started. Nobody may change them afterwards.
        """
        totals = self._totals
        for key, counters in present.items():
            last = self._last.get(key, _NOTHING)
            for name, value in counters.items():
                grown = max(0.0, value - last.get(name, 0.0))
                totals[name] = totals.get(name, 0.0) + grown
        self._last = present
        return dict(totals)


class InheritedSum:
    """Adds up what processes and their children grew by, where the kernel hands counters on.

    A process takes over CPU time and storage traffic of each child it has waited for. Its own
    counter then rises by what the child had counted already: only the sum of all of them shows
    what is new. After a restart of the exporter that sum goes on where it was.
    """

    def __init__(self) -> None:
        self._last: Mapping[ProcessKey, Mapping[str, float]] = {}
        self._sums: dict[str, float] = {}
        self._fell: set[str] = set()
        self._totals: dict[str, float] = {}

    def update(self, present: Mapping[ProcessKey, Mapping[str, float]]) -> dict[str, float]:
        """Take the counters of the processes that run now; return the sum of each counter.

        Parameters
        ----------
        present
            As for ``MonotonicSum``, each process read before its children. What is not known of a
            process just now stays what it was. Where one ends that nobody here waits for, what the
            others do until the next call is not seen.
        """
        self._last = {
            key: {**self._last.get(key, _NOTHING), **read} for key, read in present.items()
        }
        for name, after in _sums(self._last).items():
            before = self._sums.get(name, 0.0)
            # A child is gone, and its parent was read a moment before it took the counters over.
            if after < before and name not in self._fell:
                self._fell.add(name)
                continue
            self._fell.discard(name)
            self._sums[name] = after
            self._totals[name] = self._totals.get(name, 0.0) + max(0.0, after - before)
        return dict(self._totals)


def _sums(counters: Mapping[ProcessKey, Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for read in counters.values():
        for name, value in read.items():
            sums[name] = sums.get(name, 0.0) + value
    return sums
