"""Signals of nodes over the window, from the series that the rules record every 5 minutes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_reliability.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_reliability.records import Window
    from peerwatch_reliability.sources.prometheus.server import Server

# How often the rules of reliability.rules.yaml are evaluated.
_STEP = 300.0


class NodeSignals(NamedTuple):
    """What was recorded of nodes.

    Parameters
    ----------
    distinct_xids
        How many different XIDs each had, by node.
    tickets
        The most tickets that stood about each at once, by node.
    degradation
        Share of a job's time that was above its usual step time (P_deg), by job.
    covered_days
        For how many days of the window the series were recorded.
    missing
        What could not be known, a sentence each.
    per_node
        Mean number of GPUs and network ports of a node, by the kind of component.
    """

    distinct_xids: Mapping[str, int]
    tickets: Mapping[str, int]
    degradation: Mapping[str, float]
    covered_days: float
    missing: tuple[str, ...]
    per_node: Mapping[str, float] = MappingProxyType({})


NO_SIGNALS = NodeSignals({}, {}, {}, 0.0, ())


def read_signals(server: Server, window: Window) -> NodeSignals:
    """Return the signals of a window's nodes; what is not answered is missing."""
    span, selector = f"[{window.days * 86_400:.0f}s]", server.config.selector
    per_day = 86_400 / _STEP
    hosts = f"count(count by (node) (last_over_time(exporter_build_info{{{selector}}}[1d])))"
    queries = {
        "node": f"count by (node) (count by (node, xid) (max_over_time("
        f"node:xid_logged:seconds{{{selector}}}{span}) > 0))",
        "ticket": f"sum by (node) (max_over_time(node:tickets:count{{{selector}}}{span}))",
        "job": f"max by (job_id) (avg_over_time(job:degradation:ratio{{{selector}}}{span}))",
        "gpu": f"count(last_over_time(gpu_present{{{selector}}}[1d])) / {hosts}",
        "network_port": f"count(last_over_time(nic_port_info{{{selector}}}[1d])) / {hosts}",
        "cover": f"max(count_over_time(cluster:exporters_seen:count{{{selector}}}{span}))",
    }
    answers = dict(
        zip(queries, server.at_all((q, window.end) for q in queries.values()), strict=True)
    )
    missing = [
        f"signals of nodes are not known ({answer})"
        for answer in answers.values()
        if isinstance(answer, SourceError)
    ][:1]

    def by(name: str, label: str) -> dict[str, float]:
        answer = answers[name]
        if isinstance(answer, SourceError):
            return {}
        return {each.labels.get(label, ""): each.samples[0][1] for each in answer}

    covered = by("cover", "").get("", 0.0) / per_day
    if not missing and covered < 0.9 * window.days:
        missing.append(
            f"the rules of reliability.rules.yaml recorded {covered:.1f} of {window.days:g} days: "
            "XIDs and tickets of nodes are counted of those only"
        )
    return NodeSignals(
        {node: int(count) for node, count in by("node", "node").items()},
        {node: int(count) for node, count in by("ticket", "node").items()},
        by("job", "job_id"),
        covered,
        tuple(missing),
        {
            name: value
            for name in ("gpu", "network_port")
            if (value := by(name, "").get("", 0.0)) > 0
        },
    )
