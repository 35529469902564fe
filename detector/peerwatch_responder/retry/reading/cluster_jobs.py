"""What the cluster of a responder knows of a job: its logs, and how it ended."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.pod_names import PodNaming
from peerwatch_responder.actions.kubernetes.api import Api
from peerwatch_responder.actions.kubernetes.server import ServerOptions
from peerwatch_responder.actions.slurm.cluster import SlurmOptions
from peerwatch_responder.actions.slurm.command import Commands
from peerwatch_responder.retry.reading.bounded import LARGEST, TOTAL_BYTES
from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.retry.reading.files import LogError, read_log
from peerwatch_responder.retry.reading.pod import Pod, pod_of_api
from peerwatch_responder.retry.reading.slurm_job import slurm_job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from peerwatch_responder.advice import Job
    from peerwatch_responder.retry.reading.log_text import LogText
    from peerwatch_responder.settings.config import ResponderConfig

# Chosen: of TOTAL_BYTES each of so many has 4 MiB; each is two requests to the API server.
_MOST_PODS = 32


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """What is known of a job; logs may be none, such as where another node has them."""

    logs: tuple[LogText, ...]
    facts: JobFacts


def job_of_cluster(config: ResponderConfig) -> Callable[[Job], ClusterJob]:
    """Return what gathers the jobs of the settings' cluster.

    It raises ``UnknownError`` where the cluster does not answer.
    """
    kind = config.cluster.type
    if kind == "slurm":
        commands = slurm_commands(config)
        return lambda job: slurm_logs(commands, job.job_id)
    if kind == "kubernetes":
        api = kubernetes_api(config)
        return lambda job: _pods(api, job)
    return lambda job: ClusterJob((), JobFacts(job=job.job_id, job_id=job.job_id))


def slurm_logs(commands: Commands, job_id: str) -> ClusterJob:
    """Return a job of Slurm with what can be read here of its output.

    Raises
    ------
    UnknownError
        If Slurm knows no such job, or does not answer.
    """
    job = slurm_job(commands, job_id)
    logs, notes = outputs_of(job.outputs)
    facts = replace(job.facts, notes=(*job.facts.notes, *notes))
    return ClusterJob(tuple(logs), facts)


def outputs_of(paths: Sequence[Path]) -> tuple[list[LogText], list[str]]:
    """Return the files that are there, and what is to be said of the others."""
    logs, notes = [], []
    for path in paths:
        try:
            logs.append(read_log(path))
        except LogError as error:
            notes.append(f"{error}.")
        except OSError as error:
            notes.append(f"{path}: cannot be read here: {error.strerror}.")
    return logs, notes


def slurm_commands(config: ResponderConfig) -> Commands:
    """Return Slurm's commands, as the settings of the cluster say where that is Slurm.

    Where they name no slurm.conf, that of ``SLURM_CONF`` counts: nothing is changed by them, and
    whoever asks about a job has his own commands find it there.
    """
    given = config.cluster.options if config.cluster.type == "slurm" else {}
    options = SlurmOptions.model_validate(given)
    named = os.environ.get("SLURM_CONF", "")
    configuration = options.configuration or (Path(named) if named else None)
    return Commands(options.folder, configuration, options.timeout_seconds)


def kubernetes_api(config: ResponderConfig) -> Api:
    """Return the API server, as the settings of the cluster say, or that of this pod."""
    options: Mapping[str, Any] = (
        config.cluster.options if config.cluster.type == "kubernetes" else {}
    )
    return Api(ServerOptions.model_validate(options.get("server", {})))


def _pods(api: Api, job: Job) -> ClusterJob:
    """Return the pods of a job, whichever nodes they are on; the first that failed says how."""
    naming = PodNaming("job")
    namespace = job.job_id.partition("/")[0]
    containers: dict[str, int] = {}
    for each in api.list("list pods", f"/api/v1/namespaces/{namespace}/pods"):
        name = str(each["metadata"]["name"])
        if naming.job_id(namespace, name) == job.job_id:
            containers[name] = len((each.get("spec") or {}).get("containers") or ())
    names = sorted(containers)[:_MOST_PODS]
    bound = LARGEST.shared(sum(containers[name] for name in names), TOTAL_BYTES)
    pods: list[Pod] = []
    gone: list[str] = []
    for name in names:
        try:
            pods.append(pod_of_api(api, f"{namespace}/{name}", most_bytes=bound.tail_bytes))
        except LogError as error:
            # Such as a pod that its owner has replaced meanwhile.
            gone.append(f"{error}.")
    facts = [pod.facts for pod in pods]
    failed = next((each for each in facts if each.failed), None)
    first = failed or next(iter(facts), JobFacts(job=job.job_id, job_id=job.job_id))
    notes = tuple(note for each in facts for note in each.notes) + tuple(gone)
    logs = tuple(log for pod in pods for log in pod.logs)
    return ClusterJob(logs, replace(first, notes=notes))
