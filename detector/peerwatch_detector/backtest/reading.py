"""Reads the metrics of a long range, some at a time, so that a command can show how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from peerwatch_detector.config import DetectorConfig, ReadMetric
from peerwatch_detector.reading import Grid, Reading
from peerwatch_detector.reading.reader import Reader, selection_of

# Called with how much more work is done.
Advance = Callable[[int], None]


def unshown(_count: int) -> None:
    """Show nothing: the progress of who does not want any."""


def read_metrics(
    reader: Reader,
    config: DetectorConfig,
    job_id: str,
    grid: Grid,
    nodes: Sequence[str],
    advance: Advance = unshown,
) -> Iterator[tuple[ReadMetric, Reading]]:
    """Yield every metric that is read of a job with what was read of it.

    Parameters
    ----------
    reader
        Where they are read, as many at a time as it has connections.
    config
        Which metrics.
    job_id, grid, nodes
        Of which job, when, and of which nodes, as far as they are known.
    advance
        Called with the number of metrics after each read.
    """
    metrics = config.read_metrics()
    count = config.prometheus.reading.connections
    for start in range(0, len(metrics), count):
        part = metrics[start : start + count]
        selections = [selection_of(metric, job_id, config) for metric in part]
        yield from zip(part, reader.read(selections, grid, nodes), strict=True)
        advance(len(part))
