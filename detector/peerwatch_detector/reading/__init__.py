"""Reading ranges: from any server with the query API onto a time grid of float32.

In the order of the data's path: a ``Selection`` on a ``Grid`` becomes a ``RangeRequest`` (apis), a
``Connection`` carries it (connection, body, stream), a decoder reads the response (frames and xor,
matrix, export_lines) and writes every sample to its step (grid_writer), the rows become a ``Block``
(block), and the newest blocks a ring (grid_ring, follower).
"""

from peerwatch_detector.reading.decode.block import Block
from peerwatch_detector.reading.follower import Follower
from peerwatch_detector.reading.grid_reader import GridReader
from peerwatch_detector.reading.grid_ring import GridRing
from peerwatch_detector.reading.range_reader import RangeReader, Reading
from peerwatch_detector.reading.selection import Grid, Matcher, Selection
from peerwatch_detector.reading.settings import ReadingSettings
from peerwatch_detector.reading.statistics import ReadingStatistics

__all__ = [
    "Block",
    "Follower",
    "Grid",
    "GridReader",
    "GridRing",
    "Matcher",
    "RangeReader",
    "Reading",
    "ReadingSettings",
    "ReadingStatistics",
    "Selection",
]
