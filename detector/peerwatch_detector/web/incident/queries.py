"""What is asked of Prometheus about an incident: PromQL, which the view shows too."""

from __future__ import annotations

from collections.abc import Mapping

from peerwatch_common.promql import in_one, quoted
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.reading import promql

# Findings and diagnoses are published every cycle, 15 s by default, so what holds for less is not
# seen.
_STEP_SECONDS = 15
_OF = "node, gpu, metric, method, severity"
# A deviation of fewer seconds is what healthy nodes show, too. Chosen: two cycles.
LEAST_DEVIATION_SECONDS = 30


def facts(job_id: str, seconds: float) -> dict[str, str]:
    """Return what stood against a job, and what was done, in the last so many seconds.

    Parameters
    ----------
    job_id
        The training job.
    seconds
        Length of the stretch that ends when they are asked.
    """
    job = promql.job_matcher(job_id)
    back, stepped = f"[{seconds:.0f}s]", f"[{seconds:.0f}s:{_STEP_SECONDS}s]"

    def last(by: str, selector: str) -> str:
        return f"max by ({by}) (max_over_time((timestamp({selector})){stepped}))"

    def first(by: str, selector: str) -> str:
        return f"min by ({by}) (min_over_time((timestamp({selector})){stepped}))"

    info = f"peerwatch_diagnosis_info{{{job}"
    return {
        "since": (
            f"min by ({_OF}) "
            f"(min_over_time(peerwatch_finding_start_timestamp_seconds{{{job}}}{back}))"
        ),
        "until": last(_OF, f"peerwatch_finding{{{job}}}"),
        "why": (
            "group by (node, gpu, metric, method, family, summary) "
            f"(max_over_time(peerwatch_finding_info{{{job}}}{back}))"
        ),
        "roots": last("node, class, summary", f'{info},root="1"}}'),
        "verdicts": last("node, rank, class, summary", f'{info},root=""}}'),
        "actions": (
            "max by (node, class, action, confidence, domain) "
            f"(max_over_time(peerwatch_diagnosis{{{job}}}{back}))"
        ),
        "responding": first("node, key", f"peerwatch_response_under_way_info{{{job}}}"),
        "responded": first("node, result, summary", f"peerwatch_response_ended_info{{{job}}}"),
        "dry_run": first(
            "node, result, summary",
            f"(peerwatch_response_ended_info{{{job}}} and on (instance) "
            "peerwatch_response_dry_run == 1)",
        ),
        "alerts": first(
            "alertname, severity, node", f'ALERTS{{{job},alertstate="firing",alertname!=""}}'
        ),
        "nodes": f"max(max_over_time(peerwatch_job_nodes{{{job}}}{back}))",
        "step_rate": f"min(min_over_time(peerwatch_job_progress_ratio{{{job}}}{back}))",
    }


def deviations(job_id: str, node: str, seconds: float) -> str:
    """Return since when a node deviated, in every metric in which it did for some time."""
    matchers = f"{promql.job_matcher(job_id)},node={quoted(node)}"
    lasting = f"peerwatch_continuity_seconds{{{matchers}}} >= {LEAST_DEVIATION_SECONDS}"
    return (
        f"min by (metric) (min_over_time((time() - ({lasting}))[{seconds:.0f}s:{_STEP_SECONDS}s]))"
    )


def listed(seconds: float) -> Mapping[str, str]:
    """Return every finding of the last so many seconds, whatever job it is of."""
    by, back = f"job_id, {_OF}", f"[{seconds:.0f}s]"
    return {
        "since": f"min by ({by}) (last_over_time(peerwatch_finding_start_timestamp_seconds{back}))",
        "standing": f"max by ({by}) (peerwatch_finding)",
        "roots": (
            "group by (job_id, node, summary) "
            f'(last_over_time(peerwatch_diagnosis_info{{root="1"}}{back}))'
        ),
    }


def of_node(metric: MetricConfig, job_id: str, node: str, gpu: str, config: DetectorConfig) -> str:
    """Return a metric of one node; of a GPU of it where one is named, else the mean over them."""
    return _by_node(metric, job_id, f"node={quoted(node)}", gpu, config)


def of_peers(
    metric: MetricConfig, job_id: str, node: str, gpu: str, config: DetectorConfig, share: float
) -> str:
    """Return a quantile of a metric over all nodes of a job but one."""
    others = _by_node(metric, job_id, f"node!={quoted(node)}", gpu, config)
    return f"quantile({share:g}, {others})"


def of_all(metric: MetricConfig, job_id: str, gpu: str, config: DetectorConfig) -> str:
    """Return a metric of every node of a job."""
    return _by_node(metric, job_id, "", gpu, config)


def curve(metric: MetricConfig, job_id: str, node: str, gpu: str, config: DetectorConfig) -> str:
    """Return a node and its peers in one query; the label ``line`` says which is which."""
    lines = {
        "value": of_node(metric, job_id, node, gpu, config),
        **{
            name: of_peers(metric, job_id, node, gpu, config, share)
            for name, share in (("low", 0.1), ("median", 0.5), ("high", 0.9))
        },
    }
    return in_one("line", lines)


def _by_node(
    metric: MetricConfig, job_id: str, matcher: str, gpu: str, config: DetectorConfig
) -> str:
    matchers = ",".join(part for part in (promql.job_matcher(job_id), matcher) if part)
    if config.prometheus.recorded and metric.select == "job_id":
        if gpu:
            matchers += f",gpu={quoted(gpu)}"
        return f"avg by (node) ({metric.recorded}{{{matchers}}})"
    text = promql.joined_with(metric, matchers, config.rate_window_seconds)
    return f"avg by (node) ({text})"
