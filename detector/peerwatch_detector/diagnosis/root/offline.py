"""OfflineDiag of Aegis' Algorithm 1: which checks to run when nothing else names the node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.diagnosis.root.job_places import JobPlaces


@dataclass(frozen=True, slots=True)
class CheckRun:
    """Checks to run on nodes.

    Parameters
    ----------
    check
        The subcommand of ``peerwatch-check``: ``full`` on each node by itself, in parallel;
        ``pair`` as one job over all of them.
    nodes
        On which nodes.
    why
        What it would show.
    """

    check: Literal["full", "pair"]
    nodes: tuple[str, ...]
    why: str


def plan(job: JobPlaces, suspects: Iterable[str] = ()) -> tuple[CheckRun, ...]:
    """Return what to run: suspects first, then each node by itself, then parts of the job.

    Parts are pods where the nodes stand in several, else leaf switches, else halves in order of
    the nodes: a part that fails holds the fault, and is divided again.
    """
    first = tuple(dict.fromkeys(node for node in suspects if node in job.nodes))
    rest = tuple(node for node in job.nodes if node not in first)
    runs = [CheckRun("full", first, "the nodes that evidence points at")] if first else []
    if rest:
        runs.append(CheckRun("full", rest, "faults that a node shows by itself"))
    runs += [
        CheckRun("pair", nodes, f"whether the fault is in {name}")
        for name, nodes in halves(job, job.nodes)
        if len(nodes) > 1
    ]
    return tuple(runs)


def halves(job: JobPlaces, nodes: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the groups into which nodes divide, by name: pods, else leaves, else two halves.

    Call it again with the nodes of the group that fails.
    """
    for level in ("pod", "leaf", "rack"):
        groups: dict[str, list[str]] = {}
        for node in nodes:
            groups.setdefault(job.places.get(node, {}).get(level, ""), []).append(node)
        if len(groups) > 1 and "" not in groups:
            return tuple((f"{level} {name}", tuple(groups[name])) for name in sorted(groups))
    middle = (len(nodes) + 1) // 2
    parts = (tuple(nodes[:middle]), tuple(nodes[middle:]))
    return tuple((f"half {place}", part) for place, part in enumerate(parts, start=1) if part)
