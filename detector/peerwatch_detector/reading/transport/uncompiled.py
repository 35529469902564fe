"""Reads a response of the query API without compiled code: json and numpy, for where numba fails.

It gives what the compiled decoder gives, some twenty times slower and with many times the memory,
which is why fewer samples are asked for at once.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.decode.block import Block
from peerwatch_detector.reading.decode.grid_writer import (
    GPU,
    LABEL_BYTES,
    LABELS,
    NODE,
    ROWS,
    SAMPLES,
    GridWriter,
    with_capacity,
)
from peerwatch_detector.reading.selection import Grid
from peerwatch_detector.reading.transport.body import read_all
from peerwatch_detector.reading.transport.connection import Response
from peerwatch_detector.reading.transport.envelope import data_of
from peerwatch_detector.reading.transport.request import RangeRequest, RangeResult

# Most samples of one request: as Python objects they take some 200 bytes each, 200 MB in all.
MAX_UNCOMPILED_SAMPLES = 1_000_000


def uncompiled_matrix(response: Response, request: RangeRequest, age: int) -> RangeResult:
    """Decode a matrix.

    Parameters
    ----------
    response
        Of ``query`` or ``query_range``, its head checked.
    request
        What was asked.
    age
        How long a sample stands, in ms.

    Raises
    ------
    ReadError
        If the body breaks off, or is no matrix.
    """
    data, annotations = data_of(response.url, read_all(response.body), "matrix")
    try:
        block = _block(data["result"], request, age)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ReadError(
            "malformed", f"{response.url}: a matrix of unexpected form: {error!r}."
        ) from error
    return RangeResult(block, annotations, response.body.read_bytes)


def _block(result: list[dict[str, Any]], request: RangeRequest, age: int) -> Block:
    writer = with_capacity(request.writer(age), len(result), 0)
    levels = np.empty((len(result), request.grid.steps))
    for row, series in enumerate(result):
        writer = _with_labels(writer, row, series["metric"], request)
        pairs = np.array([(float(time), float(value)) for time, value in series["values"]])
        times, numbers = pairs.reshape(-1, 2).T
        kept = ~(np.isnan(numbers) & request.skips_nan)
        levels[row] = _on_steps(np.rint(times[kept] * 1000), numbers[kept], request.grid, age)
        writer.counts[SAMPLES] += int(kept.sum())
    values = _rates(levels, request) if request.window else levels.astype(np.float32)
    return request.folded(writer, values, escaped=True)


def _with_labels(
    writer: GridWriter, row: int, metric: dict[str, str], request: RangeRequest
) -> GridWriter:
    """Note the labels of a row where ``layout_of`` looks for them."""
    selection, used = request.part.selection, int(writer.counts[LABEL_BYTES])
    texts = [json.dumps(metric).encode()]
    texts += [
        json.dumps(metric[name]).encode()[1:-1] if name in metric else b""
        for name in (selection.node_label, selection.gpu_label)
    ]
    needed = used + sum(len(text) for text in texts)
    if needed > len(writer.labels):
        writer = with_capacity(writer, 0, 2 * needed)
    for column, text in zip((LABELS, NODE, GPU), texts, strict=True):
        writer.labels[used : used + len(text)] = np.frombuffer(text, np.uint8)
        writer.spans[row, column : column + 2] = (used, used + len(text)) if text else (-1, -1)
        used += len(text)
    writer.counts[LABEL_BYTES], writer.counts[ROWS] = used, row + 1
    return writer


def _on_steps(
    times: NDArray[np.float64], numbers: NDArray[np.float64], grid: Grid, age: int
) -> NDArray[np.float64]:
    """Return at each step the newest value at or before it; NaN if too old or not finite."""
    if not len(times):
        return np.full(grid.steps, np.nan)
    steps = np.arange(grid.start, grid.end + 1, grid.step)
    newest = np.searchsorted(times, steps, side="right") - 1
    found = numbers[newest]
    with np.errstate(over="ignore"):
        good = np.isfinite(found.astype(np.float32))
    return np.where((newest >= 0) & (steps - times[newest] <= age) & good, found, np.nan)


def _rates(levels: NDArray[np.float64], request: RangeRequest) -> NDArray[np.float32]:
    """Return rates per second over the window; a counter that fell began again at 0."""
    window, steps = request.window, levels.shape[1]
    known = np.isfinite(levels)
    # The last step with a value before each one; a row's first has none.
    places = np.where(known, np.arange(steps), -1)
    before = np.concatenate(
        [np.full((len(levels), 1), -1), np.maximum.accumulate(places, axis=1)[:, :-1]], axis=1
    )
    earlier = np.take_along_axis(levels, np.maximum(before, 0), axis=1)
    gained = np.where(levels >= earlier, levels - earlier, levels)
    gained = np.where(known & (before >= 0), gained, 0.0)
    sums = sliding_window_view(gained, window, axis=1)[:, 1:].sum(axis=-1)
    both = known[:, window:] & known[:, :-window]
    seconds = window * request.part.grid.step / 1000
    return np.where(both, sums / seconds, np.nan).astype(np.float32)
