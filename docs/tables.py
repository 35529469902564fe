"""How values are written into tables, and tables into documents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def cell(text: str) -> str:
    """Return a text as one cell: on one line, its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def with_table(document: str, name: str, rows: Sequence[str]) -> str:
    """Return a document with a table written anew between its two marks.

    Parameters
    ----------
    document
        The document as it is; what stands outside the marks is kept.
    name
        Of the table, as in ``<!-- generated: NAME -->`` and ``<!-- end: NAME -->``.
    rows
        Indented like the first mark.
    """
    pattern = rf"^( *)<!-- generated: {name} -->\n.*?^ *<!-- end: {name} -->$"
    match = re.search(pattern, document, re.DOTALL | re.MULTILINE)
    if match is None:
        raise ValueError(f"no marks of the generated table {name!r}")
    lines = [f"<!-- generated: {name} -->", "", *rows, "", f"<!-- end: {name} -->"]
    table = "\n".join(match[1] + line if line else "" for line in lines)
    return document[: match.start()] + table + document[match.end() :]
