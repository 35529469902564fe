"""Which training jobs run on this node, and on which of its GPUs.

Each provider is one source of knowledge; an earlier one is trusted more than a later one, and one
that fails does not touch the others. ``job_merge`` says how their answers become jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_common.pod_names import PodNaming
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import DirectoryNotFoundError, PartialData
from peerwatch_exporter.sources.jobs.cgroup_provider import CgroupProvider
from peerwatch_exporter.sources.jobs.claims import Boards, Claim, ProviderAnswer
from peerwatch_exporter.sources.jobs.environment import EnvironmentProvider
from peerwatch_exporter.sources.jobs.mapping import MappingProvider
from peerwatch_exporter.sources.jobs.merge import MOST_JOBS, MOST_ROWS, Jobs, merge
from peerwatch_exporter.sources.jobs.pod_resources import PodResourcesProvider
from peerwatch_exporter.sources.jobs.rank_life import ENDED_SECONDS, RankLife, key_of
from peerwatch_exporter.sources.jobs.ranks import RankFinder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.settings.jobs import HeartbeatConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.identity import GpuIdentity
    from peerwatch_exporter.sources.jobs.claims import Provider
    from peerwatch_exporter.sources.jobs.heartbeat import Heartbeat, HeartbeatFiles
    from peerwatch_exporter.sources.jobs.merge import JobRow

_PROVIDERS = (
    "jobs.mapping_directory; kubelet pod-resources; NVML compute processes and "
    "/proc/<pid>/cgroup; environment of rank processes"
)

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "training job",
        MetricSpec(
            "host_job_info",
            "gauge",
            "1",
            ("job_id", "scheduler"),
            "1 for each training job that runs on this node; joins the job to the node's series. "
            "Scheduler is where its id comes from: mapping, slurm, kubernetes, torchelastic or "
            "peerwatch.",
            f"{_PROVIDERS}; heartbeat files",
        ),
        MetricSpec(
            "gpu_job_info",
            "gauge",
            "1",
            (
                "gpu",
                "uuid",
                "job_id",
                "scheduler",
                "user",
                "job_namespace",
                "job_pod",
                "job_container",
            ),
            "1 for each training job that holds this GPU, once per GPU and job: join it to GPU "
            "series by gpu. What is not known, or not the same for all of the job on this GPU, is "
            "empty. A MIG slice given to a pod has its own uuid and no gpu; user is a number "
            "where no name is known.",
            _PROVIDERS,
        ),
        MetricSpec(
            "gpu_jobs",
            "gauge",
            "1",
            ("gpu",),
            "Training jobs that hold this GPU: more than 1 means that it is shared, 0 that it is "
            "free. Absent where it is not known.",
            _PROVIDERS,
        ),
    ),
    MetricSpec(
        "exporter_job_provider_up",
        "gauge",
        "1",
        ("provider",),
        "1 if this source of job ids could be read, 0 if it failed, wholly or in part; absent "
        "where the node has none such. Providers: mapping, pod_resources, cgroup, environment, "
        "heartbeat.",
        "jobs collector",
    ),
    MetricSpec(
        "exporter_job_mapping_errors_total",
        "counter",
        "1",
        ("reason",),
        "Files of the mapping directory that could not be used, or not as a whole, counted at "
        "every reading; the log names each once. Reasons: name, not_a_file, unreadable, too_large, "
        "binary, job_id, too_many_jobs, too_many_files.",
        "jobs.mapping_directory",
    ),
)


# The kubelet is asked once in ten runs; a call must leave room for the rest of that run: 0.3 of its
# 0.8 s.
_SHARE_OF_DEADLINE = 0.6


class _TooManyJobsError(Exception):
    error_class = "too_many_jobs"


class _IncompleteError(PartialData):
    """A provider failed; ``error_class`` begins with the provider's name."""

    def __init__(self, provider: str, error: Exception) -> None:
        super().__init__(f"{provider}: {error}")
        word = getattr(error, "error_class", None)
        if not isinstance(word, str):
            refused = isinstance(error, PermissionError)
            word = "permission_denied" if refused else "os_error"
        self.error_class = f"{provider}_{word}"


class _HeartbeatProvider:
    """Jobs as ranks name them in their heartbeat files."""

    name = "heartbeat"

    def __init__(
        self,
        config: HeartbeatConfig,
        files: HeartbeatFiles,
        clock: Callable[[], float],
        runs: Callable[[Heartbeat], bool],
    ) -> None:
        self._config = config
        self._files = files
        self._clock = clock
        self._runs = runs
        self._life = RankLife()
        self._job_ids: dict[str, None] = {}
        self._answer = ProviderAnswer(())

    def claims(self) -> ProviderAnswer | None:
        """Return a claim for each job of which a rank writes heartbeats, or did until just now."""
        if self._config.directory is None:
            return None
        now = self._clock()
        found = self._files.read(self._config.directory)
        if found.missing is not None:
            return ProviderAnswer((), DirectoryNotFoundError("heartbeat.directory", found.missing))
        gone = self._life.gone((rank, self._runs(rank)) for rank in found.ranks)
        longest = self._config.forget_after_seconds
        job_ids: dict[str, None] = {}
        for rank in found.ranks:
            counts_for = min(ENDED_SECONDS, longest) if key_of(rank) in gone else longest
            if now - rank.time <= counts_for:
                job_ids[rank.job_id] = None
        if job_ids != self._job_ids:
            claims = [Claim(self.name, job_id, "peerwatch") for job_id in job_ids if job_id]
            self._job_ids, self._answer = job_ids, ProviderAnswer(claims)
        return self._answer


