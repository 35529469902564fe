"""What a simulated node's system answers: filesystems with room, a clock that is kept right.

Its TCP connections are those of a rank to its neighbours, which hardly wait for each other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.clock_state import ClockState
from peerwatch_exporter.sources.host.connections import Connection
from peerwatch_exporter.sources.host.filesystems import Space
from peerwatch_exporter.sources.host.queries import HostQueries
from peerwatch_exporter.sources.host.systemd import Unit, Units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Made-up: sizes and free space of file systems as an H100 node has them.
_SPACES = {
    "/": Space(480 * 10**9, 395 * 10**9, 31_000_000, 30_100_000),
    "/local": Space(7_600 * 10**9, 4_200 * 10**9, 0, 0),
    "/dev/shm": Space(1_000 * 10**9, 930 * 10**9, 250_000_000, 249_999_000),  # noqa: S108 - a name
}
# The lines of /proc/self/mountinfo that belong to them, and an NFS server's that must not be asked.
MOUNTINFO = """\
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
41 28 259:5 / /local rw,noatime shared:9 - xfs /dev/md0 rw,attr2,inode64
25 28 0:23 / /dev/shm rw,nosuid,nodev shared:3 - tmpfs tmpfs rw,inode64
77 28 0:52 / /home rw,relatime shared:40 - nfs4 10.9.0.3:/home rw,vers=4.2,hard
"""
_RUNNING = ("nvidia-fabricmanager", "nvidia-persistenced", "chronyd", "slurmd")


# The node's address, and those of its ranks' neighbours; what is sent to each, in bytes per second:
# made-up, as little as control traffic is.
_ADDRESS, _NEIGHBOURS = "10.0.0.10", ("10.0.0.11", "10.0.0.9")
_SENT = 2e6


def simulated_queries(elapsed: Callable[[], float]) -> HostQueries:
    """Return the answers of a node on which nothing is wrong.

    Parameters
    ----------
    elapsed
        Seconds since the node's start.
    """
    return HostQueries(
        space=_SPACES.__getitem__,
        clock=_clock,
        units=_units,
        connections=partial(_connections, elapsed),
    )


def _clock() -> ClockState:
    return ClockState(is_synchronized=True, offset_seconds=0.0, max_error_seconds=0.0021)


def _units(names: Sequence[str]) -> Units:
    installed = [f"{name}.service" for name in _RUNNING]
    return Units((), tuple(Unit(name, "loaded", "active") for name in installed if name in names))


def _connections(elapsed: Callable[[], float], most: int) -> list[Connection]:
    sent = int(_SENT * elapsed())
    ends = enumerate(_NEIGHBOURS[:most], start=1)
    return [Connection(cookie, _ADDRESS, peer, 0.1, sent, 2.1e-4, 8e-5) for cookie, peer in ends]
