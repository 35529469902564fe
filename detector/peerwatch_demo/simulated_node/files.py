"""Writes files as the kernel shows them: in place, for readers that keep them open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Files:
    """Files below a root that are written again only when their content changes.

    Parameters
    ----------
    root
        Directory that is the caller's alone.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._prefix = f"{root}/"
        self._written: dict[str, str] = {}

    def write(self, path: str, text: str) -> None:
        """Let a file hold a text; its directory is made if need be."""
        before = self._written.get(path)
        if before == text:
            return
        if before is None:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        self._written[path] = text
        content = text.encode()
        # Not truncated first: a reader would find it empty for a moment.
        descriptor = os.open(self._prefix + path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, content, 0)
            if before is not None and len(content) < len(before.encode()):
                os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)

    def replace(self, path: str, text: str) -> None:
        """Put another file in a file's place at once, as careful programs do."""
        before = self._written.get(path)
        if before == text:
            return
        target = self.root / path
        if before is None:
            target.parent.mkdir(parents=True, exist_ok=True)
        self._written[path] = text
        beside = target.with_name(f".{target.name}.new")
        beside.write_text(text)
        beside.replace(target)

    def append(self, path: str, text: str) -> None:
        """Add to the end of a file."""
        with (self.root / path).open("a") as file:
            file.write(text)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link; ``target`` is relative to the root."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(self.root / target, place.parent))

    def remove(self, directory: str) -> None:
        """Remove a directory of files and empty directories, and forget what was written there."""
        self.clear(directory)
        if (self.root / directory).is_dir():
            (self.root / directory).rmdir()

    def clear(self, directory: str) -> None:
        """Remove what a directory holds, and forget what was written there; the directory stays."""
        for base, directories, names in os.walk(self.root / directory, topdown=False):
            for name in names:
                os.unlink(os.path.join(base, name))  # noqa: PTH108, PTH118 - a walk of strings
            for name in directories:
                path = os.path.join(base, name)  # noqa: PTH118
                os.unlink(path) if os.path.islink(path) else os.rmdir(path)  # noqa: PTH106, PTH108, PTH114
        gone = [path for path in self._written if path.startswith(f"{directory}/")]
        for path in gone:
            del self._written[path]
