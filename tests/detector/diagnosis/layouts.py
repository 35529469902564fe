"""Snapshots written as in a table: group, rank, launched/completed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from peerwatch_detector.diagnosis.collectives.signature import Signature
from peerwatch_detector.diagnosis.collectives.snapshot import Group, Position, Snapshot

TP = {"TP01": (0, 1), "TP23": (2, 3), "TP45": (4, 5), "TP67": (6, 7)}
DP = {"DP02": (0, 2), "DP13": (1, 3), "DP46": (4, 6), "DP57": (5, 7)}
PP = {"PP04": (0, 4), "PP15": (1, 5), "PP26": (2, 6), "PP37": (3, 7)}
EIGHT = {**TP, **DP, **PP}


def positions(text: str) -> dict[str, dict[int, Position]]:
    """Read "TP45: 4 40/39, 5 39/39; PP04: ..."; all launched ones have been started."""
    found: dict[str, dict[int, Position]] = {}
    for part in text.split(";"):
        name, _, ranks = part.partition(":")
        for rank, enqueued, completed in re.findall(r"(\d+) (\d+)/(\d+)", ranks):
            found.setdefault(name.strip(), {})[int(rank)] = Position(
                int(enqueued), int(completed), int(enqueued)
            )
    return found


def snapshot(
    text: str,
    groups: Mapping[str, Iterable[int]],
    *,
    silent: Iterable[int] = (),
    dead: Iterable[int] = (),
) -> Snapshot:
    """Return the snapshot of a text as ``positions`` reads it."""
    known = {name: Group(name, frozenset(members)) for name, members in groups.items()}
    return Snapshot(1000.0, known, positions(text), frozenset(silent), frozenset(dead))


def without_starts(state: Snapshot) -> Snapshot:
    """Return a snapshot as gloo gives it."""
    positions = {
        name: {rank: replace(position, started=None) for rank, position in ranks.items()}
        for name, ranks in state.positions.items()
    }
    return replace(state, positions=positions)


def all_reduce(size: int) -> Signature:
    """Return the signature of an all_reduce of so many elements."""
    return Signature("all_reduce", size, size, "Float")
