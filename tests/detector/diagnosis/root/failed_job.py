"""A job of 8 nodes with 8 GPUs in two leaves, and what its ranks say when one of them is lost."""

from __future__ import annotations

from typing import Any

from peerwatch_detector.diagnosis.root.algorithm.algorithm import Root, find_root
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, Kind
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces

NODES = tuple(f"n{i}" for i in range(8))
GPUS = 8
JOB = JobPlaces(
    NODES,
    {rank: NODES[rank // GPUS] for rank in range(GPUS * len(NODES))},
    {
        node: {"leaf": f"l{i // 4}", "rack": f"r{i // 2}", "pod": "p0"}
        for i, node in enumerate(NODES)
    },
    {f"10.0.0.{i}": node for i, node in enumerate(NODES)},
)


def ev(time: float, kind: Kind, name: str, node: str = "", **more: Any) -> Evidence:
    """Return one observation."""
    return Evidence(time=time, kind=kind, name=name, node=node, **more)


def line(time: float, name: str, class_name: str, rank: int, **more: Any) -> Evidence:
    """Return a line in the log of a rank."""
    return ev(time, "log", name, JOB.ranks[rank], class_name=class_name, rank=rank, **more)


def lost_connection(node: str, time: float) -> list[Evidence]:
    """Return what follows if a node breaks its connections: its ring neighbours, then theirs."""
    place = NODES.index(node)
    found = []
    for step, distance in enumerate((1, 2, 3, 4)):
        for sign in (-1, 1):
            source = NODES[(place + sign * distance) % len(NODES)]
            towards = NODES[(place + sign * (distance - 1)) % len(NODES)]
            rank = NODES.index(source) * GPUS + step
            found.append(
                line(
                    time + 20 * step + 0.1 * sign,
                    "nccl_connection_closed",
                    "D",
                    rank,
                    peer_rank=NODES.index(towards) * GPUS,
                )
            )
    return found


def timeouts(time: float, ranks: range = range(64)) -> list[Evidence]:
    """Return the time-out of a collective on every rank."""
    return [line(time + 0.01 * rank, "collective_timeout", "D", rank) for rank in ranks]


def exits(time: float, code: float = 1) -> list[Evidence]:
    """Return the end of every rank."""
    return [
        ev(time + 0.01 * rank, "process", "exited", JOB.ranks[rank], rank=rank, value=code)
        for rank in JOB.ranks
    ]


def root_of(*evidence: Evidence, **more: Any) -> Root:
    """Return the root of a failure of the job."""
    return find_root(JOB, evidence, **more)
