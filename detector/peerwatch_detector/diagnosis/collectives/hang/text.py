"""What a hang is called in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peerwatch_detector.diagnosis.collectives.hang.hang import Hang
from peerwatch_detector.diagnosis.collectives.hang.waits_for import Wait, signatures
from peerwatch_detector.diagnosis.collectives.members import format_ranks
from peerwatch_detector.diagnosis.collectives.series import Reading
from peerwatch_detector.diagnosis.collectives.snapshot import Group

# Ranks and nodes beyond so many are counted, not listed: four long names still fit in a sentence.
_MOST_LISTED = 4
# What programs call a group that they did not name.
_NO_DESCRIPTION = frozenset({"", "undefined", "default_pg"})


def sentence(root: Hang, reading: Reading, what: str, *, why_open: str = "") -> str:
    """Return what happened, with ranks, nodes and numbers.

    Parameters
    ----------
    root
        The hang.
    reading
        What it was found in.
    what
        The collective that most ranks wait in directly, as ``collective`` calls it.
    why_open
        What speaks against a fault, if anything does.
    """
    who = _ranks(root.ranks, reading.nodes)
    waiting = _count(len(root.victims), "rank waits", "ranks wait")
    texts = {
        "not_launched": f"{who} did not launch {what}",
        "launched_not_started": f"{who or 'no rank'} launched but did not start {what}"
        if root.ranks
        else f"all ranks launched {what}, and the device of none has started it",
        "mismatch": f"{who} called another collective than the rest at {what}"
        if root.decided
        else f"ranks {format_ranks(root.ranks)} called different collectives at {what}",
        "call_order": f"ranks {format_ranks(root.ranks)} called collectives in different order "
        f"and wait for each other, one of them in {what}",
        "network_stuck": f"all ranks started {what} and none completes it"
        + (f"; work requests of {who} stay unfinished" if root.ranks else ""),
        "no_data": f"{who} should be in {what}, but reports nothing",
    }
    parts = [texts.get(root.class_name, f"{who}: {what}"), *([waiting] if root.victims else [])]
    return "; ".join([*parts, *([why_open] if why_open else [])])


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _ranks(ranks: Iterable[int], nodes: Mapping[int, str]) -> str:
    listed = list(ranks)
    texts = [
        f"rank {rank} on node {nodes[rank]}" if nodes.get(rank) else f"rank {rank}"
        for rank in listed[:_MOST_LISTED]
    ]
    if len(listed) > _MOST_LISTED:
        texts.append(f"{len(listed) - _MOST_LISTED} more")
    return ", ".join(texts)


def collective(wait: Wait, reading: Reading) -> str:
    """Return for example "all_reduce 1041 of the data-parallel group"."""
    calls = signatures(reading.snapshot, wait).values()
    names = sorted({call.collective for call in calls})
    operation = "/".join(names) if names else "collective"
    group = _group(reading.snapshot.groups[wait.group], reading.snapshot.ranks)
    return f"{operation} {wait.sequence} of {group}"


def _group(group: Group, everyone: frozenset[int]) -> str:
    if group.members == everyone:
        return "the group of all ranks"
    if group.description.lower() in _NO_DESCRIPTION:
        return f"group {group.name} (ranks {format_ranks(group.members)})"
    return f"group {group.description} (ranks {format_ranks(group.members)})"
