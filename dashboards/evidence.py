"""The row that names who differs: a heat map of nodes and time, then the scores behind it."""

from __future__ import annotations

from links import series_to
from parts import Panel, graph, scores
from promql import highest

_ROWS = 40


def panels(job: str) -> list[Panel]:
    """Return the score panels.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    links = series_to("node", "job_id", "node")
    return [
        scores(
            "Who differs: fault score by node",
            "Evidence against each node over time, from green (like its peers) to red (a finding "
            f"stands). The {_ROWS} nodes with the highest score in the time range.",
            highest(f"peerwatch_fault_score{{{job}}}", "job_id, node", _ROWS),
            "{{node}}",
        ).data_links(links),
        graph(
            "Continuity",
            "For how long a node has been the candidate in a metric without a break. It becomes a "
            "finding at the continuity threshold (240 s, less while the job waits). The 20 that "
            "were highest in the time range.",
            "s",
            (
                highest(f"peerwatch_continuity_seconds{{{job}}}", "job_id, node, metric"),
                "{{node}} {{metric}}",
            ),
        )
        .span(24)
        .data_links(links),
        graph(
            "Normal score",
            "Mean of a minute: how unlike its peers a node is in a metric, in standard deviations "
            "of the job's nodes: higher is worse. The 10 that were farthest from zero on the mean "
            "of the time range.",
            "short",
            (
                _farthest(f"peerwatch_normal_score{{{job}}}", "job_id, node, metric"),
                "{{node}} {{metric}}",
            ),
        ).data_links(links),
        graph(
            "Z-score",
            "Mean of a minute: distance of a node's value from the job's mean, in standard "
            "deviations; below zero is a value lower than the others'. The 20 that were farthest "
            "from zero in the time range.",
            "short",
            (
                _farthest(f"peerwatch_zscore{{{job}}}", "job_id, node, metric"),
                "{{node}} {{metric}}",
            ),
            signed=True,
        )
        .axis_centered_zero(True)
        .data_links(links),
    ]


def _farthest(score: str, by: str) -> str:
    """Return the scores that were farthest from zero on the mean of the time range.

    A healthy node has a high score in some metric for seconds, again and again: means of a minute
    show who stays there.
    """
    mean = f"max by ({by}) (abs(avg_over_time({score}[$__range] @ end())))"
    return f"max by ({by}) (avg_over_time({score}[1m])) and topk(10, {mean})"
