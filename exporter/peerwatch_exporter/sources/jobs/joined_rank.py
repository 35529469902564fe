"""A rank as its processes and its heartbeat file say together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_exporter.sources.host.processes import Process
    from peerwatch_exporter.sources.jobs.heartbeat import Heartbeat


@dataclass(frozen=True, slots=True)
class JoinedRank:
    """A rank as known from either side.

    Parameters
    ----------
    job_id
        Empty while neither side names the job.
    rank, local_rank, world_size
        As the environment of its processes says, else its heartbeat; None: it does not.
    tree
        Its processes, the main one first; empty once they are gone.
    heartbeat
        None: it leaves none.
    unseen
        It writes heartbeats though no process of it can be found.
    """

    job_id: str
    rank: int
    local_rank: int | None
    world_size: int | None
    tree: tuple[Process, ...]
    heartbeat: Heartbeat | None
    unseen: bool = False

    @property
    def pid(self) -> int | None:
        """The main process, as its heartbeat knows it where it is gone."""
        if self.tree:
            return self.tree[0].pid
        return None if self.heartbeat is None else self.heartbeat.pid

    @property
    def state(self) -> str:
        """The state of the main process, ``exited`` without one, and empty while unseen."""
        if not self.tree:
            return "" if self.unseen else "exited"
        process = self.tree[0]
        # Of a zombie with other threads only the first has ended.
        return "sleeping" if process.state == "zombie" and not process.is_dead else process.state

    def may_be_that_of(self, heartbeat: Heartbeat) -> bool:
        """Return whether a heartbeat has this rank's number, and no other job."""
        either_unnamed = not self.job_id or not heartbeat.job_id
        return self.rank == heartbeat.rank and (either_unnamed or self.job_id == heartbeat.job_id)