@register(
    "jobs",
    "training jobs on this node and on each of its GPUs",
    topic="Training jobs and ranks",
    metrics=SPECS,
)
class JobsCollector:
    """Publishes the info series that join jobs to the node's series."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._gpus = sources.gpus
        self._process_jobs = sources.process_jobs
        self._inputs: tuple[object, ...] = ()
        self._answers: list[ProviderAnswer] = []
        self._jobs = Jobs()
        self._families: tuple[Family, ...] = ()
        self._identities: tuple[GpuIdentity, ...] = ()
        self._boards = Boards(())
        self._naming = PodNaming(config.jobs.kubernetes_job_id)
        self._mapping = MappingProvider(config.jobs.mapping_directory)
        pods = PodResourcesProvider(
            config.jobs.pod_resources_socket,
            self._known_boards,
            deadline_seconds=_SHARE_OF_DEADLINE * config.deadline_seconds,
            monotonic=sources.monotonic,
        )
        environment = EnvironmentProvider(config, sources, self._gpus, self._known_boards)
        cgroup = CgroupProvider(
            config, sources, self._gpus, self._known_boards, lambda: environment.ranks
        )
        heartbeat = _HeartbeatProvider(
            config.heartbeat, sources.heartbeats, sources.clock, RankFinder(config, sources).runs
        )
        # Asked in this order: the environment finds the ranks whose control groups are read.
        self._providers: tuple[Provider, ...] = (
            self._mapping,
            pods,
            environment,
            *((cgroup,) if config.jobs.cgroups else ()),
            heartbeat,
        )

    def collect(self) -> Iterator[Family]:
        """Yield the jobs, their GPUs, and how each provider fared."""
        identities = self._gpus.boards()
        if identities != self._identities:
            self._identities, self._boards = identities, Boards(identities)
        answers: list[ProviderAnswer] = []
        errors: list[tuple[str, Exception]] = []
        up = family("exporter_job_provider_up")
        for provider in self._providers:
            answer, error = _claims_of(provider)
            if answer is None and error is None:
                continue
            if answer is not None:
                answers.append(answer)
            up.add_metric([provider.name], 0 if error else 1)
            if error is not None:
                errors.append((provider.name, error))
        jobs = self._merged(answers)
        yield from self._families
        yield up
        yield from self._mapping_errors()
        if jobs.dropped:
            limits = f"more than {MOST_JOBS} jobs, or {MOST_ROWS} pairs of GPU and job"
            errors.append(("jobs", _TooManyJobsError(f"{limits}; the rest is left out")))
        if errors:
            raise _IncompleteError(*errors[0])

    def _merged(self, answers: list[ProviderAnswer]) -> Jobs:
        """Return the jobs; they and their families stay as long as nobody says anything else."""
        inputs: tuple[object, ...] = (
            [id(answer) for answer in answers],
            self._boards,
            self._gpus.processes(),
            self._mapping.gpus,
        )
        if inputs != self._inputs:
            claims = [claim for answer in answers for claim in answer.claims]
            self._jobs = merge(claims, self._boards, self._naming)
            self._families = tuple(_families(self._jobs, self._free_gpus(claims)))
            # With the answers themselves, lest another one takes the place of one in memory.
            self._inputs, self._answers = inputs, answers
            self._process_jobs.update(self._jobs.processes)
        return self._jobs

    def _known_boards(self) -> Boards:
        return self._boards

    def _free_gpus(self, claims: list[Claim]) -> set[int]:
        """Return the GPUs that somebody watches: without a job they are free."""
        free = set(self._mapping.gpus)
        visible = {claim.pid for claim in claims if claim.provider == "cgroup"}
        for gpu, pids in self._gpus.processes().items():
            if visible.issuperset(pids):
                free.add(gpu)
        return free

    def _mapping_errors(self) -> Iterator[Family]:
        if self._mapping.errors:
            errors = family("exporter_job_mapping_errors_total")
            for reason, count in self._mapping.errors.items():
                errors.add_metric([reason], count)
            yield errors


def _claims_of(provider: Provider) -> tuple[ProviderAnswer | None, Exception | None]:
    try:
        answer = provider.claims()
    except Exception as error:  # whatever it is, the other providers go on
        return None, error
    return answer, None if answer is None else answer.error


def _families(jobs: Jobs, free_gpus: set[int]) -> Iterator[Family]:
    if jobs.schedulers:
        info = family("host_job_info")
        for job_id, scheduler in jobs.schedulers.items():
            info.add_metric([job_id, scheduler], 1)
        yield info
    if jobs.rows:
        gpu_info = family("gpu_job_info")
        for gpu, job_id, scheduler, user, pod in sorted(jobs.rows.values(), key=_place):
            gpu_info.add_metric([gpu.label, gpu.uuid, job_id, scheduler, user, *pod], 1)
        yield gpu_info
    counts = dict.fromkeys(free_gpus, 0) | jobs.counts()
    if counts:
        count = family("gpu_jobs")
        for index, number in sorted(counts.items()):
            count.add_metric([str(index)], number)
        yield count


def _place(row: JobRow) -> tuple[bool, int, str, str]:
    return row.gpu.number is None, row.gpu.number or 0, row.gpu.uuid, row.job_id
