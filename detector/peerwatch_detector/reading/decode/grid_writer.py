"""Samples on their way to the time grid: where every format's decoder puts what it finds.

A step has the value of the newest sample at or before it, if that sample is not older than the
greatest age; steps without one are NaN, and so are those whose newest sample is NaN or infinite.
That is what ``last_over_time(series[age])`` gives, so all APIs agree. Markers of
staleness are passed over, because range selectors hide them. Of two samples of a series with the
same time the first counts, and a sample older than the one before it is dropped.

Rows are series in the order in which they arrive.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import compiled
from peerwatch_detector.reading.selection import Grid

Bytes = NDArray[np.uint8]
_Number = TypeVar("_Number", bound=np.generic)

# Indices of ``GridWriter.counts``.
ROWS, LABEL_BYTES, SAMPLES = 0, 1, 2
# Columns of ``GridWriter.spans``: where in the labels' bytes a row's labels, node and GPU lie.
LABELS, NODE, GPU = 0, 2, 4

# Zeros that every decoder wants behind the bytes it gets: more than the 48 of any of them.
PADDING = 64
# Samples that are written at once: as many as a chunk can have, whose count has 16 bits.
BATCH = 1 << 16

# Times in ms before and after all that a series may have.
_NEVER = -(1 << 60)
_ALWAYS = 1 << 60


class GridWriter(NamedTuple):
    """The grid being filled; a named tuple of arrays, as compiled functions take it.

    Parameters
    ----------
    values
        Shape (n_rows, n_steps). Of counters the increase since the last step with a value.
    cursor
        First step of the row that is not decided, shape (n_rows,).
    newest, value
        Time in ms and value of the row's last sample.
    before
        Counters: value at the row's last step with one.
    times, numbers
        Samples on their way to ``write_samples``, shape (BATCH,).
    labels, spans
        Bytes of all label sets, and where each row's lie, shape (n_rows, 6).
    counts
        Rows, bytes of labels and samples so far.
    first, step, age
        First step, width of a step and greatest age, in ms.
    counter
        Whether increases are wanted.
    skips_nan
        Whether NaN is no sample but the end of a series: VictoriaMetrics keeps no other NaN.
    node_label, gpu_label
        LabelTexts of the labels to find.
    """

    values: NDArray[np.float32]
    cursor: NDArray[np.int64]
    newest: NDArray[np.int64]
    value: NDArray[np.float64]
    before: NDArray[np.float64]
    times: NDArray[np.int64]
    numbers: NDArray[np.float64]
    labels: Bytes
    spans: NDArray[np.int64]
    counts: NDArray[np.int64]
    first: int
    step: int
    age: int
    counter: bool
    skips_nan: bool
    node_label: Bytes
    gpu_label: Bytes


def new_grid_writer(
    grid: Grid,
    age: int,
    *,
    counter: bool,
    labels: tuple[str, str],
    rows: int,
    skips_nan: bool = False,
) -> GridWriter:
    """Return an empty grid with room for some rows.

    Parameters
    ----------
    grid
        The steps.
    age
        Greatest age of a sample in ms.
    counter
        Whether increases are wanted instead of values.
    labels
        LabelTexts of the labels of the node and of the GPU.
    rows
        How many series to expect; more do no harm.
    skips_nan
        Whether NaN is no sample.
    """
    node_label, gpu_label = (np.frombuffer(name.encode(), np.uint8) for name in labels)
    return GridWriter(
        np.empty((rows, grid.steps), np.float32),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows, np.float64),
        np.empty(rows, np.float64),
        np.empty(BATCH, np.int64),
        np.empty(BATCH, np.float64),
        np.empty(rows * 256 + 4096, np.uint8),
        np.empty((rows, 6), np.int64),
        np.zeros(3, np.int64),
        grid.start,
        grid.step,
        age,
        counter,
        skips_nan,
        node_label,
        gpu_label,
    )


def with_capacity(writer: GridWriter, rows: int, label_bytes: int) -> GridWriter:
    """Return the same with room for so many rows and bytes of labels, if that is more."""
    return writer._replace(
        values=_grown(writer.values, rows),
        cursor=_grown(writer.cursor, rows),
        newest=_grown(writer.newest, rows),
        value=_grown(writer.value, rows),
        before=_grown(writer.before, rows),
        spans=_grown(writer.spans, rows),
        labels=_grown(writer.labels, label_bytes),
    )


def _grown(old: NDArray[_Number], length: int) -> NDArray[_Number]:
    if len(old) >= length:
        return old
    new = np.empty((length, *old.shape[1:]), old.dtype)
    new[: len(old)] = old
    return new


@compiled
def open_row(writer: GridWriter, text: Bytes, spans: NDArray[np.int64]) -> int:
    """Begin a series, or go on with the one before if its labels are the same.

    Parameters
    ----------
    text
        Where the labels stand.
    spans
        Begin and end of labels, node and GPU in it; -1 where there is none. Shape (6,).

    Returns
    -------
    int
        The row, or -1 if there is no room.
    """
    row: int = writer.counts[ROWS]
    used = writer.counts[LABEL_BYTES]
    begin, length = spans[LABELS], spans[LABELS + 1] - spans[LABELS]
    if row > 0 and _same(writer, row - 1, text, begin, length):
        return row - 1
    if row >= len(writer.cursor) or used + length > len(writer.labels):
        return -1
    writer.labels[used : used + length] = text[begin : begin + length]
    for k in range(6):
        writer.spans[row, k] = spans[k] if spans[k] < 0 else spans[k] - begin + used
    writer.cursor[row] = 0
    writer.newest[row] = _NEVER
    writer.value[row] = np.nan
    writer.before[row] = np.nan
    writer.counts[ROWS] = row + 1
    writer.counts[LABEL_BYTES] = used + length
    return row


@compiled
def _same(writer: GridWriter, row: int, text: Bytes, begin: int, length: int) -> bool:
    start = writer.spans[row, LABELS]
    if writer.spans[row, LABELS + 1] - start != length:
        return False
    # All of them, whatever the first says: so they are compared many at a time.
    here, there = text[begin : begin + length], writer.labels[start : start + length]
    different = 0
    for k in range(length):
        different += here[k] != there[k]
    return different == 0


@compiled
def write_samples(writer: GridWriter, row: int, count: int) -> None:
    """Write the samples that stand in ``times`` and ``numbers``: decide the steps before each."""
    # All in local names: the arrays of a tuple are counted at every use otherwise.
    times, numbers, values = writer.times, writer.numbers, writer.values[row]
    first, width, age, counter = writer.first, writer.step, writer.age, writer.counter
    skips_nan = writer.skips_nan
    newest, value, before = writer.newest[row], writer.value[row], writer.before[row]
    step, steps, taken = writer.cursor[row], len(values), 0
    for k in range(count):
        time = times[k]
        if time <= newest or (skips_nan and np.isnan(numbers[k])):
            continue
        taken += 1
        while step < steps and first + step * width < time:
            found = np.float32(value)
            if first + step * width - newest > age or not np.isfinite(found):
                values[step] = np.nan
            elif not counter:
                values[step] = found
            else:
                if np.isnan(before):
                    values[step] = 0
                else:
                    values[step] = value - before if value >= before else value
                before = value
            step += 1
        newest, value = time, numbers[k]
    writer.newest[row], writer.value[row], writer.before[row] = newest, value, before
    writer.cursor[row] = step
    writer.counts[SAMPLES] += taken


@compiled
def close_rows(writer: GridWriter) -> None:
    """Decide what no later sample will."""
    samples = writer.counts[SAMPLES]
    for row in range(writer.counts[ROWS]):
        writer.times[0], writer.numbers[0] = _ALWAYS, 0.0
        write_samples(writer, row, 1)
    writer.counts[SAMPLES] = samples


@compiled
def rates(
    increases: NDArray[np.float32], window: int, seconds: float, leading: int
) -> NDArray[np.float32]:
    """Return rates per second over a window of steps, from the increases at every step.

    Parameters
    ----------
    increases
        Shape (n_rows, n_steps); NaN = the counter is missing.
    window, seconds
        Steps of the window, and its length.
    leading
        Steps at the beginning that are not wanted; at least ``window``.
    """
    rows, steps = increases.shape
    result = np.empty((rows, steps - leading), np.float32)
    for row in range(rows):
        for step in range(leading, steps):
            total = 0.0
            for k in range(step - window + 1, step + 1):
                if not np.isnan(increases[row, k]):
                    total += increases[row, k]
            both = not (np.isnan(increases[row, step]) or np.isnan(increases[row, step - window]))
            result[row, step - leading] = total / seconds if both else np.nan
    return result
