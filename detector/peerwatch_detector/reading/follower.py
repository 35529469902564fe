"""Follows the metrics of one job: the first read takes the whole range, later ones what is new."""

from __future__ import annotations

from collections.abc import Sequence

from peerwatch_detector.frame import JobFrame
from peerwatch_detector.reading.grid_reader import RangeReader, Reading
from peerwatch_detector.reading.grid_ring import GridRing
from peerwatch_detector.reading.question import Result
from peerwatch_detector.reading.selection import Grid, Selection
from peerwatch_detector.reading.settings import ReadingSettings

_STEP = 1000


class Follower:
    """The last minutes of a job's metrics, brought up to date at each call.

    Parameters
    ----------
    job_id
        The training job.
    reader
        Where ranges come from.
    selections
        The metrics; each has another name.
    history_seconds
        How long a range is kept.
    settings
        How far reads end behind the clock, and how far they overlap.
    """

    def __init__(
        self,
        job_id: str,
        reader: RangeReader,
        selections: Sequence[Selection],
        history_seconds: int,
        settings: ReadingSettings,
    ) -> None:
        self.job_id, self.history_seconds = job_id, history_seconds
        self._reader, self._settings = reader, settings
        self._selections = {one.metric: one for one in selections}
        self.rings = {metric: GridRing(history_seconds + 1, _STEP) for metric in self._selections}
        self.read_until: dict[str, int] = {}

    def update(self, nodes: Sequence[str], now: float) -> dict[str, Reading]:
        """Read what is new of every metric.

        A metric that could not be read keeps what it had, and is read from there the next time.

        Parameters
        ----------
        nodes
            The job's nodes now; the rows of others are dropped.
        now
            Unix time.

        Returns
        -------
        dict[str, Reading]
            How it went, by metric.
        """
        end = int(now - self._settings.lag_seconds) * 1000
        first = end - self.history_seconds * 1000
        by_start: dict[int, list[Selection]] = {}
        for metric, selection in self._selections.items():
            overlap = round(self._settings.overlap_seconds) * 1000
            start = max(first, self.read_until.get(metric, first) - overlap)
            # A clock that went back reads all again.
            by_start.setdefault(start if start <= end else first, []).append(selection)
        readings: dict[str, Reading] = {}
        for start, selections in by_start.items():
            for reading in self._reader.read(selections, Grid(start, end, _STEP), nodes):
                self._take(reading, end)
                readings[reading.selection.metric] = reading
        for ring in self.rings.values():
            ring.keep(nodes)
        return readings

    def _take(self, reading: Reading, end: int) -> None:
        if isinstance(reading.outcome, Result):
            metric = reading.selection.metric
            self.rings[metric].write(reading.outcome.block)
            self.read_until[metric] = end

    def frame(self, metric: str, nodes: Sequence[str], start: float, end: float) -> JobFrame:
        """Return a metric between two Unix times, ends included; what was not read is NaN."""
        grid = Grid.of_seconds(start, end, _STEP / 1000)
        return self.rings[metric].frame(self.job_id, metric, nodes, grid)
