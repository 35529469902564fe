"""What is chosen for a fleet and what follows from it: which node does what in which job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from peerwatch_demo.cluster.faults import choose_node
from peerwatch_demo.simulated_node.node_plan import GPUS
from peerwatch_demo.simulated_node.scenario import Scenario
from peerwatch_demo.simulated_node.scenarios import SCENARIOS

# Fewer are no job to compare in; more take longer than a demo may, on one machine.
SMALLEST, LARGEST = 8, 256
# One in each training job, of a different kind: a port that stops its peers, heat, a lossy link.
DEFAULT_FAULTS = ("pfc_storm", "thermal_throttle", "slow_tcp")
CLUSTER = "demo"
# The jobs' shares of the fleet, in 16ths; every job has enough nodes to be compared.
_JOBS = {"llm-pretrain": 8, "vision": 5, "eval": 3}
# What no single node is to blame for.
_NO_FAULTS = frozenset({"healthy", "idle", "waiting", "power_brake", "ecn_congestion"})
# What makes tickets and no page, for which the demo waits: a link that comes back each time, and
# one that is slow and holds all nodes up alike.
_TICKETS = frozenset({"nic_flap", "pcie_downgrade"})
FAULTS: Mapping[str, str] = {
    name: scenario.summary
    for name, scenario in SCENARIOS.items()
    if name not in _NO_FAULTS | _TICKETS
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
class PlannedFault:
    """One fault: its name, one of ``FAULTS``, and the node that it hits, with its training job."""

    name: str
    node: str
    job_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The fleet and its faults.

    Parameters
    ----------
    nodes
        All of them, those of a job together.
    faults
        At least one, and at most one in each training job.
    """

    nodes: tuple[PlannedNode, ...] = field(repr=False)
    faults: tuple[PlannedFault, ...]

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

    def fault_of(self, job_id: str) -> PlannedFault | None:
        """Return the fault within a training job; None if it has none."""
        return next((fault for fault in self.faults if fault.job_id == job_id), None)

    def scenario(self, node: PlannedNode) -> Scenario:
        """Return what happens on a node from the onset on.

        The others of a faulty node's job are healthy; they wait for it, or are as slow.
        """
        # Scraped as rarely as a step takes, each node would show another part of it.
        healthy = replace(SCENARIOS["healthy"], steady=True)
        fault = self.fault_of(node.job_id)
        if fault is None:
            return healthy
        scenario = replace(SCENARIOS[fault.name], steady=True)
        if node.name == fault.node:
            return scenario
        return replace(healthy, phase=scenario.phase, speed=scenario.speed)

    def to_json(self) -> str:
        """Return the plan as text for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return the plan that ``to_json`` wrote."""
        raw = json.loads(text)
        nodes = tuple(PlannedNode(**node) for node in raw["nodes"])
        return cls(nodes, tuple(PlannedFault(**fault) for fault in raw["faults"]))


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
    """Lay out a fleet and draw the faulty nodes by lot.

    Parameters
    ----------
    size
        Number of nodes.
    fault
        Name of the only fault; empty for one in each training job, each of another kind.
    seed
        Any text: the same text makes the same nodes faulty; empty for chance.

    Raises
    ------
    PlanError
        If there is no such fault.
    """
    if fault and fault not in FAULTS:
        known = "\n".join(f"  {name:<17} {summary}" for name, summary in FAULTS.items())
        raise PlanError(f"FAULT={fault!r} is none of the fleet's faults:\n{known}")
    width = len(str(size))
    nodes = tuple(
        PlannedNode(f"gpu-{number:0{width}d}", job_id, number)
        for number, job_id in enumerate(_job_of_each(size), start=1)
    )
    return Plan(nodes, _only(nodes, fault, seed) if fault else _each(nodes, seed))


def _only(nodes: Sequence[PlannedNode], fault: str, seed: str) -> tuple[PlannedFault, ...]:
    name = choose_node([node.name for node in nodes], seed)
    job_id = next(node.job_id for node in nodes if node.name == name)
    return (PlannedFault(fault, name, job_id),)


def _each(nodes: Sequence[PlannedNode], seed: str) -> tuple[PlannedFault, ...]:
    """Return a fault for every training job; a fleet too small for three jobs has one."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(node.job_id, []).append(node.name)
    return tuple(
        PlannedFault(fault, choose_node(members, f"{seed}/{job_id}" if seed else ""), job_id)
        for fault, (job_id, members) in zip(DEFAULT_FAULTS, names.items(), strict=False)
    )


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
