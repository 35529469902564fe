"""Dumps of torch's Flight Recorder, all ranks of a job, as the diagnosis takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from peerwatch_detector.diagnosis.collectives.signature import Signature, elements, operation
from peerwatch_detector.diagnosis.collectives.slowness.lateness import Arrivals, align
from peerwatch_detector.diagnosis.collectives.snapshot import Group, Position, Snapshot

Dumps = Mapping[int, Mapping[str, Any]]


def to_snapshot(dumps: Dumps, time: float, silent: frozenset[int] = frozenset()) -> Snapshot:
    """Return the positions of all ranks; a group's members are the ranks that report it."""
    positions: dict[str, dict[int, Position]] = {}
    for rank, dump in dumps.items():
        for name, status in dump["pg_status"].items():
            completed = int(status["last_completed_collective"])
            started = int(status["last_started_collective"])
            positions.setdefault(name, {})[rank] = Position(
                enqueued=int(status["last_enqueued_collective"]),
                completed=max(completed, 0),
                # Over gloo starts are not recorded.
                started=started if started > 0 else None,
                signature=_signature(dump, name, completed + 1),
            )
    groups = {name: Group(name, frozenset(ranks)) for name, ranks in positions.items()}
    return Snapshot(time, groups, positions, silent)


def _signature(dump: Mapping[str, Any], group: str, sequence: int) -> Signature | None:
    for entry in reversed(dump["entries"]):
        if entry["process_group"][0] == group and entry["collective_seq_id"] == sequence:
            return Signature(
                operation(entry["profiling_name"]),
                elements(json.dumps(entry["input_sizes"])),
                elements(json.dumps(entry["output_sizes"])),
                ",".join(entry["input_dtypes"]),
            )
    return None


def to_arrivals(dumps: Dumps, newest: int | None = None) -> dict[str, Arrivals]:
    """Return when the ranks of each group of two or more launched its newest collectives."""
    times: dict[str, dict[int, dict[int, float]]] = {}
    for rank, dump in dumps.items():
        for entry in dump["entries"]:
            group = times.setdefault(entry["process_group"][0], {})
            launched = entry["time_created_ns"] / 1e9
            group.setdefault(rank, {})[entry["collective_seq_id"]] = launched
    tables = {name: align(ranks, at_most=newest) for name, ranks in times.items()}
    return {
        name: Arrivals(ranks, table)
        for name, (ranks, table) in tables.items()
        if len(ranks) > 1 and len(table)
    }
