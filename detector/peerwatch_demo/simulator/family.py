"""How hard the simulated jobs are: every knob of a family of cases in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from peerwatch_demo.simulator.kinds import KINDS

# Faults and how often they happen (Minder, NSDI'25, table 1, hardware and software together);
# the kinds are those of ``kinds.py``.
FAULT_MIX: dict[str, float] = {
    "ecc_error": 38.9,
    "cuda_exec_error": 14.6,
    "gpu_exec_error": 7.7,
    "pcie_downgrade": 6.6,
    "machine_unreachable": 6.0,
    "nic_dropout": 5.7,
    "hdfs_error": 5.7,
    "gpu_drop": 2.0,
    "nvlink_error": 1.7,
    "aoc_error": 0.9,
}


@dataclass(frozen=True, slots=True)
class Family:
    """Ranges that the cases of a family are drawn from.

    Parameters
    ----------
    nodes
        Job sizes.
    seconds
        Length of a case in which nothing halts the job.
    onset
        Earliest and latest onset.
    halt_after
        Shortest and longest time from the onset of a crash to the halt of the job.
    effect
        Strength of a fault's effects, as a factor on the typical ones; smallest and largest.
    wander
        Slow wander of every node around its level, as a share of the level (standard deviation).
    offsets
        Benign constant differences between nodes, as a share of the level.
    hidden_effects
        Probability that a fault does not show in a metric that it usually shows in.
    two_generations, group_congestion, host_agent, late_writer, memory_step
        Probability that a job has this benign trait or event.
    lost_samples
        Largest share of samples lost at random.
    restarts
        Mean number of exporter restarts per case.
    two_faulty
        Probability that a fault concerns two nodes.
    stages
        Fewest and most stages of the job, each of three nodes at least; nodes of different stages
        do different work. (1, 1) = all do the same.
    stage_wander
        Slow wander of a stage's work, all its nodes together, as a share of the level.
    faults
        Which cases are faulty: ``half`` as asked for, kinds drawn by ``FAULT_MIX``; ``none``;
        ``each`` of them, the kinds in turn by the seed.
    lengths
        Lengths of cases to draw from, in place of ``seconds``.
    roles_told
        Probability that the roles of a job with stages are known.
    operations
        Whether what the operation of a cluster does to jobs happens; see ``operations``.
    """

    nodes: tuple[int, ...]
    seconds: int = 1800
    onset: tuple[int, int] = (750, 1100)
    halt_after: tuple[int, int] = (180, 1000)
    effect: tuple[float, float] = (0.8, 1.2)
    wander: float = 0.01
    offsets: float = 0.03
    hidden_effects: float = 0.1
    two_generations: float = 0.0
    group_congestion: float = 0.0
    host_agent: float = 0.0
    late_writer: float = 0.3
    memory_step: float = 0.0
    lost_samples: float = 0.01
    restarts: float = 0.5
    two_faulty: float = 0.02
    stages: tuple[int, int] = (1, 1)
    stage_wander: float = 0.0
    faults: Literal["half", "none", "each"] = "half"
    lengths: tuple[int, ...] = ()
    roles_told: float = 1.0
    operations: bool = False


_HARD = Family(
    nodes=(3, 4, 6, 8, 12, 16, 24, 32),
    onset=(420, 1200),
    halt_after=(60, 700),
    effect=(0.3, 1.0),
    wander=0.04,
    offsets=0.10,
    hidden_effects=0.3,
    two_generations=0.25,
    group_congestion=0.35,
    host_agent=0.5,
    late_writer=0.4,
    memory_step=0.3,
    lost_samples=0.05,
    restarts=1.5,
    two_faulty=0.06,
)

FAMILIES: dict[str, Family] = {
    # Strong effects, long lives.
    "plain": Family(nodes=(4, 8, 12, 16, 24)),
    # What real clusters add: the traits that make a healthy node look odd, and faults look weak.
    "hard": _HARD,
    # Jobs whose nodes differ by design: pipeline stages, actors and learners.
    "staged": replace(_HARD, nodes=(6, 8, 12, 16, 24, 32), stages=(2, 4), stage_wander=0.15),
    # Healthy jobs of all sizes, with everything that happens to them in a cluster.
    "soak": replace(
        _HARD,
        nodes=(4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512),
        lengths=(1800, 3600, 7200),
        restarts=3.0,
        stages=(1, 4),
        stage_wander=0.05,
        faults="none",
        roles_told=0.7,
        operations=True,
    ),
}
# Of these the cases of the family each_fault are, in turn; their sizes are like the others', and
# twice the largest.
_EACH_FAULT_OF = ("plain", "hard", "staged")
_EACH_FAULT_NODES = (4, 6, 8, 12, 16, 24, 32, 64)
EACH_FAULT = "each_fault"
FAMILY_NAMES = (*FAMILIES, EACH_FAULT)


def family_of(name: str, seed: int) -> Family:
    """Return the family of a case: one of ``FAMILIES``, or the seed's turn of ``each_fault``.

    Eighteen seeds in a row are one case of every kind, all of one family.
    """
    if name != EACH_FAULT:
        return FAMILIES[name]
    turn = seed // len(KINDS) % len(_EACH_FAULT_OF)
    like = FAMILIES[_EACH_FAULT_OF[turn]]
    return replace(like, nodes=_EACH_FAULT_NODES, faults="each")
