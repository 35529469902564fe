"""How the nodes of a job are set up: who differs from most, and what changed while it ran."""

from __future__ import annotations

from links import column_to
from parts import Panel, properties, rows

_SHOWN = 100


def panels(job: str) -> list[Panel]:
    """Return the tables of a training job.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    return [_minorities(job), _changes(job), _splits(job)]


def of_node(node: str) -> list[Panel]:
    """Return the table of everything that is known of a node's set-up.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    everything = (
        f"group by (job_id, key, value) (node_config_info{{{node}}})"
        f" or group by (job_id, key, value) (rank_config_info{{{node}}})"
    )
    return [
        rows(
            "How the node is set up",
            "Kernel, drivers, firmware, sysctls, PCIe and NICs, and with which variables and "
            "limits its ranks run. Of devices that agree a key names the aspect, of others also "
            "the device.",
            {"key": "Key", "value": "Value", "job_id": "Job"},
            f"topk(400, {everything})",
        )
        .height(12)
        .override_by_name("Value", properties({"custom.minWidth": 420}))
        .no_value("The exporter does not run its collector node_config.")
    ]


def _minorities(job: str) -> Panel:
    who = "cluster, job_id, node, key"
    info = f"topk by ({who}) (1, peerwatch_job_config_minority_info{{{job}}})"
    return (
        rows(
            "Nodes set up unlike most",
            "What more than half of the job's nodes have otherwise. At most "
            f"{_SHOWN}; the smallest minorities are published first.",
            {"node": "Node", "key": "Key", "value": "Has", "majority": "Most have"},
            f"topk({_SHOWN}, max by ({who}) (peerwatch_job_config_minority{{{job}}})"
            f" * on ({who}) group_left (value, majority) {info})",
        )
        .override_by_name("Node", column_to("node", node="Node"))
        .no_value("All nodes agree, or nobody compares them.")
    )


def _changes(job: str) -> Panel:
    who = "cluster, job_id, node, key"
    times = f"max by ({who}) (peerwatch_job_config_change_timestamp_seconds{{{job}}})"
    info = f"topk by ({who}) (1, peerwatch_job_config_change_info{{{job}}})"
    return (
        rows(
            "Changed while the job runs",
            "Time since a setting of a node got another value under the running job.",
            {"Value": "Ago", "node": "Node", "key": "Key", "before": "Before", "after": "After"},
            f"topk({_SHOWN}, (time() - {times}) * on ({who}) group_left (before, after) {info})",
        )
        .override_by_name("Ago", properties({"unit": "s"}))
        .override_by_name("Node", column_to("node", node="Node"))
        .no_value("Nothing has changed.")
    )


def _splits(job: str) -> Panel:
    return rows(
        "What the job does not agree on",
        "Keys of which no value is that of more than half of the nodes, with the number of values.",
        {"key": "Key", "Value": "Values"},
        f"topk({_SHOWN}, max by (key) (peerwatch_job_config_split{{{job}}}))",
    ).no_value("There is a majority in everything.")
