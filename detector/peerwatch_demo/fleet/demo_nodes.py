"""A small fleet without hardware: real exporters over simulated nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from peerwatch_demo.stack.process import free_ports, wait_http
from peerwatch_demo.stack.servers import Stack, Target

EXPORTER_JOB = "peerwatch-exporter"


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One node of the fleet.

    Parameters
    ----------
    name
        The node's name.
    job_id
        The training job that its processes belong to.
    scenario
        One of the exporter's scenarios.
    options
        Further options of the exporter.
    """

    name: str
    job_id: str
    scenario: str = "healthy"
    options: tuple[str, ...] = ()


def start_nodes(
    stack: Stack, nodes: Sequence[DemoNode], onset_seconds: float, *, seconds: float = 60.0
) -> list[Target]:
    """Start an exporter for each node and return what Prometheus is to scrape.

    Parameters
    ----------
    stack
        Takes them down again.
    nodes
        The fleet; equal places in it give equal nodes.
    onset_seconds
        When the scenarios begin, after the start.
    seconds
        How long an exporter may take until it serves.

    Raises
    ------
    StackError
        If an exporter ends or does not serve in time.
    """
    targets, started = [], []
    for seed, (node, port) in enumerate(zip(nodes, free_ports(len(nodes)), strict=True)):
        address = f"127.0.0.1:{port}"
        command = [sys.executable, "-m", "peerwatch_demo.exporter", node.scenario]
        command += ["--seed", str(seed), "--onset", f"{onset_seconds:g}"]
        command += ["--listen", address, *node.options]
        started.append((address, stack.start(f"exporter-{node.name}", command)))
        targets.append(Target(EXPORTER_JOB, address, {"node": node.name}))
    for address, process in started:
        wait_http(f"http://{address}/-/healthy", process, seconds)
    return targets


def with_job_ids(config: str, nodes: Sequence[DemoNode]) -> str:
    """Return a prometheus.yml that gives each node's series the node's own training job.

    All simulated nodes name the same job; a fleet has several.
    """
    parsed = yaml.safe_load(config)
    relabelling = [
        {
            "source_labels": ["node", "job_id"],
            "regex": f"{node.name};.+",
            "target_label": "job_id",
            "replacement": node.job_id,
        }
        for node in nodes
    ]
    for job in parsed["scrape_configs"]:
        if job["job_name"] == EXPORTER_JOB:
            job["metric_relabel_configs"] = relabelling
    return yaml.safe_dump(parsed, sort_keys=False)
