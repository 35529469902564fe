"""Whose logs are wanted: the ranks of this node, and the processes around them."""

from __future__ import annotations

from typing import NamedTuple


class RankTarget(NamedTuple):
    """A rank of this node.

    Parameters
    ----------
    job_id, rank
        As its series are labelled.
    local_rank, world_size
        Its number on this node, and how many ranks the job has; None if unknown.
    pid
        Its main process.
    pod_uid
        Its pod; empty outside Kubernetes.
    run_directory
        torchrun's directory for this run of the job, as the rank sees it; empty if it has none.
    """

    job_id: str
    rank: int
    local_rank: int | None
    world_size: int | None
    pid: int
    pod_uid: str
    run_directory: str


class HolderTarget(NamedTuple):
    """A process of a job that is no rank: a launcher, a batch script.

    Parameters
    ----------
    job_id, pid
        Whose, and which.
    started
        When it was started (Unix time).
    """

    job_id: str
    pid: int
    started: float


class Targets(NamedTuple):
    """All of them; ``first_jobs`` are the jobs whose rank 0 or first Slurm node is here."""

    ranks: tuple[RankTarget, ...] = ()
    holders: tuple[HolderTarget, ...] = ()
    first_jobs: frozenset[str] = frozenset()

    @property
    def job_ids(self) -> list[str]:
        """The jobs of this node, sorted."""
        of_ranks = {target.job_id for target in self.ranks}
        return sorted(of_ranks | {target.job_id for target in self.holders})

    def to_data(self) -> dict[str, object]:
        """Return what JSON can carry."""
        return {
            "ranks": self.ranks,
            "holders": self.holders,
            "first_jobs": sorted(self.first_jobs),
        }

    @staticmethod
    def from_data(data: dict[str, list[list[object]]]) -> Targets:
        """Return the targets of what ``to_data`` returned."""
        return Targets(
            tuple(RankTarget(*item) for item in data["ranks"]),  # type: ignore[arg-type]
            tuple(HolderTarget(*item) for item in data["holders"]),  # type: ignore[arg-type]
            frozenset(map(str, data["first_jobs"])),
        )
