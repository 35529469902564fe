"""Makes one list of jobs of what all providers know: each job once, each (GPU, job) once.

Claims about the same process, or with the same job id, are about the same job. Its id is the first
there is of

1. the id the job gives itself for Peerwatch (``PEERWATCH_JOB_ID``),
2. the mapping directory's,
3. the environment's (Slurm, torchrun), and Slurm's by the control group, and a heartbeat's,
4. what the pod's name gives (``jobs.kubernetes_job_id``), and last the pod's uid.

Its GPUs are those of the mapping directory, of the driver's processes and of its pod; only where
none of them knows, those its environment makes likely. A pod belongs to the job of the processes
inside. A Slurm daemon's pod has several jobs, so Slurm's and mapped jobs take a pod's name for
the GPUs they hold, but not the pod's other GPUs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.sources.jobs.claims import ClaimedGpu, Pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from peerwatch_common.pod_names import PodNaming
    from peerwatch_exporter.sources.jobs.claims import Boards, Claim

# Chosen: 16 GPUs in seven instances are 112, with one or a few jobs each; bounds the exposition.
MOST_JOBS = 256
MOST_ROWS = 1024

_KUBERNETES = "kubernetes"
_NO_POD = Pod("", "", "")
_RANK = {"mapping": 1, "environment": 2, "cgroup": 3, "heartbeat": 4}
# These know which GPUs of a pod are theirs.
_KNOW_THEIR_GPUS = ("mapping", "slurm")


class JobRow(NamedTuple):
    """One job on one GPU; what is not known, or not the same throughout, is empty."""

    gpu: ClaimedGpu
    job_id: str
    scheduler: str
    user: str
    pod: Pod


@dataclass(slots=True)
class Jobs:
    """The node's jobs and the scheduler of each, in order; their GPUs; the job of each process."""

    schedulers: dict[str, str] = field(default_factory=dict)
    rows: dict[tuple[str, str], JobRow] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    dropped: int = 0

    def add(self, job_id: str, scheduler: str) -> bool:
        """Note a job; False if there are too many."""
        if job_id not in self.schedulers and len(self.schedulers) >= MOST_JOBS:
            self.dropped += 1
            return False
        self.schedulers.setdefault(job_id, scheduler)
        return True

    def add_row(self, gpu: ClaimedGpu, job_id: str, scheduler: str, user: str, pod: Pod) -> None:
        """Note that a job holds a GPU, once however often it is said."""
        if not self.add(job_id, scheduler):
            return
        key = gpu.label or gpu.uuid, job_id
        old = self.rows.get(key)
        if old is None and len(self.rows) >= MOST_ROWS:
            self.dropped += 1
            return
        if old is not None:
            user = old.user or user
            pod = _common(old.pod, pod)
        self.rows[key] = JobRow(gpu, job_id, self.schedulers[job_id], user, pod)

    def counts(self) -> dict[int, int]:
        """Return the number of jobs of each GPU that has one, by index."""
        counts: dict[int, int] = defaultdict(int)
        for row in self.rows.values():
            if row.gpu.number is not None:
                counts[row.gpu.number] += 1
        return dict(counts)


def _common(first: Pod, second: Pod) -> Pod:
    if not first.name or not second.name:
        return first if first.name else second
    return Pod(*(a if a == b else "" for a, b in zip(first, second, strict=True)))


@dataclass(slots=True, eq=False)
class _Workload:
    """All that is said of one process, or of one job by somebody who knows no process."""

    pid: int | None = None
    names: list[tuple[int, str]] = field(default_factory=list)
    scheduler: str = ""
    user: str = ""
    gpus: dict[ClaimedGpu, None] = field(default_factory=dict)
    possible_gpus: tuple[ClaimedGpu, ...] = ()
    pod_uid: str = ""
    container_id: str = ""
    pod_hint: tuple[str, str] = ("", "")
    in_pod: bool | None = None
    job_id: str = ""

    def take(self, claim: Claim) -> None:
        """Add a claim; those of the more trusted providers come first."""
        if claim.job_id:
            rank = 0 if claim.explicit else _RANK[claim.provider]
            self.names.append((rank, claim.job_id))
            if claim.alias:
                self.names.append((_RANK[claim.provider], claim.alias))
            self.scheduler = self.scheduler or claim.scheduler
        self.user = self.user or claim.user
        self.gpus |= dict.fromkeys(claim.gpus)
        self.possible_gpus = self.possible_gpus or claim.possible_gpus
        self.pod_uid = self.pod_uid or claim.pod_uid
        self.container_id = self.container_id or claim.container_id
        self.pod_hint = claim.pod_hint if claim.pod_hint[0] else self.pod_hint
        if claim.in_pod or self.in_pod is None:
            self.in_pod = claim.in_pod


