"""Which rank a process is, and which process group a communicator, for sources that do not know."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.collectives.members import parse_members

if TYPE_CHECKING:
    from peerwatch_exporter.sources.collectives.telemetry import GroupInfo
    from peerwatch_exporter.sources.jobs.heartbeat import Heartbeat
    from peerwatch_exporter.sources.jobs.known_ranks import KnownRank


def ranks_by_pid(
    known: Iterable[KnownRank], heartbeats: Iterable[Heartbeat]
) -> dict[int, KnownRank]:
    """Return the ranks by the pid that they see themselves, and by that which the host sees.

    In a container the two differ; a heartbeat has the former.
    """
    by_number = {rank.rank: rank for rank in known}
    found = {rank.pid: rank for rank in by_number.values() if rank.pid is not None}
    for heartbeat in heartbeats:
        rank = by_number.get(heartbeat.rank)
        if rank is not None and heartbeat.pid is not None:
            found[heartbeat.pid] = rank
    return found


@lru_cache(maxsize=4096)
def is_local(host: str) -> bool:
    """Return whether an address or a name is that of this host."""
    if host in ("localhost", socket.gethostname(), socket.gethostname().partition(".")[0]):
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # A resolver might be asked, and wait, for a name; only an address is tried.
        socket.inet_pton(family, host)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def member(info: GroupInfo, index: int) -> int | None:
    """Return the rank at a place of a group; None if the group is smaller."""
    ranks = chain.from_iterable(parse_members(info.members))
    return next(islice(ranks, index, None), None)


def group_of(
    places: Mapping[int, int], size: int | None, infos: Iterable[GroupInfo]
) -> GroupInfo | None:
    """Return the process group that a communicator belongs to; None if there is not exactly one.

    Parameters
    ----------
    places
        Rank of the job by place in the communicator, as far as they are known.
    size
        Number of ranks of the communicator; None if not known, then no group fits.
    infos
        The job's groups.
    """
    fitting = [
        info
        for info in infos
        if info.members
        and info.size == size
        and all(member(info, place) == rank for place, rank in places.items())
    ]
    return fitting[0] if len(fitting) == 1 and places else None
