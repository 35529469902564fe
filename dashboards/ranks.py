"""The row about the training processes: heartbeats, steps and process states of the ranks."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.models import common

from parts import Panel, graph, instant, properties, rows, target


def panels(job: str) -> list[Panel]:
    """Return the panels about heartbeats, steps and process states.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    return [
        graph(
            "Heartbeat age by node",
            "Time since the last heartbeat of the node's slowest rank. In synchronous training all "
            "ages rise together when one rank hangs; the one that rose first is the cause. Only "
            "the 20 highest are drawn.",
            "s",
        )
        .min(0)
        .with_target(
            target(f"topk(20, max by (node) (job_node:heartbeat_age:seconds{{{job}}}))", "{{node}}")
        ),
        graph(
            "Steps per second by node",
            "Of the node's slowest rank. Only the 20 slowest nodes are drawn.",
            "short",
        )
        .min(0)
        .with_target(
            target(
                f"bottomk(20, min by (node) (rate(rank_steps_total{{{job}}}[$__rate_interval])))",
                "{{node}}",
            )
        ),
        graph(
            "Steps behind the foremost rank",
            "How far the node's slowest rank is behind. More than one step in synchronous training "
            "means that the rank no longer takes part. Only the 20 farthest are drawn.",
            "short",
        )
        .min(0)
        .with_target(
            target(
                f"topk(20, scalar(max(rank_steps_total{{{job}}}))"
                f" - min by (node) (rank_steps_total{{{job}}}))",
                "{{node}}",
            )
        ),
        graph(
            "Ranks by process state",
            "Running and sleeping are healthy; stopped, zombie, exited and a lasting disk_sleep "
            "(waiting for I/O) are not.",
            "short",
        )
        .min(0)
        .fill_opacity(40)
        .stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
        .with_target(target(f"sum by (state) (rank_process_state{{{job}}})", "{{state}}")),
        rows(
            "Ranks that do not run",
            "Ranks whose process is stopped, a zombie, gone, or waits for I/O at this moment.",
            "short",
            {"node": "Node", "rank": "Rank", "state": "State", "Value": "Present"},
        )
        .no_value("All ranks run.")
        .height(6)
        .override_by_name("Present", properties({"custom.hidden": True}))
        .with_target(
            instant(
                "max by (node, rank, state) (rank_process_state"
                f'{{{job}, state=~"disk_sleep|stopped|zombie|exited"}} == 1)'
            )
        ),
    ]
