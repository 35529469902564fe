"""The training job of a process, from its environment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.environments import EnvironmentIndex
from peerwatch_exporter.sources.host.procfs import Procfs
from peerwatch_exporter.sources.host.usage import belongs_to_node
from peerwatch_exporter.sources.jobs.claims import Claim, ClaimedGpu, ProviderAnswer
from peerwatch_exporter.sources.jobs.mapping import is_job_id
from peerwatch_exporter.sources.jobs.rank_life import ENDED_SECONDS
from peerwatch_exporter.sources.jobs.ranks import job_of, rank_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources.gpu.facts import GpuFacts
    from peerwatch_exporter.sources.host.access import HostAccess
    from peerwatch_exporter.sources.host.processes import Process, ProcessKey
    from peerwatch_exporter.sources.jobs.claims import Boards

# Slurm lists the board's own indices; CUDA's count from 0 inside a container or cgroup.
_GPU_VARIABLES = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
# NVIDIA's device plugin names the boards of a container here, by uuid.
_CONTAINER_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_USER_VARIABLES = ("SLURM_JOB_USER", "PEERWATCH_JOB_USER")
# Every container of a pod has the first; the second is what manifests commonly call their own.
_IN_POD_VARIABLE = "KUBERNETES_SERVICE_HOST"
_POD_VARIABLES = ("POD_NAME", "HOSTNAME")
_LONGEST_USER = 64  # useradd allows 32
# The number of GPUs is asked again after this time: as often as their jobs.
_VALID_SECONDS = 10.0
_MOST_GPUS = 64  # four times the largest nodes'
_RANGE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What one environment holds about a job.

    Parameters
    ----------
    job_id, scheduler, alias, explicit, user, pod_hint, in_pod
        As in ``Claim``.
    is_rank
        It is a rank's.
    local_rank
        The rank's number on its node.
    devices
        GPUs in the order the process knows them, by index or uuid; None if no variable names any.
    container_devices
        uuids of the boards of the container, in its order.
    """

    job_id: str
    scheduler: str
    alias: str
    explicit: bool
    user: str
    pod_hint: tuple[str, str]
    in_pod: bool
    is_rank: bool
    local_rank: int | None
    devices: tuple[str, ...] | None
    container_devices: tuple[str, ...]


def job_facts(environment: Mapping[str, str]) -> JobFacts | None:
    """Return what an environment holds about a job, or None if that is nothing."""
    job_id, scheduler = job_of(environment)
    identity = rank_identity(environment)
    in_pod = _IN_POD_VARIABLE in environment
    if not job_id and identity is None and not in_pod:
        return None
    slurm_id = environment.get("SLURM_JOB_ID", "").strip()
    devices = [environment[name] for name in _GPU_VARIABLES if name in environment]
    return JobFacts(
        job_id=job_id,
        # A job may choose its id, not its scheduler.
        scheduler=("slurm" if slurm_id else scheduler) if job_id else "",
        alias=slurm_id if job_id and is_job_id(slurm_id) else "",
        explicit=bool(job_id) and scheduler == "peerwatch",
        user=_first(environment, _USER_VARIABLES)[:_LONGEST_USER],
        pod_hint=(_first(environment, _POD_VARIABLES), environment.get("POD_NAMESPACE", "")),
        in_pod=in_pod,
        is_rank=identity is not None,
        local_rank=None if identity is None else identity.local_rank,
        devices=_devices(devices[0]) if devices else None,
        container_devices=_uuids(environment.get(_CONTAINER_VARIABLE, "")),
    )


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _devices(text: str) -> tuple[str, ...]:
    """Return the GPUs of ``0,2``, ``0-3`` or ``GPU-8f2c,GPU-91aa``; of anything else none."""
    devices: list[str] = []
    for part in text[: 64 * _MOST_GPUS].split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is not None:
            indexes = range(int(match[1]), int(match[2] or match[1]) + 1)
            # Anybody may start a process that names a million of them.
            devices += map(str, indexes[: max(0, _MOST_GPUS - len(devices))])
        elif part.strip().startswith("GPU-"):
            devices.append(part.strip())
        else:
            return ()
    return tuple(devices[:_MOST_GPUS])


def _uuids(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text[: 64 * _MOST_GPUS].split(","))
    return parts if all(part.startswith("GPU-") for part in parts) else ()


