"""Which training jobs run on this node, and on which of its GPUs.

Each provider is one source of job ids: the scheduler's mapping directory, the environment of
rank processes, heartbeat files. An earlier provider wins over a later one for the same job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import NoData, PartialData, register
from peerwatch_exporter.sources.heartbeat import read_heartbeats
from peerwatch_exporter.sources.jobs import read_mapping
from peerwatch_exporter.sources.procfs import Procfs
from peerwatch_exporter.sources.ranks import RankFinder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.ranks import RankIdentity


@dataclass(slots=True)
class _Jobs:
    """What the providers said: the scheduler of each job, the jobs of each GPU."""

    schedulers: dict[str, str] = field(default_factory=dict)
    gpus: dict[int, list[str]] = field(default_factory=dict)

    def add(self, job_id: str, scheduler: str) -> None:
        """Note a job unless a provider before named it already."""
        if job_id:
            self.schedulers.setdefault(job_id, scheduler)

    def add_gpu(self, gpu: int, job_id: str) -> None:
        """Note that a job holds a GPU."""
        job_ids = self.gpus.setdefault(gpu, [])
        if job_id not in job_ids:
            job_ids.append(job_id)


@register("jobs", "training jobs on this node and on each of its GPUs")
class JobsCollector:
    """Publishes the info series that join jobs to the node's series."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._mapping_directory = config.jobs.mapping_directory
        self._environment = config.jobs.environment
        self._heartbeat = config.heartbeat
        self._clock = sources.clock
        self._procfs = Procfs(sources.paths.procfs)
        self._ranks = RankFinder(config, sources)

    def collect(self) -> Iterator[Family]:
        """Yield ``host_job_info``, ``gpu_job_info`` and ``gpu_jobs``."""
        jobs = _Jobs()
        errors = []
        for provide in (self._from_mapping, self._from_environment, self._from_heartbeats):
            try:
                provide(jobs)
            except OSError as error:
                errors.append(error)
        if not jobs.schedulers and not jobs.gpus:
            if errors:
                raise errors[0]
            raise NoData("No training job runs on this node.")
        yield from _families(jobs)
        if errors:
            raise PartialData(str(errors[0])) from errors[0]

    def _from_mapping(self, jobs: _Jobs) -> None:
        if self._mapping_directory is None:
            return
        mapping = read_mapping(self._mapping_directory)
        for job_id in mapping.job_ids:
            jobs.add(job_id, "mapping")
        for gpu, job_ids in mapping.gpus.items():
            jobs.gpus.setdefault(gpu, [])
            for job_id in job_ids:
                jobs.add_gpu(gpu, job_id)

    def _from_environment(self, jobs: _Jobs) -> None:
        if not self._environment:
            return
        mapped = set(jobs.schedulers)
        gpu_count = self._procfs.gpu_count()
        for rank in self._ranks.find():
            identity = rank.identity
            if identity.job_id and identity.job_id not in mapped:
                jobs.add(identity.job_id, identity.scheduler)
                for gpu in _gpus_of(identity, gpu_count):
                    jobs.add_gpu(gpu, identity.job_id)

    def _from_heartbeats(self, jobs: _Jobs) -> None:
        oldest = self._clock() - self._heartbeat.forget_after_seconds
        for heartbeat in read_heartbeats(self._heartbeat.directory).ranks:
            if heartbeat.time >= oldest:
                jobs.add(heartbeat.job_id, "peerwatch")


def _gpus_of(identity: RankIdentity, gpu_count: int) -> tuple[int, ...]:
    """Return the GPUs of a rank: the one its local rank picks, or all that it was given."""
    local_rank = identity.local_rank
    if identity.gpus is None:
        return () if local_rank is None or local_rank >= gpu_count else (local_rank,)
    if local_rank is None or len(identity.gpus) == 1:
        return identity.gpus
    return identity.gpus[local_rank : local_rank + 1]


def _families(jobs: _Jobs) -> Iterator[Family]:
    if jobs.schedulers:
        info = family("host_job_info")
        for job_id, scheduler in jobs.schedulers.items():
            info.add_metric([job_id, scheduler], 1)
        yield info
    if jobs.gpus:
        gpu_info = family("gpu_job_info")
        count = family("gpu_jobs")
        for gpu, job_ids in sorted(jobs.gpus.items()):
            count.add_metric([str(gpu)], len(job_ids))
            for job_id in job_ids:
                gpu_info.add_metric([str(gpu), "", job_id], 1)
        yield gpu_info
        yield count
