"""A file of JSON lines that a long measurement appends to, and goes on with when it runs again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

Line = TypeVar("Line")


def read_lines(
    path: Path, parse: Callable[[dict[str, Any]], Line], what: str, advice: str
) -> list[Line]:
    """Return what an earlier run wrote; a last line that broke off is cut away from the file.

    Parameters
    ----------
    path
        Need not exist.
    parse
        Makes a line of its JSON object.
    what, advice
        What the file holds lines of, and what to do where it does not, for the error.

    Raises
    ------
    ValueError
        If another line cannot be parsed; it names the line.
    """
    if not path.exists():
        return []
    whole, _, broken = path.read_text().rpartition("\n")
    lines = []
    for number, text in enumerate(whole.splitlines(), start=1):
        try:
            lines.append(parse(json.loads(text)))
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(
                f"{path}, line {number}: is no line of {what} ({error}); {advice}."
            ) from error
    if broken:
        path.write_text(f"{whole}\n" if whole else "")
    return lines


def append_line(path: Path, document: Mapping[str, Any]) -> None:
    """Append a line at once, so that a run that breaks off loses nothing."""
    with path.open("a") as file:
        file.write(json.dumps(document) + "\n")
