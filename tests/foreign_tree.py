"""Unpacks file trees kept in one text file each, in the format (ttar) of procfs and node_exporter.

So a ``fixtures.ttar`` of theirs can be put into ``tests/exporter/foreign_trees`` as it is.
"""

from __future__ import annotations

import itertools
from pathlib import Path

TREES = Path(__file__).parent / "exporter" / "foreign_trees"


def unpack(archive: Path, root: Path) -> Path:
    """Write an archive's files below a directory; return the directory.

    A last line that ends with EOF has no line break in the file; NULLBYTE stands for a zero byte.
    """
    lines = iter(archive.read_text().splitlines())
    path = root
    for line in lines:
        key, _, value = line.partition(": ")
        if key == "Directory":
            (root / value).mkdir(parents=True, exist_ok=True)
        elif key == "Path":
            path = root / value
            path.parent.mkdir(parents=True, exist_ok=True)
        elif key == "SymlinkTo":
            path.symlink_to(value)
        elif key == "Lines":
            path.write_bytes(_content(list(itertools.islice(lines, int(value)))))
    return root


def _content(lines: list[str]) -> bytes:
    if not lines:
        return b""
    text = "\n".join(lines)
    text = text[:-3] if text.endswith("EOF") else f"{text}\n"
    text = text.replace("\\NULLBYTE", "\1").replace("NULLBYTE", "\0").replace("\1", "NULLBYTE")
    return text.encode()
