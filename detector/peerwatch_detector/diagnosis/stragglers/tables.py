"""Reads a trace of operations from a table: CSV, or parquet where pyarrow is installed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from peerwatch_common.errors import ConfigError
from peerwatch_common.installation import install_advice
from peerwatch_detector.diagnosis.stragglers.columns import (
    OPTIONAL,
    REQUIRED,
    Columns,
    missing_columns,
)
from peerwatch_detector.errors import TraceError

# Rows that are read before they become arrays: some 20 MB as text.
_PART = 65_536


def read_csv(lines: Iterable[str], path: Path, columns: Columns) -> None:
    """Read a table with a line of column names.

    Raises
    ------
    TraceError
        If it is no such table, or a value in it cannot be.
    """
    reader = csv.reader(lines)
    try:
        names = [name.strip() for name in next(reader, [])]
        if set(REQUIRED) - set(names):
            raise missing_columns(path, names)
        places = [(name, names.index(name)) for name in (*REQUIRED, *OPTIONAL) if name in names]
        first = 1
        while rows := list(islice(reader, _PART)):
            kept = [row for row in rows if row]
            _check_widths(path, kept, len(names), first)
            if kept:
                by_column = list(zip(*kept, strict=True))
                columns.add({name: by_column[place] for name, place in places})
            first += len(kept)
    except csv.Error as error:
        raise TraceError(f"{path}, line {reader.line_num}: is no CSV: {error}.") from error


def read_parquet(path: Path, columns: Columns, advance: Callable[[int], None]) -> None:
    """Read a parquet file.

    Raises
    ------
    ConfigError
        If pyarrow is not installed.
    TraceError
        If it is broken, or a value in it cannot be.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra of its own
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            [
                f"{path}: reading parquet needs pyarrow, which is not installed. "
                f"{install_advice('detector,parquet')} Or convert the table to CSV."
            ]
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            found = file.schema_arrow.names
            if set(REQUIRED) - set(found):
                raise missing_columns(path, found)
            wanted = [name for name in (*REQUIRED, *OPTIONAL) if name in found]
            total = max(file.metadata.num_rows, 1)
            done, size = 0, path.stat().st_size
            for batch in file.iter_batches(_PART, columns=wanted):
                columns.add({name: _values(batch.column(name)) for name in wanted})
                before, done = done, done + batch.num_rows
                advance(size * done // total - size * before // total)
    except (pa.ArrowException, OSError) as error:
        text = str(error).partition("\n")[0]
        raise TraceError(f"{path}: cannot be read as parquet: {text}") from error


def _values(column: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - pyarrow has no types
    values: np.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
    return values


def _check_widths(path: Path, rows: Sequence[list[str]], width: int, first: int) -> None:
    if set(map(len, rows)) <= {width}:
        return
    number, row = next((first + n, row) for n, row in enumerate(rows) if len(row) != width)
    raise TraceError(
        f"{path}, row {number:,}: has {len(row)} fields where the first line names {width}; "
        "it may have been cut off."
    )
