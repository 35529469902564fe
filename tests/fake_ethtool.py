"""Driver statistics from a table, in place of the kernel's."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path


class FakeEthtool:
    """Answers as the kernel would; a number instead of a table is the errno to fail with.

    Parameters
    ----------
    tables
        Name and value of each statistic, by interface; may be changed at any time.

    Attributes
    ----------
    asked
        (method, interface) of every call.
    """

    def __init__(self, tables: Mapping[str, Mapping[str, int] | int] | None = None) -> None:
        self.tables = dict(tables or {})
        self.asked: list[tuple[str, str]] = []

    def names(self, interface: str) -> Sequence[str]:
        """Return the names of the interface's statistics."""
        self.asked.append(("names", interface))
        return list(self._table(interface))

    def values(self, interface: str) -> Sequence[int]:
        """Return their values."""
        self.asked.append(("values", interface))
        return list(self._table(interface).values())

    def _table(self, interface: str) -> Mapping[str, int]:
        table = self.tables.get(interface, errno.ENODEV)
        if isinstance(table, int):
            raise OSError(table, os.strerror(table), interface)
        return table


class FileEthtool(FakeEthtool):
    """Follows a JSON file; without the file there is no interface.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def _table(self, interface: str) -> Mapping[str, int]:
        self.tables = json.loads(self._path.read_text()) if self._path.exists() else {}
        return super()._table(interface)
