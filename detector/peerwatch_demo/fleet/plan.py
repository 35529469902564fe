"""What is chosen for a fleet and what follows from it: which node does what in which job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from peerwatch_demo.cluster.faults import choose_node
from peerwatch_demo.simulated_node.node_plan import GPUS
from peerwatch_demo.simulated_node.scenario import Scenario
from peerwatch_demo.simulated_node.scenarios import SCENARIOS

SMALLEST, LARGEST = 8, 256
DEFAULT_FAULT = "pfc_storm"
CLUSTER = "demo"
# The jobs' shares of the fleet, in 16ths; every job has enough nodes to be compared.
_JOBS = {"llm-pretrain": 8, "vision": 5, "eval": 3}
# What no single node is to blame for.
_NO_FAULTS = frozenset({"healthy", "idle", "waiting", "power_brake", "ecn_congestion"})
FAULTS: Mapping[str, str] = {
    name: scenario.summary for name, scenario in SCENARIOS.items() if name not in _NO_FAULTS
}


class PlanError(ValueError):
    """What was chosen makes no fleet."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node of the fleet: its name, its training job, and the seed of what it is like."""

    name: str
    job_id: str
    seed: int

    @property
    def labels(self) -> dict[str, str]:
        """What Prometheus adds to every series of the node."""
        return {
            "cluster": CLUSTER,
            "instance": self.name,
            "job": "peerwatch-exporter",
            "node": self.name,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The fleet and the fault.

    Parameters
    ----------
    nodes
        All of them, those of a job together.
    fault
        One of ``FAULTS``.
    faulty
        Name of the node that it hits.
    """

    nodes: tuple[PlannedNode, ...] = field(repr=False)
    fault: str
    faulty: str

    @property
    def job_id(self) -> str:
        """The training job of the faulty node."""
        return next(node.job_id for node in self.nodes if node.name == self.faulty)

    @property
    def jobs(self) -> dict[str, int]:
        """How many nodes each training job has."""
        sizes: dict[str, int] = {}
        for node in self.nodes:
            sizes[node.job_id] = sizes.get(node.job_id, 0) + 1
        return sizes

    @property
    def gpus(self) -> int:
        """How many GPUs the fleet has."""
        return GPUS * len(self.nodes)

    def scenario(self, node: PlannedNode) -> Scenario:
        """Return what happens on a node from the onset on.

        The others of the faulty node's job are healthy; they wait for it, or go at its pace.
        """
        # Scraped as rarely as a step takes, each node would show another part of it.
        fault = replace(SCENARIOS[self.fault], steady=True)
        healthy = replace(SCENARIOS["healthy"], steady=True)
        if node.name == self.faulty:
            return fault
        if node.job_id == self.job_id:
            return replace(healthy, phase=fault.phase, speed=fault.speed)
        return healthy

    def to_json(self) -> str:
        """Return the plan as text for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that ``to_json`` wrote."""
        raw = json.loads(text)
        nodes = tuple(PlannedNode(**node) for node in raw["nodes"])
        return cls(nodes, raw["fault"], raw["faulty"])


def fleet_size(text: str) -> int:
    """Return the number of nodes that a person asked for.

    Raises
    ------
    PlanError
        If it is no number from ``SMALLEST`` to ``LARGEST``.
    """
    text = text.strip()
    if not text.isdecimal() or not SMALLEST <= int(text) <= LARGEST:
        raise PlanError(
            f"FLEET={text!r} is no number of nodes from {SMALLEST} to {LARGEST}. For example: "
            "make demo FLEET=64"
        )
    return int(text)


def make_plan(size: int, fault: str, seed: str) -> Plan:
    """Lay out a fleet and draw the faulty node by lot.

    Parameters
    ----------
    size
        Number of nodes.
    fault
        Name of the fault; empty for the default.
    seed
        Any text: the same text makes the same node faulty; empty for chance.

    Raises
    ------
    PlanError
        If there is no such fault.
    """
    fault = fault or DEFAULT_FAULT
    if fault not in FAULTS:
        known = "\n".join(f"  {name:<17} {summary}" for name, summary in FAULTS.items())
        raise PlanError(f"FAULT={fault!r} is none of the fleet's faults:\n{known}")
    width = len(str(size))
    nodes = tuple(
        PlannedNode(f"gpu-{number:0{width}d}", job_id, number)
        for number, job_id in enumerate(_job_of_each(size), start=1)
    )
    return Plan(nodes, fault, choose_node([node.name for node in nodes], seed))


def _job_of_each(size: int) -> list[str]:
    """Return the job of every node; what the shares leave over goes to the first job.

    The smallest fleets have one job: three would be too small to be compared.
    """
    smallest = min(_JOBS.values())
    if size * smallest // 16 < 3:
        return [next(iter(_JOBS))] * size
    sizes = {job_id: size * share // 16 for job_id, share in _JOBS.items()}
    sizes[next(iter(sizes))] += size - sum(sizes.values())
    return [job_id for job_id, count in sizes.items() for _ in range(count)]
