"""A job that stands as its exporters' series, and as torch's Flight Recorder would dump it."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from detector.diagnosis.training_layout import Job
from peerwatch_detector.diagnosis.collectives.members import format_ranks
from peerwatch_detector.diagnosis.collectives.snapshot import Snapshot
from peerwatch_detector.frame import Series

_GPUS = 8


def samples_of(snapshot: Snapshot, ranks: int, now: float) -> dict[str, list[Series]]:
    """Return what Prometheus would answer to the queries of the diagnosis of hangs."""
    found: dict[str, list[Series]] = {"sequence": [], "groups": [], "read": [], "up": []}

    def add(name: str, value: float, **labels: str) -> None:
        found[name].append(Series(labels, np.array([now]), np.array([value])))

    for rank in range(ranks):
        whom = {"rank": str(rank), "node": f"n{rank // _GPUS}"}
        add("up", 1.0, **whom)
        add("read", now, **whom)
    for name, places in snapshot.positions.items():
        members = format_ranks(snapshot.groups[name].members)
        for rank, place in places.items():
            whom = {"rank": str(rank), "node": f"n{rank // _GPUS}", "group": name}
            add("groups", 1.0, ranks=members, description="", **whom)
            add("sequence", place.enqueued, state="launched", **whom)
            add("sequence", place.completed or 0, state="completed", **whom)
            if place.started is not None:
                add("sequence", place.started, state="started", **whom)
    return found


def write_dumps(job: Job, snapshot: Snapshot, folder: Path) -> None:
    """Write the dump of each rank: all that it launched, in its order, as ``rank_N``."""
    config = {
        name: {"name": name, "desc": name, "ranks": str(list(ranks))}
        for name, ranks in job.groups.items()
    }
    entries: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(job.layout.ranks)}
    calls: Counter[tuple[str, int]] = Counter()
    for name in job.order:
        for rank in job.groups[name]:
            calls[name, rank] += 1
            number, place = calls[name, rank], snapshot.positions[name].get(rank)
            if place is not None and number <= place.enqueued:
                done = number <= (place.completed or 0)
                entries[rank].append(_entry(name, number, len(entries[rank]), done=done))
    for rank, launched in entries.items():
        own = {name: each for name, each in config.items() if rank in job.groups[name]}
        dump = {"version": "2.10", "entries": launched, "pg_config": own, "pg_status": {}}
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump))


def _entry(name: str, number: int, record: int, *, done: bool) -> dict[str, Any]:
    return {
        "process_group": (name, name),
        "profiling_name": "nccl:all_reduce",
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": record,
        "record_id": record,
        "pg_id": 0,
        "is_p2p": False,
        "input_sizes": [[1024]],
        "output_sizes": [[1024]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "completed" if done else "scheduled",
        "time_created_ns": record,
        "frames": [{"name": "step", "filename": "train.py", "line": 118}],
        "retired": done,
    }
