"""What a job's traffic says, as verdicts: evidence that names nobody by itself."""

from __future__ import annotations

from collections.abc import Iterator

from peerwatch_detector.diagnosis.traffic.job_traffic import JobTraffic, NodeTraffic, TrafficState
from peerwatch_detector.diagnosis.verdict import ClassName, Verdict

_CLASSES: dict[TrafficState, ClassName] = {
    "stopped": "traffic_stopped",
    "fallen": "traffic_fallen",
    "irregular": "traffic_irregular",
}
_NAMES = {"tcp_rdma_throughput": "RDMA traffic", "network_throughput": "network traffic"}


def verdicts_of(job_id: str, traffic: JobTraffic) -> Iterator[Verdict]:
    """Yield a verdict on the job, or on each node whose traffic changed alone.

    All are undecided: a job's nodes wait for one of them and send nothing, all alike; and a node
    that differs needs a second sign, which the statistics or the root diagnosis add.
    """
    if traffic.state != "usual":
        yield _verdict(job_id, "", traffic.state, _of_job(traffic), traffic.since)
    for each in traffic.nodes:
        yield _verdict(job_id, each.node, each.state, _of_node(each, traffic), each.since)


def _verdict(job_id: str, node: str, state: TrafficState, text: str, since: float) -> Verdict:
    return Verdict(
        job_id, node, None, _CLASSES[state], "unknown", "undecided", "inspect", text, (), since
    )


def _of_job(traffic: JobTraffic) -> str:
    name = _NAMES.get(traffic.metric, traffic.metric)
    usual = f"the usual {traffic.usual / 1e6:.3g} MB/s of a node"
    if traffic.state == "irregular":
        return (
            f"the job's {name} has lost its rhythm; it has {100 * traffic.ratio:.0f} % of {usual}"
        )
    what = "has stopped" if traffic.state == "stopped" else "has fallen"
    return f"the job's {name} {what} to {100 * traffic.ratio:.0f} % of {usual}, on all nodes alike"


def _of_node(each: NodeTraffic, traffic: JobTraffic) -> str:
    name = _NAMES.get(traffic.metric, traffic.metric)
    if each.state == "irregular":
        period = f"of {traffic.period_seconds:.3g} s" if traffic.period_seconds else "of the job"
        return f"the {name} of node {each.node} has lost the rhythm {period} that its peers keep"
    return (
        f"the {name} of node {each.node} has fallen to {100 * each.ratio:.0f} % of its usual share "
        "of the job's"
    )
