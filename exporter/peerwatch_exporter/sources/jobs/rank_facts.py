"""Who the ranks are, and in which state the kernel has their main processes, as families."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.sources.jobs.joined_rank import JoinedRank

_STATES = ("running", "sleeping", "disk_sleep", "stopped", "traced", "zombie", "exited")


class RankFacts:
    """Makes the families anew only when a rank came, went or changed its state.

    They are the same objects in between, which nobody has to compare or to render again.
    """

    def __init__(self) -> None:
        self._known: object = None
        self._families: tuple[Family, ...] = ()

    def families(self, ranks: Sequence[JoinedRank]) -> Iterable[Family]:
        """Return ``rank_info`` and ``rank_process_state``, those that have samples."""
        known = [
            (rank.job_id, rank.rank, rank.local_rank, rank.world_size, rank.pid, rank.state)
            for rank in ranks
        ]
        if known != self._known:
            self._known, self._families = known, tuple(_families(ranks))
        return self._families


def _families(ranks: Sequence[JoinedRank]) -> Iterable[Family]:
    info, states = family("rank_info"), family("rank_process_state")
    for rank in ranks:
        labels = rank.job_id, str(rank.rank)
        facts = (rank.local_rank, rank.world_size, rank.pid)
        texts = ("" if fact is None else str(fact) for fact in facts)
        info.rows.append(((*labels, *texts), 1))
        states.rows += [((*labels, state), int(state == rank.state)) for state in _STATES]
    return [item for item in (info, states) if item.rows]
