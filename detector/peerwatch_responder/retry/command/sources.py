"""Gathers the logs of the job that the flags name, and what is known of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.retry.reading.files import read_logs

if TYPE_CHECKING:
    import argparse

    from peerwatch_responder.retry.reading.log_text import LogText
    from peerwatch_responder.settings.config import ResponderConfig


def logs_and_facts(
    options: argparse.Namespace, config: ResponderConfig
) -> tuple[list[LogText], JobFacts]:
    """Return the logs and the facts of a job; what the flags say outranks the scheduler.

    Raises
    ------
    PeerwatchError, UnknownError
        If they cannot be read.
    """
    logs, facts = _of_cluster(options, config)
    logs += read_logs(options.logs)
    given = {
        "job": options.job,
        "attempt": options.attempt,
        "exit_code": options.exit_code,
        "reason": options.reason,
        "nodes": (options.node,) if options.node else (),
    }
    said = {name: value for name, value in given.items() if value not in ("", None, ())}
    if "exit_code" in said or "reason" in said:
        said |= {"text": "", "source": "the command line"}
    return logs, replace(facts, **said)


def _of_cluster(
    options: argparse.Namespace, config: ResponderConfig
) -> tuple[list[LogText], JobFacts]:
    """Return what the scheduler has of the job, if the flags name one."""
    if not (options.slurm_job_id or options.pod):
        return [], JobFacts()
    # Their clients take as long to load as a log takes to read.
    from peerwatch_responder.retry.reading.cluster_jobs import (  # noqa: PLC0415 - as above
        kubernetes_api,
        slurm_commands,
        slurm_logs,
    )
    from peerwatch_responder.retry.reading.pod import (  # noqa: PLC0415 - as above
        pod_of_api,
        pod_of_folder,
    )

    if options.slurm_job_id:
        job = slurm_logs(slurm_commands(config), options.slurm_job_id)
        return list(job.logs), job.facts
    if options.pods_directory is not None:
        pod = pod_of_folder(options.pods_directory, options.pod)
    else:
        pod = pod_of_api(kubernetes_api(config), options.pod)
    return list(pod.logs), pod.facts
