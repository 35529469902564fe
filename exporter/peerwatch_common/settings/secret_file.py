"""Reads a password or a token from its file, for whichever program sends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_secret(path: Path) -> str:
    """Return the secret that a file holds, without white space around it.

    Raises
    ------
    OSError
        If the file cannot be read.
    UnicodeDecodeError
        If it is no text in UTF-8.
    """
    # Editors of Windows mark their UTF-8 as such.
    return path.read_text(encoding="utf-8-sig").strip()
