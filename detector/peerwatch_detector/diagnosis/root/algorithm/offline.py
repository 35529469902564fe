"""OfflineDiag of Aegis' Algorithm 1: which checks to run when nothing else names the node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces

# With fewer, ``peerwatch-check offline`` has no part to compare another one with.
_LEAST_TO_DIVIDE = 3
# Parts that a sentence names. Chosen: as many names as other sentences list.
_MOST_PARTS = 4


@dataclass(frozen=True, slots=True)
class CheckRun:
    """Checks to run on nodes.

    Parameters
    ----------
    check
        The subcommand of ``peerwatch-check``: ``full`` on each node by itself, in parallel;
        ``offline`` and ``pair`` as one job over all of them.
    nodes
        On which nodes.
    why
        What it would show.
    parts
        The parts that train apart first, by name: of ``offline``.
    """

    check: Literal["full", "offline", "pair"]
    nodes: tuple[str, ...]
    why: str
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()


def plan(job: JobPlaces, suspects: Iterable[str] = ()) -> tuple[CheckRun, ...]:
    """Return what to run: suspects first, then each node by itself, then all of them together.

    Together a reference model trains on all nodes, then on parts: ``halves`` says on which. A part
    that fails holds the fault, and ``peerwatch-check offline`` divides it again by itself.
    """
    first = tuple(dict.fromkeys(node for node in suspects if node in job.nodes))
    rest = tuple(node for node in job.nodes if node not in first)
    runs = [CheckRun("full", first, "the nodes that evidence points at")] if first else []
    if rest:
        runs.append(CheckRun("full", rest, "faults that a node shows by itself"))
    if len(job.nodes) >= _LEAST_TO_DIVIDE:
        parts = halves(job, job.nodes)
        listed = ", ".join(f"{name} ({len(nodes)})" for name, nodes in parts[:_MOST_PARTS])
        more = f" and {len(parts) - _MOST_PARTS} more" if len(parts) > _MOST_PARTS else ""
        why = f"in which part the fault is, if no node shows it by itself: {listed}{more}"
        runs.append(CheckRun("offline", job.nodes, why, parts))
    elif len(job.nodes) > 1:
        runs.append(CheckRun("pair", job.nodes, "whether it is the path between them"))
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
