"""Sums over processes that never fall, although processes end and take their counters along."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_exporter.sources.processes import ProcessKey


class RisingSum:
    """Adds up what each process's counters grew by.

    Prometheus takes a counter that falls for a restart of the exporter and would count the whole
    remainder again, so what an ended process had used must stay in the sum.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[ProcessKey, str], float] = {}
        self._totals: dict[str, float] = {}

    def update(self, present: Mapping[ProcessKey, Mapping[str, float]]) -> dict[str, float]:
        """Take the counters of the processes that run now; return the sum of each counter.

        Parameters
        ----------
        present
            Counters by name for each process; a process seen for the first time counts with all
            it has used since it started.
        """
        last: dict[tuple[ProcessKey, str], float] = {}
        for key, counters in present.items():
            for name, value in counters.items():
                grown = max(0.0, value - self._last.get((key, name), 0.0))
                self._totals[name] = self._totals.get(name, 0.0) + grown
                last[key, name] = value
        self._last = last
        return dict(self._totals)
