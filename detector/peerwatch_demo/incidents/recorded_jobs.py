"""The recorded jobs: real faults with the lines that real ranks wrote (``real/record.py``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_demo.incidents.incident import Answer, Incident
from peerwatch_demo.incidents.lines import matcher
from peerwatch_demo.incidents.mechanism import Label
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, in_order
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces

FOLDER = Path(__file__).parent / "recorded"
PART = "recorded"
_JOB_ID = "4242"


def load_recorded(folder: Path = FOLDER) -> tuple[Incident, ...]:
    """Return the recorded jobs as incidents, by name.

    Raises
    ------
    ConfigError
        If their answers cannot be read.
    """
    answers = read_yaml(folder / "answers.yaml")
    return tuple(
        _incident(json.loads((folder / f"{fault}.json").read_text()), Label.model_validate(label))
        for fault, label in answers.items()
    )


def _incident(seen: dict[str, Any], label: Label) -> Incident:
    nodes = tuple(seen["nodes"])
    named = {"all": frozenset(nodes), "bad": frozenset({seen["bad_node"]})}
    nobody: frozenset[str] = frozenset()
    return Incident(
        name=f"{PART}-{seen['fault']}",
        mechanism=f"{PART}_{seen['fault']}",
        part=PART,
        job_id=_JOB_ID,
        job=JobPlaces(nodes, dict(enumerate(nodes))),
        seconds=float(seen["seconds"]),
        onset_seconds=0.0,
        events=in_order([*_ends(seen, nodes), *_lines(seen, nodes)]),
        answer=Answer(
            frozenset(label.domain),
            frozenset(label.symptom),
            nobody,
            nobody,
            nobody.union(*(named[role] for role in label.named)),
        ),
    )


def _ends(seen: dict[str, Any], nodes: tuple[str, ...]) -> Iterator[Evidence]:
    for rank, (time, code) in seen["ends"].items():
        yield Evidence(
            time=time,
            kind="process",
            name="exited" if code >= 0 else "killed",
            node=nodes[int(rank)],
            job_id=_JOB_ID,
            rank=int(rank),
            value=float(code),
        )


def _lines(seen: dict[str, Any], nodes: tuple[str, ...]) -> Iterator[Evidence]:
    """Yield what the signatures that ship find in the log of each rank."""
    matchers = {rank: matcher("job") for rank in range(len(nodes))}
    for time, rank, line in seen["lines"]:
        for event in matchers[rank].feed(f"{line}\n".encode()):
            yield Evidence(
                time=time,
                kind="log",
                name=event.signature.id,
                class_name=event.signature.event_class.value,
                node=nodes[rank],
                job_id=_JOB_ID,
                rank=rank,
                peer_rank=event.peer_rank,
                peer_address=event.peer_address or "",
                text=event.text.decode("utf-8", "replace")[:200],
            )
