"""The row about the training processes: heartbeats, steps and process states of the ranks."""

from __future__ import annotations

from links import column_to, series_to
from parts import Panel, areas, graph, properties, rows
from promql import highest, idlest


def panels(job: str) -> list[Panel]:
    """Return the panels about heartbeats, steps and process states.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    links = series_to("node", "job_id", "node")
    steps = f"min by (job_id, node) (rate(rank_steps_total{{{job}}}[$__rate_interval]))"
    slowest = f"min by (job_id, node) (rank_steps_total{{{job}}})"
    behind = f"scalar(max(rank_steps_total{{{job}}})) - {slowest}"
    return [
        graph(
            "Heartbeat age by node",
            "Time since the last heartbeat of the node's slowest rank. In synchronous training all "
            "ages rise together when one rank hangs; the one that rose first is the cause. The 20 "
            "that were highest in the time range.",
            "s",
            (highest(f"job_node:heartbeat_age:seconds{{{job}}}", "job_id, node"), "{{node}}"),
        ).data_links(links),
        graph(
            "Steps per second by node",
            "Of the node's slowest rank. The 20 nodes that were slowest over the time range.",
            "short",
            (idlest(steps), "{{node}}"),
        ).data_links(links),
        graph(
            "Step rate of the job",
            "Finished steps as a share of the job's own usual step rate of the last hour, pauses "
            "left out. Below two thirds for five minutes is the alert PeerwatchJobSlow.",
            "percentunit",
            (f"max(peerwatch_job_progress_ratio{{{job}}})", "present / usual"),
        ).span(8),
        graph(
            "Steps behind the foremost rank",
            "How far the node's slowest rank is behind. More than one step in synchronous training "
            "means that the rank no longer takes part. The 20 that are farthest behind at the end.",
            "short",
            (f"{behind} and bottomk(20, {slowest.replace('}', '} @ end()')})", "{{node}}"),
        )
        .data_links(links)
        .span(8),
        areas(
            "Ranks by process state",
            "Running and sleeping are healthy; stopped, zombie, exited and a lasting disk_sleep "
            "(waiting for I/O) are not.",
            "short",
            (f"sum by (state) (rank_process_state{{{job}}})", "{{state}}"),
        ).span(8),
        graph(
            "Traffic of the job",
            "What a node of the job sends and receives, over RDMA or else the network, as a share "
            "of the job's own usual traffic of the last hour. A checkpoint lowers it for as long "
            "as it takes; what lasts longer is a verdict in the table of evidence.",
            "percentunit",
            (f"max(peerwatch_job_traffic_ratio{{{job}}})", "present / usual"),
        ).span(12),
        graph(
            "Period of its traffic",
            "After how long the traffic repeats itself, as with every step. None where nothing "
            "repeats, or faster than the samples show.",
            "s",
            (f"max(peerwatch_job_traffic_period_seconds{{{job}}})", "period"),
        ).span(12),
        _not_running(job),
    ]


def _not_running(job: str) -> Panel:
    stuck = f'{job}, state=~"disk_sleep|stopped|zombie|exited"'
    return (
        rows(
            "Ranks that do not run",
            "Ranks whose process is stopped, a zombie, gone, or waits for I/O at this moment; 100 "
            "at most.",
            {"node": "Node", "rank": "Rank", "state": "State", "Value": "Present"},
            f"topk(100, max by (node, rank, state) (rank_process_state{{{stuck}}} == 1))",
        )
        .no_value("All ranks run.")
        .height(6)
        .override_by_name("Present", properties({"custom.hidden": True}))
        .override_by_name("Node", column_to("node", node="Node"))
    )
