"""How the nodes of a job are set up: who differs from most, and what changed while it ran."""

from __future__ import annotations

from links import column_to
from parts import GREEN, YELLOW, Panel, properties, rows, value_map

_SHOWN = 100
_WHERE = {"cluster": "Cluster", "job_id": "Job", "node": "Node", "key": "Key"}


def panels(job: str) -> list[Panel]:
    """Return the tables of a training job.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    return [_minorities(job), _changes(job), _splits(job)]


def of_node(node: str, job: str) -> list[Panel]:
    """Return the tables of everything that is known of a node's set-up.

    Parameters
    ----------
    node
        Label matchers of the node.
    job
        Label matchers of the node and its training job.
    """
    return [
        _known(
            "How the node is set up",
            "Kernel, drivers, firmware, sysctls, PCIe and NICs. Of devices that agree a key names "
            "the aspect, of others also the device.",
            {"key": "Key", "value": "Has"},
            f"topk(400, group by (key, value) (node_config_info{{{node}}}))",
        ),
        _known(
            "How its ranks run",
            "Variables and limits of the ranks; of ranks that do not agree the key names the local "
            "rank.",
            {"job_id": "Job", "key": "Key", "value": "Has"},
            f"topk(400, group by (job_id, key, value) (rank_config_info{{{job}}}))",
        ).override_by_name("Job", column_to("job", job_id="Job")),
    ]


def _known(title: str, description: str, columns: dict[str, str], expr: str) -> Panel:
    return (
        rows(title, description, columns | {"Value": "Known"}, expr)
        .height(10)
        .span(12)
        .override_by_name("Has", properties({"custom.minWidth": 260}))
        .override_by_name("Known", properties({"mappings": value_map(("1", "yes", GREEN))}))
        .no_value("The collector node_config does not run, or finds none.")
    )


def _minorities(job: str) -> Panel:
    who = "cluster, job_id, node, key"
    info = f"topk by ({who}) (1, peerwatch_job_config_minority_info{{{job}}})"
    return (
        rows(
            "Nodes set up unlike most",
            "What more than half of the job's nodes have otherwise. At most "
            f"{_SHOWN}; the smallest minorities are published first.",
            {**_WHERE, "value": "Has", "majority": "Most have", "Value": "Differs"},
            f"topk({_SHOWN}, max by ({who}) (peerwatch_job_config_minority{{{job}}})"
            f" * on ({who}) group_left (value, majority) {info})",
        )
        .override_by_name("Differs", properties({"mappings": value_map(("1", "yes", YELLOW))}))
        .override_by_name("Node", column_to("node", job_id="Job", node="Node"))
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
            {"Value": "Ago", **_WHERE, "before": "Before", "after": "After"},
            f"topk({_SHOWN}, (time() - {times}) * on ({who}) group_left (before, after) {info})",
        )
        .override_by_name("Ago", properties({"unit": "s"}))
        .override_by_name("Node", column_to("node", job_id="Job", node="Node"))
        .no_value("Nothing has changed.")
    )


def _splits(job: str) -> Panel:
    return rows(
        "What the job does not agree on",
        "Keys of which no value is that of more than half of the nodes, with the number of values.",
        {"key": "Key", "Value": "Values"},
        f"topk({_SHOWN}, max by (key) (peerwatch_job_config_split{{{job}}}))",
    ).no_value("There is a majority in everything.")
