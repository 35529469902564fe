"""Reads one selection where numba is missing or cannot compile, in a process of its own.

    python -m detector.reading.without_numba missing|broken SETTINGS SELECTION GRID NODES

All but the first are JSON. Prints the API and the rows as JSON, NaN as null; the log goes to
standard error.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any, NoReturn

Rows = dict[str, list[float]]


def read_without_numba(
    failure: str, settings: dict[str, Any], selection: Any, grid: Any, nodes: tuple[str, ...]
) -> tuple[str, Rows, str]:
    """Return the API, the rows by node, and the log."""
    texts = [
        json.dumps(argument) for argument in (settings, asdict(selection), asdict(grid), nodes)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "detector.reading.without_numba", failure, *texts],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    api, rows = json.loads(done.stdout)
    known = {
        node: [math.nan if value is None else value for value in row] for node, row in rows.items()
    }
    return api, known, done.stderr


def _fail(*_: object) -> NoReturn:
    raise OSError("no machine code on this machine")


def _without(failure: str) -> None:
    """Let numba be missing, or fail at the first call of what it compiles."""
    if failure == "missing":
        sys.modules["numba"] = None  # type: ignore[assignment]
        return
    import numba

    numba.njit = lambda **_: lambda _: _fail


def main() -> None:
    failure, *texts = sys.argv[1:]
    settings, selection, grid, nodes = (json.loads(text) for text in texts)
    _without(failure)
    from peerwatch_detector.reading import (
        Grid,
        GridReader,
        Matcher,
        ReadingSettings,
        Selection,
    )

    logging.basicConfig(level="INFO")
    selection["matchers"] = tuple(Matcher(**matcher) for matcher in selection["matchers"])
    with GridReader(ReadingSettings(**settings)) as reader:
        (reading,) = reader.read([Selection(**selection)], Grid(**grid), nodes)
    values = reading.result().block.frame("j", "m", nodes).values.astype(float).tolist()
    rows = {
        node: [None if math.isnan(value) else value for value in row]
        for node, row in zip(nodes, values, strict=True)
    }
    json.dump([reading.api, rows], sys.stdout)


if __name__ == "__main__":
    main()
