"""Which processes of this node write logs of jobs: its ranks, and those around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.environments import EnvironmentIndex
from peerwatch_exporter.sources.host.procfs import TICKS_PER_SECOND, Procfs
from peerwatch_exporter.sources.host.usage import belongs_to_node
from peerwatch_exporter.sources.jobs.cgroups import CgroupReader
from peerwatch_exporter.sources.jobs.ranks import job_of, rank_identity
from peerwatch_exporter.sources.logs.targets import HolderTarget, RankTarget, Targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.host.processes import Process
    from peerwatch_exporter.sources.jobs.known_ranks import KnownRank

# A node has a launcher and a batch script or two per job; workers of ranks share the ranks' files.
_MOST_HOLDERS = 64
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


@dataclass(frozen=True, slots=True)
class _Facts:
    job_id: str
    is_rank: bool
    local_rank: int | None
    world_size: int | None
    run_directory: str
    on_first_node: bool


class LogProcesses:
    """Finds the targets.

    Parameters
    ----------
    config, sources
        The settings; the node's processes, and the ranks that the ranks collector found.
    """

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._node_variables = config.scope.environment if config.scope.kind == "processes" else {}
        self._known = sources.known_ranks
        self._table = sources.processes
        self._procfs = Procfs(sources.paths.procfs)
        self._cgroups = CgroupReader(sources.paths.procfs, monotonic=sources.monotonic)
        self._index = EnvironmentIndex(self._table, self._classify, monotonic=sources.monotonic)

    def targets(self) -> tuple[Targets, list[Exception]]:
        """Return whose logs are wanted now, and what could not be read."""
        problems: list[Exception] = []
        try:
            found = self._index.find()
        except PermissionError as error:
            found = []
            problems.append(error)
        facts = {process.pid: each for process, each in found}
        known = [rank for rank in self._known.all() or () if rank.pid is not None]
        ranks = self._ranks(known, facts, problems)
        # A rank's job may have another id than its environment says: that of its pod.
        names = {facts[rank.pid].job_id: rank.job_id for rank in ranks if rank.pid in facts}
        names.pop("", None)
        holders = self._holders(found, names, {rank.pid for rank in ranks})
        first = {rank.job_id for rank in ranks if rank.rank == 0}
        first |= {
            names[each.job_id] for _, each in found if each.on_first_node and each.job_id in names
        }
        return Targets(ranks, holders, frozenset(first)), problems

    def _ranks(
        self,
        known: Sequence[KnownRank],
        facts: Mapping[int, _Facts],
        problems: list[Exception],
    ) -> tuple[RankTarget, ...]:
        pods = self._pods(known, problems)
        targets = []
        for rank in known:
            assert rank.pid is not None
            fact = facts.get(rank.pid)
            targets.append(
                RankTarget(
                    rank.job_id,
                    rank.rank,
                    None if fact is None else fact.local_rank,
                    None if fact is None else fact.world_size,
                    rank.pid,
                    pods.get(rank.pid, ""),
                    "" if fact is None else fact.run_directory,
                )
            )
        return tuple(targets)

    def _pods(self, known: Iterable[KnownRank], problems: list[Exception]) -> dict[int, str]:
        processes = self._table.snapshot()
        main = [processes[rank.pid] for rank in known if rank.pid in processes]
        try:
            owners = self._cgroups.owners(main)
        except OSError as error:
            problems.append(error)
            return {}
        return {pid: owner.pod_uid for pid, owner in owners.items() if owner.pod_uid}

    def _holders(
        self,
        found: Iterable[tuple[Process, _Facts]],
        names: Mapping[str, str],
        rank_pids: set[int],
    ) -> tuple[HolderTarget, ...]:
        boot_time: float | None = None
        holders: list[HolderTarget] = []
        for process, facts in found:
            if facts.is_rank or facts.job_id not in names or process.pid in rank_pids:
                continue
            if len(holders) == _MOST_HOLDERS:
                break
            if boot_time is None:
                boot_time = self._procfs.boot_time()
            started = boot_time + process.start_ticks / TICKS_PER_SECOND
            holders.append(HolderTarget(names[facts.job_id], process.pid, started))
        return tuple(holders)

    def _classify(self, environment: Mapping[str, str]) -> _Facts | None:
        if not belongs_to_node(environment, self._node_variables):
            return None
        job_id, _ = job_of(environment)
        identity = rank_identity(environment)
        if not job_id and identity is None:
            return None
        return _Facts(
            job_id=job_id,
            # Below srun, torchrun and the batch script carry the number of their Slurm task.
            is_rank=identity is not None and identity.launcher == "torch",
            local_rank=None if identity is None else identity.local_rank,
            world_size=None if identity is None else identity.world_size,
            run_directory=_run_directory(environment.get(_ERROR_FILE, "")),
            on_first_node=environment.get("SLURM_NODEID") == "0",
        )


def _run_directory(error_file: str) -> str:
    """Return ``<log dir>/<run>`` of ``<log dir>/<run>/attempt_<n>/<local rank>/error.json``."""
    parts = error_file.split("/")
    if len(parts) < 5 or parts[0] or ".." in parts or not parts[-3].startswith("attempt_"):
        return ""
    return "/".join(parts[:-3])
