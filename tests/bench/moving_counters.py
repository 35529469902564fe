"""Moves the counters of a `HostTree` once a second, in a process of its own.

python -m bench.moving_counters DIRECTORY
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.host_tree import HostTree

# 40 GB/s in each direction, in the kernel's 4-byte words.
_WORDS_PER_SECOND = 10_000_000_000


def move(tree: HostTree) -> None:
    """Move all port and CPU counters by a second."""
    for port in tree.sysfs.glob("class/infiniband/*/ports/1/counters"):
        for name in ("port_rcv_data", "port_xmit_data"):
            file = port / name
            _write(file, f"{int(file.read_text()) + _WORDS_PER_SECOND}\n")
    stat = tree.procfs / "stat"
    first, rest = stat.read_text().split("\n", 1)
    name, user, *others = first.split()
    _write(stat, f"{name}  {int(user) + 100 * tree.cpus // 2} {' '.join(others)}\n{rest}")


def _write(path: Path, text: str) -> None:
    """Write in place, as the kernel's files change: the readers may keep them open."""
    with path.open("r+") as file:
        file.write(text)


def main() -> None:
    """Move the counters until the process is ended."""
    tree = HostTree(Path(sys.argv[1]))
    due = time.monotonic()
    while True:
        due += 1
        time.sleep(max(0.0, due - time.monotonic()))
        move(tree)


if __name__ == "__main__":
    main()
