"""A fake server's answers to one load, and what must be read from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from detector.reading.chunk_writer import chunk, frame, series
from peerwatch_detector.reading import (
    Grid,
    GridReader,
    Matcher,
    Reading,
    ReadingSettings,
    Selection,
)

LOAD = Selection("load", "node_load", (Matcher("job_id", "=", "j"),))


GRID = Grid(1000, 20_000)


ONE = {"metric": {"node": "a"}, "values": [[1, "1.5"], [9, "2.5"]]}


STREAMED = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"


LINES = b'{"metric":{"node":"a"},"values":[1.5,2.5],"timestamps":[1000,9000]}\n'


FRAMES = frame(series({"node": "a"}, [chunk([(1000, 1.5), (9000, 2.5)])]))


EXPECTED = [1.5] * 6 + [np.nan] * 2 + [2.5] * 6 + [np.nan] * 6


def read(
    url: str,
    *selections: Selection,
    nodes: tuple[str, ...] = ("a",),
    grid: Grid = GRID,
    **settings: Any,
) -> tuple[list[Reading], GridReader]:
    chosen = ReadingSettings(url, **{"timeout_seconds": 60, "max_age_seconds": 5, **settings})
    with GridReader(chosen) as reader:
        return reader.read(selections or [LOAD], grid, nodes), reader


def values(reading: Reading) -> Any:
    return reading.result().block.frame("j", "load", ["a"]).values[0]
