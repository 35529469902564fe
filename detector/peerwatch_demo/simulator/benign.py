"""What happens in healthy jobs and looks like a fault; no node is faulty."""

from __future__ import annotations

import numpy as np

from peerwatch_demo.job.timeline import Phase
from peerwatch_demo.job.workload import Workload
from peerwatch_demo.simulator.family import Family
from peerwatch_demo.simulator.signals import Values


def plan_late_writer(
    random: np.random.Generator, work: Workload, family: Family
) -> tuple[int, slice] | None:
    """Let one node write its checkpoint longer than the others, which wait for it."""
    writes = work.phases == Phase.CHECKPOINT
    ends = np.flatnonzero(writes[:-1] & ~writes[1:])
    if not len(ends) or random.random() > family.late_writer:
        return None
    start = int(random.choice(ends)) + 1
    end = start + int(random.integers(10, 100))
    work.timeline.add(Phase.WAIT, start, end)
    return int(random.integers(0, work.nodes)), slice(start, end)


def write_late(values: Values, work: Workload, late: tuple[int, slice]) -> None:
    """Give the late writer the load of a checkpoint while it writes."""
    node, span = late
    for metric in ("cpu_usage", "network_throughput"):
        train, _, checkpoint, *_ = work.levels[metric]
        values[metric][node, span] *= checkpoint / train


def disturb(random: np.random.Generator, values: Values, work: Workload, family: Family) -> None:
    """Apply the family's benign events to the samples."""
    if random.random() < family.host_agent:
        _host_agent(random, values)
    if random.random() < family.group_congestion and work.nodes >= 6:
        _group_congestion(random, values)
    if random.random() < family.memory_step:
        node, start = _place(random, values)
        values["memory_usage"][node, start:] += random.uniform(1, 8)
    for _ in range(random.poisson(3)):
        _glitch(random, values)


def _place(random: np.random.Generator, values: Values) -> tuple[int, int]:
    nodes, seconds = values["cpu_usage"].shape
    return int(random.integers(0, nodes)), int(random.integers(0, seconds))


def _host_agent(random: np.random.Generator, values: Values) -> None:
    """Let a backup or a scan run for minutes beside the job, which does not notice."""
    node, start = _place(random, values)
    span = slice(start, start + int(random.integers(90, 800)))
    values["cpu_usage"][node, span] += random.uniform(5, 25)
    if random.random() < 0.7:
        values["network_throughput"][node, span] += 10 ** random.uniform(6.5, 8.3)
    if random.random() < 0.5:
        disk = values["disk_usage"][node]
        disk[start:] += np.linspace(0, random.uniform(0.2, 3), len(disk) - start)
    if random.random() < 0.4:
        values["memory_usage"][node, span] += random.uniform(1, 6)


def _group_congestion(random: np.random.Generator, values: Values) -> None:
    """Let the nodes below one switch share its congestion."""
    nodes, seconds = values["ecn_rate"].shape
    share = random.uniform(0.25, 0.6)
    first = int(random.integers(0, nodes))
    group = (first + np.arange(max(2, round(share * nodes)))) % nodes
    start = int(random.integers(0, seconds))
    span = slice(start, start + int(random.integers(60, 700)))
    factor = random.uniform(3, 15)
    for metric, power in (("ecn_rate", 1.0), ("pfc_tx_rate", 1.3)):
        # The nodes feel it at the same time, not equally strongly.
        felt = factor**power * np.exp(random.normal(0, 0.3, (len(group), 1)))
        values[metric][group, span] *= felt


def _glitch(random: np.random.Generator, values: Values) -> None:
    metric = str(
        random.choice(["cpu_usage", "pfc_tx_rate", "ecn_rate", "network_throughput", "gpu_power"])
    )
    node, start = _place(random, values)
    span = slice(start, start + int(random.integers(2, 25)))
    factor = random.choice([random.uniform(0.3, 0.8), random.uniform(1.3, 6)])
    values[metric][node, ..., span] *= factor
