"""What is asked of the running system and not read from its files, each replaceable.

A node that is only files, as simulated ones and those of tests, answers none of them. Nor is the
driver process asked, so what asks is loaded for a real node alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from peerwatch_exporter.sources.host.clock_state import ClockState
    from peerwatch_exporter.sources.host.connections import Connection
    from peerwatch_exporter.sources.host.filesystems import Space
    from peerwatch_exporter.sources.host.systemd import Units

# Two short answers of a local daemon take milliseconds; a collector has 0.8 s.
_BUS_SECONDS = 0.5
# It has some dozen lines.
_OS_RELEASE_BYTES = 16384
_PRETTY_NAME = re.compile(r"^PRETTY_NAME=(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HostQueries:
    """How the running system is asked; None: it cannot be.

    Parameters
    ----------
    space
        Returns how full the filesystem at a mount point of the node is; may never return.
    clock
        Returns the state of the kernel's clock.
    units
        Returns systemd's failed units, and those of the names given.
    os_release
        Returns the name and version of the node's distribution.
    connections
        Returns the established TCP connections to other hosts, so many at most.
    """

    space: Callable[[str], Space] | None = None
    clock: Callable[[], ClockState] | None = None
    units: Callable[[Sequence[str]], Units] | None = None
    os_release: Callable[[], str | None] | None = None
    connections: Callable[[int], list[Connection]] | None = None


def real_queries(procfs: Path, rootfs: Path, system_bus: Path) -> HostQueries:
    """Return the queries to the system the exporter runs on.

    Parameters
    ----------
    procfs, rootfs
        Where the node's /proc and / are. If only the first is elsewhere, the exporter is in a
        container without the node's files, and / is the container's own: it is not asked.
    system_bus
        Socket of the system bus.
    """
    from peerwatch_exporter.sources.host.clock_state import kernel_clock  # noqa: PLC0415 - see above
    from peerwatch_exporter.sources.host.connections import connections  # noqa: PLC0415

    sees_files = str(procfs) == "/proc" or str(rootfs) != "/"
    return HostQueries(
        space=partial(_space_below, str(rootfs).rstrip("/")) if sees_files else None,
        clock=kernel_clock,
        units=partial(_units, system_bus),
        os_release=partial(_os_release, rootfs) if sees_files else None,
        connections=connections,
    )


def _space_below(root: str, mountpoint: str) -> Space:
    from peerwatch_exporter.sources.host.filesystems import statvfs  # noqa: PLC0415 - see above

    return statvfs(root + mountpoint)


def _units(bus: Path, names: Sequence[str]) -> Units:
    from peerwatch_exporter.sources.host.systemd import units  # noqa: PLC0415 - see above

    return units(bus, names, _BUS_SECONDS)


def _os_release(root: Path) -> str | None:
    """Return what os-release(5) calls the distribution; None if there is no such file."""
    from peerwatch_exporter.sources.files.regular_file import (  # noqa: PLC0415 - see above
        NotAFileError,
        TooLargeError,
        read_regular,
    )

    for path in ("etc/os-release", "usr/lib/os-release"):
        try:
            content = read_regular(str(root / path), _OS_RELEASE_BYTES).content
        except (FileNotFoundError, NotADirectoryError, NotAFileError, TooLargeError):
            continue
        found = _PRETTY_NAME.search(content.decode("utf-8", "replace"))
        return found[1].strip("\"'") if found else None
    return None
