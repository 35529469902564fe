"""Columns of a trace, checked and gathered part by part as a file is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.stragglers.operations import CODES, TABLE_TYPES, Trace
from peerwatch_detector.errors import TraceError

REQUIRED = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
# Where a stage holds several parts of the model; -1, as in a row to which they do not apply.
OPTIONAL = ("mc", "gmc")
# 160 bytes each while they are analysed: 1.6 GB.
MOST_OPERATIONS = 10_000_000
# An int32, and few enough bits for several of them to be one key.
_MOST = 2**20 - 1
_KINDS: dict[str, int] = {kind.name: CODES[kind.name] for kind in TABLE_TYPES}
_LIMITS = {"step": (0, 2**31 - 1), "mc": (-1, _MOST), "gmc": (-1, _MOST)}


class Columns:
    """Gathers the rows of a table.

    Parameters
    ----------
    path
        The file, for messages.
    steps
        First and last step to keep; None: all.
    """

    def __init__(self, path: Path, steps: tuple[int, int] | None) -> None:
        self._path = path
        self._steps = steps
        self._parts: list[dict[str, NDArray[np.int32] | NDArray[np.float64]]] = []
        self._rows = self._kept = 0

    def add(self, part: Mapping[str, Sequence[Any] | NDArray[np.generic]]) -> None:
        """Add rows.

        Parameters
        ----------
        part
            By column, of length rows: numbers, or text that is to be one; ``optype`` as text.

        Raises
        ------
        TraceError
            If a value cannot be; it names row and value. Or if there are too many rows.
        """
        numbers = {
            name: self._number(name, values) for name, values in part.items() if name != "optype"
        }
        rows = len(numbers["step"])
        kinds = self._kinds(part["optype"])
        whole: dict[str, NDArray[np.int32] | NDArray[np.float64]] = {"optype": kinds}
        for name, values in numbers.items():
            whole[name] = (
                self._time(name, values)
                if name in ("start_ts", "duration")
                else self._whole(name, values)
            )
        self._rows += rows
        if self._steps is not None:
            first, last = self._steps
            kept = (whole["step"] >= first) & (whole["step"] <= last)
            whole = {name: values[kept] for name, values in whole.items()}
        self._kept += len(whole["step"])
        if self._kept > MOST_OPERATIONS:
            raise TraceError(
                f"{self._path}: more than {MOST_OPERATIONS:,} operations, which is the most that "
                "is analysed at a time; choose some steps with --steps FIRST-LAST."
            )
        self._parts.append(whole)

    def trace(self) -> Trace:
        """Return all rows as a trace.

        Raises
        ------
        TraceError
            If there are none.
        """
        if not self._rows:
            raise TraceError(f"{self._path}: has no rows; a trace has a row for each operation.")
        if not self._kept:
            first, last = self._steps or (0, 0)
            raise TraceError(
                f"{self._path}: none of its {self._rows:,} operations is in the steps {first} to "
                f"{last} (--steps)."
            )
        joined = {}
        for name in tuple(self._parts[0]):
            joined[name] = np.concatenate([part.pop(name) for part in self._parts])
        none = np.full(self._kept, -1, dtype=np.int32)
        return Trace(
            joined["step"],
            joined["dp_rank"],
            joined["stage"],
            joined["rank"],
            joined["optype"],
            joined["start_ts"],
            joined["duration"],
            joined["seq_id"],
            joined.get("mc", none),
            joined.get("gmc", none),
            none,
        )

    def _number(
        self, name: str, values: Sequence[Any] | NDArray[np.generic]
    ) -> NDArray[np.float64]:
        """Return a column as numbers; a float holds every whole number that is allowed."""
        try:
            if isinstance(values, np.ndarray):
                return values.astype(np.float64)
            if name in OPTIONAL:
                # As tables write what they lack.
                values = ["nan" if value == "" else value for value in values]
            # Twice as fast as an array of text.
            return np.fromiter(map(float, values), dtype=np.float64, count=len(values))
        except (ValueError, TypeError):
            for row, value in enumerate(values):
                try:
                    float(value)
                except (ValueError, TypeError):
                    raise self._wrong(row, name, value, "it must be a number") from None
            raise

    def _time(self, name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
        bad = ~np.isfinite(values)
        if bad.any():
            raise self._wrong(int(np.argmax(bad)), name, values, "it must be a number of seconds")
        if name == "duration" and (values < 0).any():
            row = int(np.argmax(values < 0))
            raise self._wrong(row, name, values, "it must be 0 s or more")
        return values

    def _whole(self, name: str, values: NDArray[np.float64]) -> NDArray[np.int32]:
        low, high = _LIMITS.get(name, (0, _MOST))
        with np.errstate(invalid="ignore"):
            bad = ~((values >= low) & (values <= high) & (values == np.floor(values)))
        if name in OPTIONAL:
            # Missing in rows to which it does not apply.
            bad &= ~np.isnan(values)
            values = np.where(np.isnan(values), -1, values)
        if bad.any():
            row = int(np.argmax(bad))
            raise self._wrong(row, name, values, f"it must be a whole number from {low} to {high}")
        return values.astype(np.int32)

    def _kinds(self, names: Sequence[Any] | NDArray[np.generic]) -> NDArray[np.int32]:
        try:
            return np.fromiter(map(_KINDS.__getitem__, names), dtype=np.int32, count=len(names))
        except (KeyError, TypeError):
            row, name = next(
                (row, name)
                for row, name in enumerate(names)
                if not isinstance(name, str) or name not in _KINDS
            )
            known = ", ".join(sorted(_KINDS))
            raise self._wrong(row, "optype", name, f"it must be among {known}") from None

    def _wrong(self, row: int, name: str, value: object, limit: str) -> TraceError:
        if isinstance(value, np.ndarray):
            value = value[row].item()
        return TraceError(
            f"{self._path}, row {self._rows + row + 1:,}: {name} is {_short(value)}; {limit}."
        )


def missing_columns(path: Path, found: list[str]) -> TraceError:
    """Return the error of a table that lacks columns."""
    missing = [name for name in REQUIRED if name not in found]
    has = ", ".join(map(_short, found[:12])) or "none"
    return TraceError(
        f"{path}: the columns {', '.join(missing)} are missing; it has {has}. A trace is a table "
        f"with the columns {', '.join(REQUIRED)}, or spans as JSON."
    )


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= 40 else f"{text[:37]}..."
    return text if text.isprintable() and text else repr(text)