class _Pods:
    """The pods the kubelet reported, and which of them a workload runs in."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._by_name: dict[str, dict[Pod, tuple[ClaimedGpu, ...]]] = defaultdict(dict)
        self._by_gpu: dict[ClaimedGpu, dict[Pod, None]] = defaultdict(dict)
        self._unresolved: dict[Pod, None] = {}
        self.holding: dict[Pod, tuple[ClaimedGpu, ...]] = {}
        for claim in claims:
            if claim.pod is None:
                continue
            self._by_name[claim.pod.name][claim.pod] = claim.gpus
            if claim.gpus:
                self.holding[claim.pod] = claim.gpus
            for gpu in claim.gpus:
                self._by_gpu[gpu][claim.pod] = None
                if gpu.number is None:
                    self._unresolved[claim.pod] = None

    def find(self, workload: _Workload, gpu: ClaimedGpu | None) -> Pod | None:
        """Return the pod a workload runs in, with its container if that is clear."""
        if workload.in_pod is False:
            return None
        name, namespace = workload.pod_hint
        hinted = [pod for pod in self._by_name.get(name, ()) if namespace in ("", pod.namespace)]
        on_gpu = self._by_gpu.get(gpu, {}) if gpu is not None else {}
        if hinted:
            return _single([pod for pod in hinted if pod in on_gpu] or hinted)
        if gpu is None:
            return _single(self.holding) if workload.in_pod else None
        # A slice of a GPU is held under its own uuid, whose GPU only the driver knows.
        return _single(on_gpu or (self._unresolved if workload.in_pod else ()))


def _single(pods: Iterable[Pod]) -> Pod | None:
    pods = list(pods)
    if len({(pod.namespace, pod.name) for pod in pods}) != 1:
        return None
    return pods[0] if len(pods) == 1 else pods[0]._replace(container="")


def merge(claims: Sequence[Claim], boards: Boards, naming: PodNaming) -> Jobs:
    """Return the jobs of all claims.

    Parameters
    ----------
    claims
        What the providers said, the most trusted provider first.
    boards
        The node's GPUs.
    naming
        Names the jobs of pods.
    """
    workloads = _workloads(claims, boards)
    _name(workloads)
    return _Merger(workloads, _Pods(claims), naming).jobs()


def _workloads(claims: Iterable[Claim], boards: Boards) -> list[_Workload]:
    by_pid: dict[int, _Workload] = {}
    workloads = []
    for claim in claims:
        if claim.pod is not None:
            continue
        workload = None if claim.pid is None else by_pid.get(claim.pid)
        if workload is None:
            workload = _Workload(claim.pid)
            workloads.append(workload)
            if claim.pid is not None:
                by_pid[claim.pid] = workload
        workload.take(claim)
    for workload in workloads:
        workload.gpus = {_with_uuid(gpu, boards): None for gpu in workload.gpus}
    return workloads


def _with_uuid(gpu: ClaimedGpu, boards: Boards) -> ClaimedGpu:
    return boards.gpu(gpu.number) if gpu.number is not None and not gpu.uuid else gpu


def _name(workloads: Sequence[_Workload]) -> None:
    """Give workloads with a name in common one job id, and settle their GPUs."""
    for group in _groups(workloads):
        _, job_id = min((name for workload in group for name in workload.names), key=_first_of)
        scheduler = next(workload.scheduler for workload in group)
        placed = any(workload.gpus for workload in group)
        user = next((workload.user for workload in group if workload.user), "")
        for workload in group:
            workload.job_id = job_id
            workload.scheduler = scheduler
            workload.user = workload.user or user
            if not placed:
                workload.gpus = dict.fromkeys(workload.possible_gpus)


def _first_of(name: tuple[int, str]) -> int:
    return name[0]


def _groups(workloads: Iterable[_Workload]) -> Iterator[list[_Workload]]:
    group_of: dict[str, list[_Workload]] = {}
    for workload in workloads:
        group = [workload]
        for _, name in workload.names:
            other = group_of.get(name, group)
            if other is not group:
                other += [each for each in group if each not in other]
                group = other
        for member in group:
            group_of |= {name: group for _, name in member.names}
    seen: set[int] = set()
    for group in group_of.values():
        if id(group) not in seen:
            seen.add(id(group))
            yield group


class _Merger:
    """Joins workloads and pods."""

    def __init__(self, workloads: Sequence[_Workload], pods: _Pods, naming: PodNaming) -> None:
        self._pods = pods
        self._naming = naming
        self._placed = [
            (workload, gpu, pods.find(workload, gpu))
            for workload in workloads
            for gpu in workload.gpus or (None,)
        ]
        self._inside = self._jobs_inside()
        self._attached = {
            (gpu, pod[:2]) for workload, gpu, pod in self._placed if pod and workload.job_id
        }
        self._known_jobs = {gpu for workload, gpu, _ in self._placed if workload.job_id}
        self._jobs = Jobs()

    def jobs(self) -> Jobs:
        """Return all jobs: first those with a name of their own, then those of pods."""
        for workload, gpu, pod in self._placed:
            if workload.job_id:
                self._note(workload, workload.job_id)
                self._add(gpu, workload.job_id, workload, pod)
        for workload, gpu, pod in self._placed:
            if not workload.job_id:
                self._add_nameless(workload, gpu, pod)
        for pod, gpus in self._pods.holding.items():
            for gpu in gpus:
                self._add_pod(pod, gpu)
        return self._jobs

    def _jobs_inside(self) -> Mapping[tuple[str, str], _Workload]:
        """Return the only job inside each pod that has just one, by (namespace, pod)."""
        inside: dict[tuple[str, str], dict[str, _Workload]] = defaultdict(dict)
        for workload, _, pod in self._placed:
            if pod is not None and workload.job_id:
                inside[pod[:2]].setdefault(workload.job_id, workload)
        return {
            pod: next(iter(jobs.values()))
            for pod, jobs in inside.items()
            if len(jobs) == 1 and next(iter(jobs.values())).scheduler not in _KNOW_THEIR_GPUS
        }

    def _add(
        self, gpu: ClaimedGpu | None, job_id: str, workload: _Workload, pod: Pod | None
    ) -> None:
        scheduler = workload.scheduler or _KUBERNETES
        if gpu is None:
            self._jobs.add(job_id, scheduler)
            return
        unnamed = Pod("", "", workload.container_id)
        self._jobs.add_row(gpu, job_id, scheduler, workload.user, pod or unnamed)

    def _add_nameless(self, workload: _Workload, gpu: ClaimedGpu | None, pod: Pod | None) -> None:
        if pod is not None:
            owner = self._inside.get(pod[:2])
            if owner is None:
                owner, job_id = workload, self._naming.job_id(pod.namespace, pod.name)
            else:
                job_id = owner.job_id
            self._note(workload, job_id)
            self._add(gpu, job_id, owner, pod)
        elif workload.pod_uid and gpu is not None and gpu not in self._known_jobs:
            self._note(workload, workload.pod_uid)
            self._add(gpu, workload.pod_uid, workload, None)

    def _note(self, workload: _Workload, job_id: str) -> None:
        # A process on several GPUs may be in a pod that is known for only one of them.
        if workload.pid is not None:
            self._jobs.processes.setdefault(workload.pid, job_id)

    def _add_pod(self, pod: Pod, gpu: ClaimedGpu) -> None:
        owner = self._inside.get(pod[:2])
        if owner is not None:
            self._jobs.add_row(gpu, owner.job_id, owner.scheduler, owner.user, pod)
        elif (gpu, pod[:2]) not in self._attached:
            job_id = self._naming.job_id(pod.namespace, pod.name)
            self._jobs.add_row(gpu, job_id, _KUBERNETES, "", pod)
