"""Query texts: pure functions, the only place where the detector builds PromQL."""

from __future__ import annotations

from functools import lru_cache

import jinja2

from peerwatch_common.promql import quoted
from peerwatch_detector.config import ReadMetric

_TEMPLATES = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - PromQL, not HTML


def job_matcher(job_id: str) -> str:
    """Return the label matcher of one training job."""
    return f"job_id={quoted(job_id)}"


def joined_query(metric: ReadMetric, job_id: str | None, window_seconds: int) -> str:
    """Return the expression that does without recording rules.

    Parameters
    ----------
    metric
        What is read.
    job_id
        The training job, or None for all jobs (this is the text of the recording rule).
    window_seconds
        Window of the rates in it.
    """
    return joined_with(metric, "" if job_id is None else job_matcher(job_id), window_seconds)


def joined_with(metric: ReadMetric, matchers: str, window_seconds: int) -> str:
    """Return the same with any matchers of the labels of jobs: ``job_id``, ``node``."""
    template = _TEMPLATES.from_string(metric.expression)
    return template.render(job=matchers, window=f"{window_seconds}s")


def job_query(expression: str, job_id: str) -> str:
    """Return an expression about one training job.

    Parameters
    ----------
    expression
        PromQL in which ``{{ job }}`` stands for the matcher of the job.
    job_id
        The training job.
    """
    return _template(expression).render(job=job_matcher(job_id))


@lru_cache(maxsize=256)
def _template(expression: str) -> jinja2.Template:
    return _TEMPLATES.from_string(expression)


def running_jobs(job_info: str, role_label: str | None = None) -> str:
    """Return the query for (job_id, node) pairs that are running now, with the nodes' roles."""
    by = "job_id, node" if role_label is None else f"job_id, node, {role_label}"
    return f'max by ({by}) ({job_info}{{job_id!="",node!=""}})'


def known_jobs(job_info: str, seconds: int) -> str:
    """Return the query for (job_id, node) pairs seen within the last ``seconds``."""
    return f'max by (job_id, node) (max_over_time({job_info}{{job_id!="",node!=""}}[{seconds}s]))'


def ranks_of_job(job_id: str, seconds: int) -> str:
    """Return the query for a job's ranks of the last ``seconds``, with all their labels."""
    return f"max_over_time(rank_info{{{job_matcher(job_id)}}}[{seconds}s])"


def present_nodes(presence: str) -> str:
    """Return the query for the nodes that can be scraped now."""
    return f'max by (node) ({presence}{{node!=""}})'


def absent_nodes(metric: str, seconds: int) -> str:
    """Return the query for (job_id, node) pairs last published as absent: no exporter tells."""
    finding = f'peerwatch_finding{{metric={quoted(metric)},job_id!="",node!=""}}'
    return f"max by (job_id, node) (last_over_time({finding}[{seconds}s]))"


def published_findings(job_id: str, seconds: int) -> str:
    """Return the query for the findings this or another detector last published for a job."""
    return (
        "max by (node, gpu, metric, method, severity) (last_over_time("
        f"peerwatch_finding_start_timestamp_seconds{{{job_matcher(job_id)}}}[{seconds}s]))"
    )


def published_verdicts(job_id: str) -> str:
    """Return the query for the verdicts that stand about a job, with their sentences."""
    whom, job = "node, rank, class", job_matcher(job_id)
    return (
        f"max by ({whom}, domain, confidence, action) (peerwatch_diagnosis{{{job}}})"
        f" * on ({whom}) group_left (summary)"
        f" topk by ({whom}) (1, peerwatch_diagnosis_info{{{job}}})"
    )


def diagnosed(job_id: str) -> str:
    """Return the query for when a job was last diagnosed (Unix time)."""
    job = job_matcher(job_id)
    return f"max(peerwatch_diagnosis_last_success_timestamp_seconds{{{job}}})"


def published_step_rate(job_id: str, nodes: int, seconds: int) -> str:
    """Return the query for the usual step rate last published of a job, if it had as many nodes."""
    job = job_matcher(job_id)
    return (
        f"max by (metric) (last_over_time(peerwatch_job_usual_step_rate{{{job}}}[{seconds}s])) "
        f"and on () max(last_over_time(peerwatch_job_nodes{{{job}}}[{seconds}s])) == {nodes}"
    )


def members(group: str) -> str:
    """Return the query for the detectors of a group that are there and share jobs."""
    return f"max by (member) (peerwatch_detector_member{{{_of_group(group)}}}) == 1"


def evaluated_jobs(group: str) -> str:
    """Return the query for (job_id, member) pairs: which detector publishes which detection."""
    return f"max by (job_id, member) (peerwatch_job_owner{{{_of_group(group)}}})"


def _of_group(group: str) -> str:
    return f'group={quoted(group)},member!=""'
