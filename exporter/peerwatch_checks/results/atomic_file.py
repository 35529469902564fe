"""Files that are there whole or not at all, also after a crash."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# Results are no secret: the exporter and node_exporter run as other users.
_READABLE = 0o644


def write_file(path: Path, text: str) -> None:
    """Write a file: under a temporary name beside it, to the disk, then renamed.

    Raises
    ------
    OSError
        If it cannot be written; what was there before stays.
    """
    # The name must not end as the file's: node_exporter reads all that ends in .prom.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, _READABLE)
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
