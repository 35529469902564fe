"""The answers of a server to the queries of the diagnosers, from snapshots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from peerwatch_detector.diagnosis.collectives.members import format_ranks
from peerwatch_detector.diagnosis.collectives.snapshot import Snapshot
from peerwatch_detector.frame import Series

Answers = dict[str, list[Series]]


def series(labels: Mapping[str, object], value: float) -> Series:
    """Return a series of one sample."""
    text = {name: str(label) for name, label in labels.items()}
    return Series(text, np.array([0.0]), np.array([float(value)]))


def answers(
    snapshot: Snapshot,
    *,
    age: float = 40.0,
    ages: Mapping[tuple[str, int], float] | None = None,
    read_at: Mapping[int, float] | None = None,
    written: Mapping[int, float] | None = None,
    spans: Mapping[int, float] | None = None,
    batches: Mapping[int, float] | None = None,
    members: bool = True,
    states: Mapping[str, int] | None = None,
) -> Answers:
    """Return what exporters on nodes of two ranks each would make of a snapshot.

    Parameters
    ----------
    snapshot
        Silent ranks have a source that is down.
    age
        Seconds for which everything in flight has been.
    ages
        The same by group and rank, where it is not ``age``.
    read_at
        Unix time by rank, if not the snapshot's.
    written, spans, batches
        By rank.
    members
        Whether the hook tells the members of groups.
    states
        Rank by the state of its process: "exited", "stopped".
    """
    found: Answers = {"groups": [], "written": [], "spans": [], "ended": [], "stopped": []}
    for rank in sorted(snapshot.ranks):
        labels = {"job_id": "llm", "node": f"c{rank // 2}", "rank": rank}
        up = rank not in snapshot.silent | snapshot.dead
        found.setdefault("up", []).append(series({**labels, "source": "recorder"}, up))
        time = (read_at or {}).get(rank, snapshot.time)
        found.setdefault("read", []).append(series({**labels, "source": "recorder"}, time))
        if rank in (written or {}):
            found["written"].append(series(labels, (written or {})[rank]))
        if rank in (spans or {}):
            found["spans"].append(series(labels, (spans or {})[rank]))
        if rank in (batches or {}):
            found.setdefault("batches", []).append(series(labels, (batches or {})[rank]))
    for group, positions in snapshot:
        if members:
            text = format_ranks(group.members)
            labels = {"group": group.name, "members": text, "description": group.description}
            found["groups"].append(series({**labels, "node": "c0"}, 1))
        for rank, place in positions.items():
            labels = {"node": f"c{rank // 2}", "rank": rank, "group": group.name}
            states_of = {
                "launched": place.enqueued,
                "started": place.started,
                "completed": place.completed,
            }
            for state, value in states_of.items():
                if value is not None:
                    answer = series({**labels, "state": state}, value)
                    found.setdefault("sequence", []).append(answer)
            if place.in_flight is not None:
                since = (ages or {}).get((group.name, rank), age)
                found.setdefault("age", []).append(series(labels, since))
                call = {"collective": "all_reduce", "input": "[64]", "output": "[64]"}
                answer = series({**labels, **call, "dtype": "Float"}, place.in_flight)
                found.setdefault("call", []).append(answer)
    for state, rank in (states or {}).items():
        name = "ended" if state in ("exited", "zombie") else "stopped"
        found[name].append(series({"rank": rank, "node": f"c{rank // 2}", "state": state}, 1))
    return found
