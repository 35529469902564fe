"""How this node and others are set up, by the exporter's series ``node_config_info``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_checks.prometheus.client import PrometheusError, instant
from peerwatch_common.promql import selected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_checks.prometheus.client import Server

# Nodes that differ in one of these differ by design: GPU models are never mixed.
KIND = ("gpu.model", "cpu.model", "machine.model")
_DEVICE = re.compile(r"(gpu|nic)\.[^.]+\.(.+)")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What is known of a node and its peers.

    Parameters
    ----------
    own
        The node's values, by key.
    nodes
        How many nodes have each value, itself among them, by key and value.
    """

    own: Mapping[str, str]
    nodes: Mapping[str, Mapping[str, int]]

    def own_values(self, key: str) -> dict[str, str]:
        """Return this node's values of a key; of single devices where they differ."""
        if key in self.own:
            return {key: self.own[key]}
        return {each: value for each, value in self.own.items() if aspect(each) == key}


def aspect(key: str) -> str:
    """Return the key under which a node whose devices are all alike has it: ``gpu.vbios``."""
    return _DEVICE.sub(r"\1.\2", key)


def read_settings(server: Server, node: str, selector: str, job_id: str) -> NodeSettings:
    """Ask how a node and its peers are set up; counted by the server, however many there are.

    Parameters
    ----------
    server
        Whom to ask.
    node
        The node's name, as its target has it.
    selector
        Matchers of labels that select the peers, without braces; empty: all.
    job_id
        The job whose nodes are the peers; empty: all nodes of this one's kind.

    Raises
    ------
    PrometheusError
        If it gives no answer, or several nodes have this name.
    """
    own: dict[str, str] = {}
    for sample in instant(server, _series(selector, node=node)):
        key, value = sample.labels.get("key", ""), sample.labels.get("value", "")
        if own.setdefault(key, value) != value:
            raise PrometheusError(
                f"several nodes are called {node!r}: {key} is {own[key]!r} and {value!r}; select "
                "one cluster, as in --selector 'cluster=\"c1\"'"
            )
    nodes: dict[str, dict[str, int]] = {}
    if own:
        for sample in instant(server, counted_query(selector, job_id, own)):
            values = nodes.setdefault(sample.labels.get("key", ""), {})
            values[sample.labels.get("value", "")] = int(sample.value)
    return NodeSettings(own, nodes)


def counted_query(selector: str, job_id: str, own: Mapping[str, str]) -> str:
    """Return the query that counts nodes by key and value; parameters as above."""
    on = "and on (cluster, node)"
    same = [f"{on} {_series(selector, key=key, value=own[key])}" for key in KIND if key in own]
    if job_id:
        jobs = selected("host_job_info", selector, job_id=job_id)
        same = [f"{on} {jobs}"]
    series = f"group by (cluster, node, key, value) ({_series(selector)})"
    return f"count by (key, value) ({series} {' '.join(same)})"


def _series(selector: str, **labels: str) -> str:
    return selected("node_config_info", selector, **labels)
