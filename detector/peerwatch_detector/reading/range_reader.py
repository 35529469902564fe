"""What reading ranges is, whoever reads them, and how reading one selection went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.selection import Grid, Selection
from peerwatch_detector.reading.settings import Api
from peerwatch_detector.reading.statistics import ReadingStatistics
from peerwatch_detector.reading.transport.request import RangeResult


@dataclass(frozen=True, slots=True)
class Reading:
    """How reading one selection went.

    Parameters
    ----------
    selection
        What was asked for.
    outcome
        The series, or why there are none.
    api
        How it was read.
    """

    selection: Selection
    outcome: RangeResult | ReadError
    api: Api

    def result(self) -> RangeResult:
        """Return the series.

        Raises
        ------
        ReadError
            If reading them failed.
        """
        if isinstance(self.outcome, ReadError):
            raise self.outcome
        return self.outcome


class RangeReader(Protocol):
    """Delivers metrics of a job on a time grid."""

    @property
    def statistics(self) -> ReadingStatistics:
        """What reading cost so far."""

    def read(
        self,
        selections: Sequence[Selection],
        grid: Grid,
        nodes: Sequence[str] = (),
        deadline: float = math.inf,
    ) -> list[Reading]:
        """Read selections on the same steps, each with an outcome of its own."""
