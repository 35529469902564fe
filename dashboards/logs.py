"""The row about what a job's logs say: errors by class over time, who was first, about whom.

Series exist where exporters follow logs (``logs.enabled``, docs/exporter.md).
"""

from __future__ import annotations

from links import column_to, series_to
from parts import RED, YELLOW, Panel, graph, properties, rows, value_map
from promql import busiest

_SHOWN = 50
_WINDOW = "[$__rate_interval]"
_CLASSES = (
    "H node, N network, D symptom of another rank's fault, S storage, U user's program, P platform"
)
_NEEDS = "No line is known: nothing is wrong, or nobody follows the logs (logs.enabled)."


def panels(job: str) -> list[Panel]:
    """Return the panels about the logs of a training job.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    return [_classes(job), _nodes(job), _first(job), _peers(job)]


def _classes(job: str) -> Panel:
    return graph(
        "Lines with errors by class",
        "Lines of the ranks' logs that a known error matches, in each interval, by whose fault "
        f"they speak of: {_CLASSES}. The class that rose first says more than the one that is "
        "highest: one fault makes every rank write lines of class D.",
        "short",
        (
            f'sum by (class) (increase(log_class_events_total{{{job}, class!="X"}}{_WINDOW}))',
            "{{class}}",
        ),
    ).no_value(_NEEDS)


def _nodes(job: str) -> Panel:
    lines = (
        f'sum by (job_id, node) (increase(log_class_events_total{{{job}, class!="X"}}{_WINDOW}))'
    )
    return (
        graph(
            "Lines with errors by node",
            "The same by node, of all classes. The 20 with most lines in the time range.",
            "short",
            (busiest(lines), "{{node}}"),
        )
        .no_value(_NEEDS)
        .data_links(series_to("node", "job_id", "node"))
    )


def _first(job: str) -> Panel:
    who = "cluster, job_id, node, rank, class, signature"
    times = f"min by ({who}) (log_first_error_timestamp_seconds{{{job}}})"
    age = f"topk({_SHOWN}, time() - {times})"
    info = f"topk by ({who}) (1, log_first_error_info{{{job}}})"
    columns = {
        "Value": "Ago",
        "cluster": "Cluster",
        "job_id": "Job",
        "node": "Node",
        "rank": "Rank",
        "class": "Class",
        "signature": "Error",
        "text": "First line",
    }
    return (
        rows(
            "First error of each rank",
            "Time since the first line of a rank, since its process was started, that is neither "
            f"noise nor follows from another error: the earliest {_SHOWN}, who was first stands at "
            f"the top. {_CLASSES}. The line itself is there only with logs.first_error.",
            columns,
            # A join keeps no order.
            f"sort_desc(({age} * on ({who}) group_left (text) ({info}))"
            f" or ({age} unless on ({who}) {info}))",
        )
        .no_value(_NEEDS)
        .override_by_name("Ago", properties({"unit": "s", "decimals": 1}))
        .override_by_name("Error", properties({"custom.minWidth": 220}))
        .override_by_name(
            "Class",
            properties(
                {
                    "mappings": value_map(("H", "H", RED), ("N", "N", RED), ("S", "S", YELLOW)),
                    "custom.cellOptions": {"type": "color-text"},
                }
            ),
        )
        .override_by_name("Node", column_to("node", job_id="Job", node="Node"))
    )


def _peers(job: str) -> Panel:
    who = "cluster, job_id, node, rank, peer, signature"
    columns = {
        "cluster": "Cluster",
        "job_id": "Job",
        "node": "Node",
        "rank": "Rank",
        "peer": "About",
        "signature": "Error",
        "Value": "Lines",
    }
    return (
        rows(
            "Who complains about whom",
            "Lines in which a rank names a peer: its rank, or else its address or host name. One "
            f"peer that all complain about is worth a look. At most {_SHOWN}.",
            columns,
            f"topk({_SHOWN}, sum by ({who}) (log_peer_errors_total{{{job}}}) > 0)",
        )
        .no_value("Nobody complains, or nobody follows the logs (logs.enabled).")
        .override_by_name("Node", column_to("node", job_id="Job", node="Node"))
    )
