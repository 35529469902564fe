"""The row that names who differs: scores of all nodes over time."""

from __future__ import annotations

from parts import Panel, graph, target


def panels(job: str) -> list[Panel]:
    """Return the score panels.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    worst = "Only the 20 highest at each moment are drawn."
    zscore = f"max by (node, metric) (peerwatch_zscore{{{job}}})"
    return [
        graph(
            "Fault score by node",
            f"Evidence against each node; at 1 a finding stands. {worst}",
            "percentunit",
        )
        .min(0)
        .max(1)
        .line_width(2)
        .with_target(
            target(f"topk(20, max by (node) (peerwatch_fault_score{{{job}}}))", "{{node}}")
        ),
        graph(
            "Normal score",
            "How unlike its peers a node is in a metric, in standard deviations of the job's "
            f"nodes: higher is worse. {worst}",
            "short",
        ).with_target(
            target(
                f"topk(20, max by (node, metric) (peerwatch_normal_score{{{job}}}))",
                "{{node}} {{metric}}",
            )
        ),
        graph(
            "Continuity",
            "For how long a node has been the candidate in a metric without a break. It becomes a "
            f"finding at the continuity threshold (240 s, less while the job waits). {worst}",
            "s",
        )
        .min(0)
        .with_target(
            target(
                f"topk(20, max by (node, metric) (peerwatch_continuity_seconds{{{job}}}))",
                "{{node}} {{metric}}",
            )
        ),
        graph(
            "Z-score",
            "Distance of a node's value from the job's mean, in standard deviations; below zero is "
            "a value lower than the others'. Only the 20 farthest from zero are drawn.",
            "short",
        )
        .axis_centered_zero(True)
        .with_target(target(f"{zscore} and topk(20, abs({zscore}))", "{{node}} {{metric}}")),
    ]
