"""The table of values in the chart's README: keys, defaults and comments of values.yaml."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADING = "## Values\n"
_LINE = re.compile(r"( *)(?:# ?(.*)|([A-Za-z]+):(.*))")
_INDENT = 2


class Value(NamedTuple):
    """A key of values.yaml: its path, its default (None for a section) and its comment."""

    path: str
    default: str | None
    comment: str


def chart_readme(readme: str, values: str) -> str:
    """Return the README with the table of values after its heading.

    Parameters
    ----------
    readme
        The document as it is; what stands before the heading is kept.
    values
        Text of values.yaml.
    """
    lines = ["", "| value | default | meaning |", "|---|---|---|"]
    for value in read_values(values):
        if value.default is not None:
            meaning = value.comment or "As in Kubernetes."
            lines.append(f"| `{value.path}` | {value.default} | {meaning} |")
    return readme.split(HEADING, maxsplit=1)[0] + HEADING + "\n".join(lines) + "\n"


def read_values(text: str) -> Iterator[Value]:
    """Yield the keys in the order of the file, each with the comment right above it."""
    comment: list[str] = []
    path: list[str] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match[2] is not None:
            # An empty line parts a comment from what it is not about.
            comment = [] if match is None else [*comment, match[2]]
            continue
        path = [*path[: len(match[1]) // _INDENT], match[3]]
        default = _cell(match[4]) if match[4].strip() else None
        yield Value(".".join(path), default, " ".join(comment).replace("|", "\\|"))
        comment = []


def _cell(text: str) -> str:
    value = yaml.safe_load(text)
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"
