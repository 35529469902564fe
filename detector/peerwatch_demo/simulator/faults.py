"""Faults: what the job does because of one, and on which metrics the faulty node shows it.

A crash leaves the other ranks spinning in a collective until a time-out halts the job (Minder,
NSDI'25, section 3). A degradation slows every rank by the same amount; only the faulty node shows
why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peerwatch_demo.job.timeline import Phase
from peerwatch_demo.job.workload import Workload
from peerwatch_demo.simulator.family import Family
from peerwatch_demo.simulator.signals import PER_GPU, Values


@dataclass(frozen=True, slots=True)
class Sign:
    """How a fault shows on one metric of the faulty node.

    Parameters
    ----------
    metric
        The metric, or ``rdma``, or ``everything`` for samples that stop coming.
    factor
        What the value is multiplied by at full strength.
    likely
        Probability that this fault shows here at all.
    gpus
        On how many GPUs; 0 means the whole node.
    own_source
        The values do not follow the job's traffic: a NIC that sends pause frames because it cannot
        drain its buffers goes on while the job waits.
    """

    metric: str
    factor: float
    likely: float
    gpus: int = 0
    own_source: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Parameters
    ----------
    signs
        Where it shows.
    halts
        Probability that the job halts; else it goes on, slowed.
    slowdown
        Range of the job's speed while it goes on.
    """

    signs: tuple[Sign, ...]
    halts: float
    slowdown: tuple[float, float] = (0.6, 0.95)


_DEAD_RANKS = (
    Sign("cpu_usage", 0.2, 0.8),
    Sign("memory_usage", 0.75, 0.5),
    Sign("gpu_memory_used", 0.12, 0.5),
    Sign("network_throughput", 0.1, 0.6),
    Sign("rdma", 0.05, 0.6),
)
_CONGESTED = (
    Sign("pfc_tx_rate", 60.0, 0.95, own_source=True),
    Sign("ecn_rate", 10.0, 0.8, own_source=True),
)

KINDS: dict[str, Kind] = {
    "ecc_error": Kind((*_DEAD_RANKS, Sign("gpu_duty_cycle", 0.02, 0.5, gpus=8)), halts=1.0),
    "cuda_exec_error": Kind((*_DEAD_RANKS, Sign("gpu_power", 0.6, 0.4, gpus=8)), halts=1.0),
    "gpu_exec_error": Kind(
        (Sign("gpu_power", 0.6, 0.7, gpus=1), Sign("cpu_usage", 0.6, 0.5)), halts=1.0
    ),
    "hdfs_error": Kind(
        (Sign("cpu_usage", 0.4, 0.8), Sign("network_throughput", 0.15, 0.9)), halts=1.0
    ),
    "gpu_drop": Kind((*_DEAD_RANKS, Sign("gpu_duty_cycle", 0.0, 0.9, gpus=1)), halts=0.9),
    "machine_unreachable": Kind(
        (
            Sign("everything", 0.0, 0.5),
            Sign("network_throughput", 0.15, 1.0),
            Sign("rdma", 0.05, 1.0),
        ),
        halts=1.0,
    ),
    "pcie_downgrade": Kind((*_CONGESTED, Sign("pcie_bandwidth", 0.6, 0.9)), halts=0.0),
    "nic_dropout": Kind((*_CONGESTED, Sign("rdma", 0.4, 0.8)), halts=0.5),
    "aoc_error": Kind((*_CONGESTED, Sign("rdma", 0.8, 0.4)), halts=0.3),
    "nvlink_error": Kind(
        (Sign("nvlink_bandwidth", 0.5, 0.9, gpus=2), Sign("gpu_power", 0.85, 0.3, gpus=2)),
        halts=0.6,
    ),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a case.

    Parameters
    ----------
    kind
        Its name in ``KINDS``.
    nodes
        Indices of the faulty nodes.
    onset, halt
        Seconds from the start; ``halt`` is None if the job goes on.
    strength
        Factor on the typical size of its signs, on a logarithmic scale.
    hidden
        Probability that a usual sign is missing.
    """

    kind: str
    nodes: tuple[int, ...]
    onset: int
    halt: int | None
    strength: float
    hidden: float


def draw_fault(random: np.random.Generator, kind: str, work: Workload, family: Family) -> Fault:
    """Draw when, where and how strongly a fault of this kind happens."""
    onset = int(random.integers(*family.onset))
    halts = random.random() < KINDS[kind].halts
    halt = onset + int(random.integers(*family.halt_after)) if halts else None
    if halt is not None and halt >= work.seconds:
        halt = work.seconds - 1
    count = 2 if random.random() < family.two_faulty and work.nodes >= 8 else 1
    nodes = random.choice(work.nodes, size=count, replace=False)
    return Fault(
        kind,
        tuple(sorted(int(node) for node in nodes)),
        onset,
        halt,
        float(random.uniform(*family.effect)),
        family.hidden_signs,
    )


def stop_or_slow(random: np.random.Generator, work: Workload, fault: Fault) -> None:
    """Change what the whole job does from the onset on."""
    if fault.halt is None:
        lost = 1 - random.uniform(*KINDS[fault.kind].slowdown)
        work.timeline.slow(1 - lost * min(1.0, fault.strength), fault.onset)
        return
    # The others go on until they meet in a collective.
    meets = fault.onset + int(random.integers(2, 25))
    work.timeline.add(Phase.WAIT, min(meets, fault.halt), fault.halt)
    work.timeline.add(Phase.HALT, fault.halt)


def show(random: np.random.Generator, values: Values, work: Workload, fault: Fault) -> list[str]:
    """Let the faulty nodes show the fault; return the metrics that show it."""
    signs = KINDS[fault.kind].signs
    shown = [sign for sign in signs if random.random() < sign.likely * (1 - fault.hidden)]
    # A fault that shows nowhere would be nobody's to find.
    shown = shown or [max(signs, key=lambda sign: sign.likely)]
    end = fault.halt
    for sign in shown:
        for node in fault.nodes:
            _apply(random, values, work, fault, sign, node, end)
    return [sign.metric for sign in shown]


def _apply(
    random: np.random.Generator,
    values: Values,
    work: Workload,
    fault: Fault,
    sign: Sign,
    node: int,
    end: int | None,
) -> None:
    begin = fault.onset + int(random.integers(0, 12))
    if sign.metric == "everything":
        for array in values.values():
            array[node, ..., fault.onset :] = np.nan
        return
    span = slice(begin, end)
    factor = max(sign.factor, 1e-3) ** fault.strength
    if sign.own_source:
        usual = work.levels[sign.metric][Phase.TRAIN]
        noise = random.lognormal(0, 0.3, len(values[sign.metric][node, span]))
        values[sign.metric][node, span] += usual * (factor - 1) * noise
    elif sign.gpus and sign.metric in PER_GPU:
        gpus = random.choice(8, size=sign.gpus, replace=False)
        values[sign.metric][node, gpus, span] *= factor
    else:
        values[sign.metric][node, ..., span] *= factor
