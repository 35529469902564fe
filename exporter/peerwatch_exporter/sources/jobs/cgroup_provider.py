"""Jobs and pods of the processes that the driver sees on the GPUs, by their control groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.sources.jobs.cgroups import CgroupReader
from peerwatch_exporter.sources.jobs.claims import Claim, ProviderAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources.gpu.facts import GpuFacts
    from peerwatch_exporter.sources.host.access import HostAccess
    from peerwatch_exporter.sources.jobs.cgroups import CgroupOwner
    from peerwatch_exporter.sources.jobs.claims import Boards

# 256 processes for each of 16 GPUs.
_MOST_PIDS = 4096

_NOTHING = ProviderAnswer(())


class HiddenProcessesError(Exception):
    """Processes use a GPU that are not below /proc: they run in another pid namespace."""

    error_class = "processes_hidden"


class CgroupProvider:
    """Owners of the processes on the GPUs, and of those that are ranks.

    Parameters
    ----------
    config, host, gpus
        Settings, the node's processes, and the driver's view of them.
    boards
        The node's GPUs now.
    ranks
        Pids of the rank processes, however they were found.
    """

    name = "cgroup"

    def __init__(
        self,
        config: ExporterConfig,
        host: HostAccess,
        gpus: GpuFacts,
        boards: Callable[[], Boards],
        ranks: Callable[[], Iterable[int]],
    ) -> None:
        # Of a machine that plays several nodes only marked processes count, and those are ranks.
        self._only_ranks = config.scope.kind == "processes"
        self._table = host.processes
        self._gpus = gpus
        self._boards = boards
        self._ranks = ranks
        self._reader = CgroupReader(host.paths.procfs, monotonic=host.monotonic)
        self._missing: set[int] = set()
        self._claimed: tuple[object, ...] = ()
        self._answer = ProviderAnswer(())

    def claims(self) -> ProviderAnswer | None:
        """Return a claim for each process on a GPU, and for each rank process with an owner.

        Raises
        ------
        PermissionError
            If not one control group may be read.
        """
        held = self._gpus.processes()
        gpus = _by_pid(held)
        ranks = set(self._ranks())
        pids = sorted(ranks if self._only_ranks else ranks | set(gpus))[:_MOST_PIDS]
        if not pids:
            self._missing = set()
            return _NOTHING if held else None
        table = self._table.snapshot()
        owners = self._reader.owners([table[pid] for pid in pids if pid in table])
        boards = self._boards()
        shown = [pid for pid in pids if pid in table and (pid in owners or pid in gpus)]
        hidden = self._hidden({pid for pid in pids if pid not in table})
        claimed = shown, owners, gpus, boards
        if claimed != self._claimed or hidden is not None or self._answer.error is not None:
            claims = [self._claim(pid, owners.get(pid), gpus.get(pid, ()), boards) for pid in shown]
            self._claimed, self._answer = claimed, ProviderAnswer(claims, hidden)
        return self._answer

    def _claim(
        self, pid: int, owner: CgroupOwner | None, gpus: Iterable[int], boards: Boards
    ) -> Claim:
        held = tuple(boards.gpu(gpu) for gpu in gpus)
        if owner is None:
            return Claim(self.name, gpus=held, pid=pid, in_pod=False)
        return Claim(
            self.name,
            owner.slurm_job,
            "slurm" if owner.slurm_job else "kubernetes",
            user="" if owner.user_id is None else str(owner.user_id),
            gpus=held,
            pid=pid,
            pod_uid=owner.pod_uid,
            container_id=owner.container_id[:12],
            # A Slurm daemon may run in a pod itself, which its jobs' groups may not show.
            in_pod=True if owner.pod_uid else None,
        )

    def _hidden(self, missing: set[int]) -> HiddenProcessesError | None:
        # A process that just ended is missing once; the driver's list is a second old.
        lasting = missing & self._missing
        self._missing = missing
        if not lasting:
            return None
        return HiddenProcessesError(
            f"{len(lasting)} processes on the GPUs are not below /proc (pid {min(lasting)} is "
            "one); run the exporter in the host's pid namespace (hostPID: true)"
        )


def _by_pid(held: Mapping[int, Iterable[int]]) -> dict[int, list[int]]:
    """Return the GPUs of each process."""
    gpus: dict[int, list[int]] = {}
    for gpu, pids in sorted(held.items()):
        for pid in pids:
            gpus.setdefault(pid, []).append(gpu)
    return gpus
