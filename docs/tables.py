"""How values are written into a table of a page."""

from __future__ import annotations


def cell(text: str) -> str:
    """Return a text as one cell: on one line, its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")
