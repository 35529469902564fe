"""NCCL's RAS as a source: what the ranks of this node have launched, and which ranks are missing.

One request covers the whole job. What it says of this node's ranks is reported here; that a rank
of another node is missing, only where the communicator's first present rank runs, so that it is
said once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.periodic import Periodic
from peerwatch_exporter.sources.collectives.process_ranks import group_of, is_local, member
from peerwatch_exporter.sources.collectives.ras_answer import parse_ras
from peerwatch_exporter.sources.collectives.ras_client import ask_ras
from peerwatch_exporter.sources.collectives.telemetry import (
    GroupInfo,
    GroupTelemetry,
    RankReport,
    Totals,
)

if TYPE_CHECKING:
    from peerwatch_exporter.sources.collectives.ras_answer import Communicator, RasRank, RasStatus
    from peerwatch_exporter.sources.jobs.known_ranks import KnownRank

SOURCE = "ras"
# 5 s, as NCCL's own client gives the processes of the job, and one for the answer.
TIMEOUT_SECONDS = 6.0


class _Timed(NamedTuple):
    status: RasStatus
    time: float


class Ras:
    """The RAS service that answers on this node.

    Parameters
    ----------
    host, port
        Where.
    interval_seconds
        How often it is asked: every request makes all processes of the job answer.
    clock
        Unix time.
    """

    def __init__(
        self,
        host: str,
        port: int,
        interval_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._periodic = Periodic(
            "collectives-ras",
            interval_seconds,
            lambda: _Timed(parse_ras(ask_ras(host, port, TIMEOUT_SECONDS)), clock()),
        )

    def read(
        self, ranks: Mapping[int, KnownRank], infos: Mapping[str, Sequence[GroupInfo]]
    ) -> tuple[list[RankReport], list[Exception]]:
        """Return what the newest answer says; waits for nobody.

        Parameters
        ----------
        ranks
            This node's ranks by pid.
        infos
            The process groups, by job.
        """
        newest = self._periodic.newest()
        if newest is None:
            return [], []
        if isinstance(newest, Exception):
            # Without a job nobody listens.
            is_idle = getattr(newest, "error_class", "") == "ras_refused" and not ranks
            return [], [] if is_idle else [newest]
        problems: list[Exception] = []
        if newest.status.garbled:
            detail = f"{newest.status.garbled} communicators or ranks of RAS make no sense"
            problems.append(CollectiveSourceError("ras_garbled", detail))
        return report_ras(newest.status, newest.time, ranks, infos), problems

    def close(self) -> None:
        """End the thread."""
        self._periodic.close()


def report_ras(
    status: RasStatus,
    now: float,
    ranks: Mapping[int, KnownRank],
    infos: Mapping[str, Sequence[GroupInfo]],
) -> list[RankReport]:
    """Return what an answer says of this node's ranks, and whom it misses elsewhere."""
    present: dict[tuple[str, int], list[GroupTelemetry]] = {}
    missing = {
        (ranks[pid].job_id, ranks[pid].rank)
        for host, pid in status.missing
        if pid in ranks and is_local(host)
    }
    for communicator in status.communicators:
        local = {
            each.rank: (each, ranks[each.pid])
            for each in communicator.ranks
            if each.pid in ranks and is_local(each.host)
        }
        if not local:
            continue
        job_id = next(iter(local.values()))[1].job_id
        places = {place: rank.rank for place, (_, rank) in local.items()}
        group = group_of(places, communicator.size, infos.get(job_id, ()))
        name = f"nccl-{communicator.hash.removeprefix('0x')}" if group is None else group.name
        for each, rank in local.values():
            key = rank.job_id, rank.rank
            if each.is_missing:
                missing.add(key)
            else:
                present.setdefault(key, []).append(_telemetry(name, each))
        if group is not None and _is_first_here(communicator, local):
            missing |= {(job_id, rank) for rank in _absent(communicator, group)}
    reports = [
        RankReport(*key, SOURCE, up=False, time=now) for key in sorted(missing - present.keys())
    ]
    reports += (
        RankReport(*key, SOURCE, up=key not in missing, time=now, groups=tuple(groups))
        for key, groups in present.items()
    )
    return reports


def _telemetry(name: str, rank: RasRank) -> GroupTelemetry:
    if rank.is_partial:
        return GroupTelemetry(name)
    totals = {kind: Totals(launched=count) for kind, count in rank.launched.items() if count}
    return GroupTelemetry(name, launched=sum(rank.launched.values()), totals=totals)


def _is_first_here(communicator: Communicator, local: Mapping[int, object]) -> bool:
    present = [each.rank for each in communicator.ranks if not each.is_missing]
    return min(present, default=-1) in local


def _absent(communicator: Communicator, group: GroupInfo) -> list[int]:
    found = (member(group, each.rank) for each in communicator.ranks if each.is_missing)
    return [rank for rank in found if rank is not None]
