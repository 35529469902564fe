"""Reads what kube-state-metrics tells of jobs and nodes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from peerwatch_common.pod_names import PodNaming
from peerwatch_reliability.errors import SourceError
from peerwatch_reliability.records import Jobs
from peerwatch_reliability.sources.kubernetes.job_rows import Work, rows_of
from peerwatch_reliability.sources.kubernetes.outages import LostNodes, outages_of
from peerwatch_reliability.sources.kubernetes.pod_runs import runs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_reliability.records import JobRow, OutOfService, Window
    from peerwatch_reliability.settings.config import KubernetesConfig
    from peerwatch_reliability.sources.kubernetes.days import DayReader, Read
    from peerwatch_reliability.sources.kubernetes.facts import Facts, JobFacts, JobKey, PodFacts
    from peerwatch_reliability.sources.kubernetes.pod_runs import PodRun

# Of a whole day, for how much there must be series. Chosen: an hour may be missing, such as while
# Prometheus or kube-state-metrics is updated.
_COVERED_SHARE = 0.95
# What starts the same work again at another time: each of its jobs is work of its own.
_SCHEDULES = frozenset({"CronJob"})


def read_kubernetes(
    reader: DayReader, config: KubernetesConfig, window: Window, history: Window
) -> Jobs:
    """Return the runs of jobs of a window, and the times out of service of a longer one.

    Raises
    ------
    SourceError
        If no day is answered, or kube-state-metrics is not scraped as it must be.
    """
    pods, nodes = reader.pods(window), reader.nodes(history)
    facts = pods.facts
    if pods.unanswered == pods.days:
        raise SourceError(f"kube-state-metrics' series cannot be read ({pods.error})")
    if facts.is_foreign:
        raise SourceError(
            "kube_pod_info has a label exported_pod, so its pod and namespace are those of "
            "kube-state-metrics; scrape it with honor_labels: true"
        )
    if not facts.covered_seconds:
        raise SourceError(
            f"there is no kube_node_info{{{config.selector}}}; kube-state-metrics is not scraped, "
            "or kubernetes.selector does not match it"
        )
    out = outages_of(nodes.facts.states, window.end)
    rows = job_rows(facts, out, config, window)
    return Jobs(rows, out, tuple(_missing(facts, pods, nodes, window)))


def job_rows(
    facts: Facts, out: list[OutOfService], config: KubernetesConfig, window: Window
) -> list[JobRow]:
    """Return the runs of all jobs that touched a window."""
    naming, lost = PodNaming(config.job_id), LostNodes(out)
    until = max((each.seen for each in facts.pods.values()), default=window.end)
    by_work: defaultdict[tuple[str, str, str, float], list[PodFacts]] = defaultdict(list)
    for pod in facts.pods.values():
        if pod.owner[0] not in config.ignored_owners and any(pod.gpus.values()):
            by_work[_work_key(pod, facts.jobs)].append(pod)
    orders: defaultdict[str, int] = defaultdict(int)
    found = []
    for (namespace, kind, name, _), pods in sorted(by_work.items()):
        runs: list[PodRun] = [run for pod in pods for run in runs_of(pod, lost, until)]
        first = min(pods, key=lambda pod: (pod.created or 0.0, pod.name))
        job_id = naming.job_id(namespace, first.name)
        job = _job_of(first, facts.jobs)
        work = Work(job_id, namespace, name, kind, _made(first, job), bool(job and job.is_timeout))
        for row in rows_of(work, sorted(runs, key=lambda run: run.created)):
            if row.end is not None and row.end <= window.start:
                continue
            orders[job_id] += 1
            found.append(replace(row, order=orders[job_id]))
    return found


def _work_key(pod: PodFacts, jobs: Mapping[JobKey, JobFacts]) -> tuple[str, str, str, float]:
    """Return what tells a piece of work from others: its controller, and when that was made.

    A pod's controller may itself have one, as a JobSet's Jobs do; that is the work then, and its
    Jobs may be made anew each time.
    """
    kind, name = pod.owner
    if not kind:
        return pod.namespace, "Pod", pod.name, 0.0
    job = _job_of(pod, jobs)
    if job is not None and job.owner[0] and job.owner[0] not in _SCHEDULES:
        return pod.namespace, *job.owner, 0.0
    return pod.namespace, kind, name, _made(pod, job) or 0.0


def _job_of(pod: PodFacts, jobs: Mapping[JobKey, JobFacts]) -> JobFacts | None:
    return jobs.get((pod.namespace, pod.owner[1])) if pod.owner[0] == "Job" else None


def _made(pod: PodFacts, job: JobFacts | None) -> float | None:
    """Return when a pod's Job was made: the last of its name before the pod; None: not known."""
    made = job.created if job else ()
    return max((each for each in made if each <= (pod.created or each) + 1), default=None)


def _missing(facts: Facts, pods: Read, nodes: Read, window: Window) -> list[str]:
    found = []
    for what, read in (("pods", pods), ("nodes", nodes)):
        if read.unanswered:
            found.append(
                f"{read.unanswered} of {read.days} days of kube-state-metrics' series of {what} "
                f"were not answered ({read.error}): what ended in them is not counted"
            )
    seconds = window.end - window.start
    if facts.covered_seconds < _COVERED_SHARE * seconds:
        found.append(
            f"kube-state-metrics was scraped for {facts.covered_seconds / 86_400:.1f} of "
            f"{seconds / 86_400:g} days: pods that came and went in the others are not counted"
        )
    if facts.pods and not any(pod.starts for pod in facts.pods.values()):
        found.append(
            "there is no kube_pod_container_state_started: a container that began again in its "
            "pod is not counted as an attempt"
        )
    found.append(
        "kube-state-metrics does not say which nodes owners excluded: excl_jobid_count is 0"
    )
    return found
