"""The heat map of a job: how long its ranks take for the segments of a step, against one another.

It is read when somebody asks for it, and kept for a few seconds: the view is loaded again and again
by everybody who has it open.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from peerwatch_detector.diagnosis.segments import QUERIES, SegmentTimes, segment_times
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.instant_reader import Instants
from peerwatch_detector.units import quantity
from peerwatch_detector.web.kept import Kept

# Rows: of larger jobs those that differ most. Chosen: eight nodes of eight GPUs.
MOST_RANKS = 64
# Half of the ten seconds after which an open view asks again (refresh.js).
_KEPT_SECONDS = 5.0
# Colours go from 1 to 1.5 times the median, as in the published heat maps of stragglers (Lin et
# al., "Understanding Stragglers in Large Model Training", OSDI 2025); below 1 they stay cold.
_HOTTEST, _SHADES = 1.5, 5
# What is shorter than this share of a step says nothing as a ratio. Chosen: twice as long, it costs
# the step a hundredth, less than steps differ.
_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank's time in one segment: text, ratio to the median, and colour 0 to 5."""

    time: str
    ratio: str
    shade: int


@dataclass(frozen=True, slots=True)
class Row:
    """One rank."""

    rank: int
    node: str
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A job's heat map as the web UI shows it; ``note`` says why there is none."""

    segments: tuple[str, ...] = ()
    medians: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    left_out: int = 0
    note: str = ""


class HeatMaps:
    """Reads and keeps the heat maps that were asked for.

    Parameters
    ----------
    instants
        Where the series are read; None: evidence is switched off.
    clock
        Seconds that only rise.
    """

    def __init__(
        self, instants: Instants | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kept = None
        if instants is not None:
            self._kept = Kept(partial(_read, instants), _KEPT_SECONDS, clock)

    def get(self, job_id: str) -> HeatMap:
        """Return the heat map of a job."""
        if self._kept is None:
            return HeatMap(note="Not read: diagnosis.enabled is false.")
        return self._kept.get(job_id)


def _read(instants: Instants, job_id: str) -> HeatMap:
    queries = {name: promql.job_query(query, job_id) for name, query in QUERIES.items()}
    try:
        answers = instants.read(queries)
    except ReadError as error:
        return HeatMap(note=str(error))
    seconds, steps = answers["seconds"], answers["steps"]
    for answer in (seconds, steps):
        if isinstance(answer, ReadError):
            return HeatMap(note=str(answer))
    assert not isinstance(seconds, ReadError)
    assert not isinstance(steps, ReadError)
    times = segment_times(seconds, steps)
    if times is None:
        return HeatMap(
            note="No rank of this job has told of its steps in the last two minutes. Spans are "
            "kept where the job runs with PEERWATCH_SPANS=1."
        )
    return draw(times)


def draw(times: SegmentTimes) -> HeatMap:
    """Return the heat map of ranks and segments."""
    shown = times.farthest(MOST_RANKS)
    median, ratios = times.median, shown.ratios
    step = median[times.segments.index("step")] if "step" in times.segments else np.nan
    rows = tuple(
        Row(
            rank,
            node,
            [
                _cell(float(second), float(ratio), float(step))
                for second, ratio in zip(shown.seconds[place], ratios[place], strict=True)
            ],
        )
        for place, (rank, node) in enumerate(shown.ranks)
    )
    return HeatMap(
        times.segments,
        tuple(quantity(float(value), "seconds") for value in median),
        rows,
        len(times.ranks) - len(rows),
    )


def _cell(seconds: float, ratio: float, step: float) -> Cell:
    if np.isnan(seconds):
        return Cell("-", "", 0)
    text = quantity(seconds, "seconds")
    if np.isnan(ratio) or (step > 0 and seconds < _LEAST_SHARE * step):
        return Cell(text, "", 0)
    share = (min(ratio, _HOTTEST) - 1) / (_HOTTEST - 1)
    return Cell(text, f"{ratio:.2f}", max(0, round(share * _SHADES)))