def possible_gpus(facts: JobFacts, boards: Boards, gpu_count: int) -> tuple[ClaimedGpu, ...]:
    """Return the GPUs of a process: the one its local rank picks, or all that it was given.

    Inside a pod an index counts the container's own boards, so without their uuids it means
    nothing.
    """
    known = facts.devices
    if known is None and facts.container_devices:
        known = facts.container_devices
    if known is None:
        rank = facts.local_rank
        count = max(gpu_count, len(boards))
        return () if rank is None or rank >= count or facts.in_pod else (boards.gpu(rank),)
    if facts.local_rank is not None and len(known) > 1:
        known = known[facts.local_rank : facts.local_rank + 1]
    gpus = (_gpu(device, facts, boards) for device in known)
    return tuple(gpu for gpu in gpus if gpu is not None)


def _gpu(device: str, facts: JobFacts, boards: Boards) -> ClaimedGpu | None:
    if not device.isdigit():
        return boards.find(device)
    index = int(device)
    if facts.container_devices:
        inside = index < len(facts.container_devices)
        return boards.find(facts.container_devices[index]) if inside else None
    return None if facts.in_pod else boards.gpu(index)


class EnvironmentProvider:
    """Jobs as the environment of rank processes, and of processes on a GPU, names them.

    Parameters
    ----------
    config, host, gpus
        Settings, the node's processes, and the driver's view of them.
    boards
        The node's GPUs now.

    Attributes
    ----------
    ranks
        Pids of the rank processes found last.
    """

    name = "environment"

    def __init__(
        self, config: ExporterConfig, host: HostAccess, gpus: GpuFacts, boards: Callable[[], Boards]
    ) -> None:
        self._enabled = config.jobs.environment
        self._node_variables = config.scope.environment if config.scope.kind == "processes" else {}
        self._procfs = Procfs(host.paths.procfs)
        self._gpus = gpus
        self._boards = boards
        self._monotonic = host.monotonic
        self._index = EnvironmentIndex(host.processes, self._classify, monotonic=host.monotonic)
        self.ranks: tuple[int, ...] = ()
        self._dead: dict[ProcessKey, float] = {}
        self._claimed: tuple[object, ...] = ()
        self._claimed_at = -_VALID_SECONDS
        self._answer = ProviderAnswer(())

    def claims(self) -> ProviderAnswer | None:
        """Return a claim for each rank process, and for each process on a GPU.

        Raises
        ------
        PermissionError
            If not one environment may be read.
        """
        self.ranks = ()
        if not self._enabled:
            return None
        on_gpus = {pid for pids in self._gpus.processes().values() for pid in pids}
        answers = self._index.find()
        dead = self._long_dead(process for process, _ in answers)
        found = [
            (process.pid, facts)
            for process, facts in answers
            if (facts.is_rank or process.pid in on_gpus) and process.key not in dead
        ]
        self.ranks = tuple(pid for pid, _ in found)
        boards = self._boards()
        now = self._monotonic()
        if (found, boards) != self._claimed or now - self._claimed_at >= _VALID_SECONDS:
            gpu_count = self._procfs.gpu_count() if found else 0
            claims = [self._claim(pid, facts, boards, gpu_count) for pid, facts in found]
            self._claimed, self._claimed_at = (found, boards), now
            if claims != self._answer.claims:
                self._answer = ProviderAnswer(claims)
        return self._answer

    def _long_dead(self, processes: Iterable[Process]) -> set[ProcessKey]:
        """Return the zombies that have been dead for too long to tell of a job that runs."""
        now = self._monotonic()
        self._dead = {
            process.key: self._dead.get(process.key, now)
            for process in processes
            if process.is_dead
        }
        return {key for key, since in self._dead.items() if now - since > ENDED_SECONDS}

    def _claim(self, pid: int, facts: JobFacts, boards: Boards, gpu_count: int) -> Claim:
        return Claim(
            self.name,
            facts.job_id,
            facts.scheduler,
            alias=facts.alias,
            explicit=facts.explicit,
            user=facts.user,
            possible_gpus=possible_gpus(facts, boards, gpu_count),
            pid=pid,
            pod_hint=facts.pod_hint,
            in_pod=facts.in_pod or None,
        )

    def _classify(self, environment: Mapping[str, str]) -> JobFacts | None:
        return (
            job_facts(environment) if belongs_to_node(environment, self._node_variables) else None
        )
