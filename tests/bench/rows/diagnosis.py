"""Why a job of 128 nodes failed: from its recorded events to the answer, beside plain json and
networkx.

One node breaks its connections, and then the 1,024 ranks time out and end. The plain way sorts the
lines, draws who complains about whom, and takes whom most of the first complaints lead to.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

from bench.measurement import Measurement, alone, cpu_in_turns
from peerwatch_detector.diagnosis.root.algorithm.algorithm import find_root
from peerwatch_detector.diagnosis.root.answer import root_json
from peerwatch_detector.diagnosis.root.evidence.recorded import load_events

_GPUS, _CULPRIT = 8, 37
_NODES = 128
_LARGE = (128, 512, 1500, 4096)


def case(nodes: int) -> dict[str, object]:
    """Return the description of the case."""
    names = [f"n{node}" for node in range(nodes)]
    events: list[dict[str, object]] = [
        {
            "time": 100.0,
            "kind": "log",
            "class": "H",
            "name": "cuda_ecc",
            "node": "n37",
            "rank": _CULPRIT * _GPUS,
            "text": "CUDA error: uncorrectable ECC error",
        }
    ]
    for sign in (-1, 1):
        for distance in range(1, 5):
            node = (_CULPRIT + sign * distance) % nodes
            peer = (_CULPRIT + sign * (distance - 1)) % nodes
            events.append(
                {
                    "time": 100.0 + distance,
                    "kind": "log",
                    "class": "D",
                    "name": "nccl_connection_closed",
                    "node": names[node],
                    "rank": node * _GPUS,
                    "peer_rank": peer * _GPUS,
                }
            )
    for rank in range(nodes * _GPUS):
        place = {"node": names[rank // _GPUS], "rank": rank}
        late = {"time": 700 + rank * 1e-4, "kind": "log", "class": "D"}
        events.append(late | place | {"name": "collective_timeout"})
        gone = {"time": 720 + rank * 1e-4, "kind": "process", "value": 1}
        events.append(gone | place | {"name": "exited"})
    about: dict[str, object] = {"name": "bench", "job_id": "j", "seconds": 900, "nodes": names}
    return about | {"gpus_per_node": _GPUS, "events": events}


def plain(file: Path) -> str:
    """Return a node, as a person finds it with json and networkx."""
    events = json.loads(file.read_text())["events"]
    graph = nx.DiGraph()
    for event in sorted(events, key=lambda each: each["time"]):
        graph.add_node(event["node"])
        if "peer_rank" in event:
            graph.add_edge(event["node"], f"n{event['peer_rank'] // _GPUS}")
    ends = [node for node in graph if not graph.out_degree(node)]
    return max(ends, key=lambda node: len(nx.ancestors(graph, node)))


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the CPU time from the file to the answer, for each size."""
    for nodes in _LARGE if options.large else (_NODES,):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            file = folder / "case.json"
            file.write_text(json.dumps(case(nodes)))

            def ours(folder: Path = folder) -> None:
                found = load_events(folder)
                answer = root_json(find_root(found.job, found.events), found.job)
                if answer["causes"][0]["nodes"] != ["n37"]:
                    raise RuntimeError(f"not n37 but {answer['causes'][:1]}")

            def theirs(file: Path = file) -> None:
                plain(file)

            def floor(file: Path = file) -> None:
                json.loads(file.read_text())

            times = cpu_in_turns((ours, theirs, floor), 5)
        yield Measurement(
            "detector, diagnosis of a job that failed, from its events",
            "s CPU",
            *(times[0], times[1], "json + networkx", times[2], "json.loads"),
            nodes=nodes,
        )


if __name__ == "__main__":
    alone(measurements)
