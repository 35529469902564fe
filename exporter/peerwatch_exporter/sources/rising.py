"""Sums over processes that never fall, although processes end and take their counters along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_exporter.sources.processes import ProcessKey

_NOTHING: Mapping[str, float] = {}


class RisingSum:
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
