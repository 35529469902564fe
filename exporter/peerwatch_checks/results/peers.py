"""What checks measured on other nodes, from files that those wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.check_results.spool import read_records
from peerwatch_common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from peerwatch_common.check_results.record import Record


def peers_of(paths: Iterable[Path], node: str) -> Callable[[str], tuple[Record, ...]]:
    """Return what gives a check's newest records of other nodes.

    Parameters
    ----------
    paths
        Files with a record per line.
    node
        This node: what it wrote itself is not its peers'.

    Raises
    ------
    ConfigError
        If a file cannot be read whole: a part of the peers is not what they are.
    """
    newest: dict[tuple[str, str, str, str], Record] = {}
    for path in paths:
        content = read_records(path)
        problems = content.problems
        if not path.exists():
            problems = (f"{path}: there is no such file",)
        if problems:
            raise ConfigError([f"--peers: {problem}" for problem in problems])
        for record in content.records:
            key = (*record.key, record.node)
            known = newest.get(key)
            if record.node != node and (known is None or known.started <= record.started):
                newest[key] = record
    by_check: dict[str, list[Record]] = {}
    for record in newest.values():
        by_check.setdefault(record.check, []).append(record)
    return lambda check: tuple(by_check.get(check, ()))
