"""The fabric's row about congestion and traffic, by node and by training job."""

from __future__ import annotations

from links import series_to
from parts import Panel, areas, graph
from promql import CLUSTER, busiest, highest, rate

_NODE = "cluster, node"
_LINKS = series_to("node", "node")


def panels(members: str) -> list[Panel]:
    """Return the panels about congestion and traffic.

    Parameters
    ----------
    members
        Label matchers of the training jobs.
    """
    return [*_traffic(members), *_congestion(members), *_compared(members)]


def _most(members: str, metric: str, by: str = _NODE, count: int = 20) -> str:
    return busiest(rate(metric, CLUSTER, by), count, members=members)


def _traffic(members: str) -> list[Panel]:
    total = f"job_node:rdma_throughput:rate{{{members}}}"
    largest = f"sum by (job_id) ({total} @ end())"
    return [
        areas(
            "RDMA traffic by training job",
            "Sent and received by the job's nodes; the 20 jobs that move most at the end of the "
            "time range. To zero while steps go on: the job left RDMA. To zero with them: it "
            "stands still.",
            "binBps",
            (f"sum by (job_id) ({total}) and topk(20, {largest})", "{{job_id}}"),
        ).data_links(series_to("job", "job_id")),
        graph(
            "RDMA traffic of a job's nodes",
            "Lowest, median and highest node of each job, the 6 largest jobs. In one job all nodes "
            "move alike: a lowest that leaves the others is one node.",
            "binBps",
            *(
                (
                    f"{how} by (job_id) ({extra}{total}) and topk(6, {largest})",
                    f"{{{{job_id}}}}, {legend}",
                )
                for how, extra, legend in (
                    ("min", "", "lowest"),
                    ("quantile", "0.5, ", "median"),
                    ("max", "", "highest"),
                )
            ),
        ).data_links(series_to("job", "job_id")),
    ]


def _congestion(members: str) -> list[Panel]:
    return [
        graph(
            "Packets that arrive with a congestion mark (ECN)",
            "By node, the 20 that received most: the path to these nodes is congested. All nodes "
            "of a job: the job's own pattern, or a switch above them.",
            "pps",
            (_most(members, "nic_ecn_marked_packets_total"), "{{node}}"),
        ).data_links(_LINKS),
        graph(
            "Marked by the NIC itself",
            "Packets that a node's own NICs marked because its host is too slow, by node and "
            "priority, the 20 most.",
            "pps",
            (
                _most(members, "nic_priority_ecn_marked_total", f"{_NODE}, priority"),
                "{{node}} priority {{priority}}",
            ),
        ).data_links(_LINKS),
        graph(
            "Congestion notifications",
            "Sent (this node asks its senders to slow down), obeyed and ignored, by node, the 10 "
            "most of each.",
            "pps",
            *(
                (_most(members, f"nic_cnp_{what}_total", count=10), f"{{{{node}}}} {what}")
                for what in ("sent", "handled", "ignored")
            ),
        ).data_links(_LINKS),
        graph(
            "Held back by the fabric",
            "Ticks per second with data to send and no credit to send it, by node, the 20 most. "
            "What a tick is depends on the NIC: compare nodes, not numbers.",
            "short",
            (_most(members, "nic_transmit_wait_ticks_total"), "{{node}}"),
        ).data_links(_LINKS),
    ]


def _compared(members: str) -> list[Panel]:
    """Return what the detector compares nodes by."""
    return [
        graph(
            "Congestion notifications of jobs",
            "What the detector compares nodes by: marked packets and notifications, the 10 highest "
            "nodes of the time range.",
            "pps",
            (
                highest(f"job_node:ecn_marked_packets:rate{{{members}}}", "job_id, node", 10),
                "{{node}} marked",
            ),
            (
                highest(f"job_node:cnp_packets:rate{{{members}}}", "job_id, node", 10),
                "{{node}} notifications",
            ),
        ).data_links(series_to("node", "job_id", "node")),
        graph(
            "Pause frames sent by jobs' nodes",
            "What the detector compares nodes by; the 20 highest nodes of the time range.",
            "pps",
            (
                highest(f"job_node:pfc_transmit_pause_frames:rate{{{members}}}", "job_id, node"),
                "{{node}}",
            ),
        ).data_links(series_to("node", "job_id", "node")),
    ]
