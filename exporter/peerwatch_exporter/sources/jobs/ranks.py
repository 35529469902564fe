"""The ranks of training jobs on this node, found from outside by their processes' environment."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from peerwatch_exporter.sources.host.environments import EnvironmentIndex
from peerwatch_exporter.sources.host.procfs import TICKS_PER_SECOND, Procfs
from peerwatch_exporter.sources.host.usage import belongs_to_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources.host.access import HostAccess
    from peerwatch_exporter.sources.host.processes import Process, ProcessTable
    from peerwatch_exporter.sources.jobs.heartbeat import Heartbeat

Scheduler = Literal["peerwatch", "slurm", "torchelastic"]

# The variable that names the job, the most explicit one first.
_JOB_VARIABLES: tuple[tuple[str, Scheduler], ...] = (
    ("PEERWATCH_JOB_ID", "peerwatch"),
    ("SLURM_JOB_ID", "slurm"),
    ("TORCHELASTIC_RUN_ID", "torchelastic"),
)
_LONGEST_JOB_ID = 128  # as in ``mapping``


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """Which rank of which job a process says it belongs to."""

    job_id: str
    scheduler: Scheduler
    rank: int
    world_size: int
    local_rank: int | None
    launcher: Literal["torch", "slurm"]
    in_step: bool

    @property
    def key(self) -> tuple[str, int]:
        """The rank's identity on this node."""
        return self.job_id, self.rank


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank: its main process, and all processes that belong to it (the main one first)."""

    identity: RankIdentity
    root: Process
    tree: tuple[Process, ...]


class RankFinder:
    """Finds the ranks among the node's processes."""

    def __init__(self, config: ExporterConfig, host: HostAccess) -> None:
        self._node_variables = config.scope.environment if config.scope.kind == "processes" else {}
        self._procfs = Procfs(host.paths.procfs)
        self._table = host.processes
        self._index = EnvironmentIndex(self._table, self._classify, monotonic=host.monotonic)

    def find(self) -> list[RankProcess]:
        """Return the ranks that run on this node.

        Raises
        ------
        PermissionError
            If no process may be read.
        """
        found = self._index.find()
        identities = {process.pid: identity for process, identity in found}
        launched = {i.job_id for i in identities.values() if i.launcher == "torch"}
        # Below srun, torchrun itself and the batch script carry the number of their Slurm task.
        identities = {
            pid: identity
            for pid, identity in identities.items()
            if identity.launcher == "torch" or identity.job_id not in launched
        }
        return _assemble(self._table, identities)

    def tree_of(self, pid: int, started_before: float) -> tuple[Process, ...]:
        """Return a process that a heartbeat names, with its descendants; empty if it is gone.

        Parameters
        ----------
        pid
            The process, as the heartbeat wrote it.
        started_before
            Unix time; a younger process only happens to have the same pid.
        """
        processes = self._table.snapshot()
        process = processes.get(pid)
        if process is None:
            return ()
        started = self._procfs.boot_time() + process.start_ticks / TICKS_PER_SECOND
        # The boot time is whole seconds.
        if started > started_before + 1 or not belongs_to_node(
            self._table.environment(pid) or {}, self._node_variables
        ):
            return ()
        return tuple(_tree([process], self._table, {}, ("", 0)))

    def runs(self, heartbeat: Heartbeat) -> bool:
        """Return whether the process runs that a heartbeat names; a dead one does not."""
        if heartbeat.pid is None:
            return False
        tree = self.tree_of(heartbeat.pid, started_before=heartbeat.time)
        return bool(tree) and not tree[0].is_dead

    def _classify(self, environment: Mapping[str, str]) -> RankIdentity | None:
        return (
            rank_identity(environment)
            if belongs_to_node(environment, self._node_variables)
            else None
        )


def rank_identity(environment: Mapping[str, str]) -> RankIdentity | None:
    """Return the rank an environment names, or None if it names none."""
    torch = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    slurm = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_NTASKS")
    for launcher, local, (rank, world_size) in (
        ("torch", "LOCAL_RANK", torch),
        ("slurm", "SLURM_LOCALID", slurm),
    ):
        if rank is not None and world_size is not None and rank < world_size:
            job_id, scheduler = job_of(environment)
            return RankIdentity(
                job_id=job_id,
                scheduler=scheduler,
                rank=rank,
                world_size=world_size,
                local_rank=_number(environment, local),
                launcher="torch" if launcher == "torch" else "slurm",
                in_step="SLURM_STEP_ID" in environment,
            )
    return None


def job_of(environment: Mapping[str, str]) -> tuple[str, Scheduler]:
    """Return the job id an environment names, empty if none, and which scheduler gave it."""
    for variable, scheduler in _JOB_VARIABLES:
        job_id = environment.get(variable, "").strip()[:_LONGEST_JOB_ID]
        # torchrun without a rendezvous id calls every job "none".
        if job_id and (scheduler != "torchelastic" or job_id != "none"):
            return job_id, scheduler
    return "", "peerwatch"


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _assemble(table: ProcessTable, identities: Mapping[int, RankIdentity]) -> list[RankProcess]:
    processes = table.snapshot()
    tops: dict[tuple[str, int], list[int]] = defaultdict(list)
    for pid, identity in identities.items():
        parent = identities.get(processes[pid].parent) if pid in processes else None
        if pid in processes and (parent is None or parent.key != identity.key):
            tops[identity.key].append(pid)
    ranks = []
    for key, pids in sorted(tops.items()):
        # The batch script of a Slurm job appears as its first task but is in no step; a worker
        # whose parent died stands on top beside the main process, which is older.
        pids.sort(key=lambda pid: (not identities[pid].in_step, processes[pid].start_ticks))
        tree = _tree((processes[pid] for pid in pids), table, identities, key)
        ranks.append(RankProcess(identities[pids[0]], processes[pids[0]], tuple(tree)))
    return ranks


def _tree(
    tops: Iterable[Process],
    table: ProcessTable,
    identities: Mapping[int, RankIdentity],
    key: tuple[str, int],
) -> list[Process]:
    processes = table.snapshot()
    tree = {process.pid: process for process in tops}
    waiting = list(tree)
    # Grows during the iteration.
    for parent in waiting:
        for pid in table.children(parent):
            identity = identities.get(pid)
            child = processes.get(pid)
            if child is None or pid in tree or (identity is not None and identity.key != key):
                continue
            tree[pid] = child
            waiting.append(pid)
    return list(tree.values())
