"""The events of a recorded case: what was observed about its job, from its ``case.json`` alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, read_events
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.errors import CaseError

_DESCRIPTION = "case.json"
# As many events as are read, with half of the longest texts; a file beyond it is no description.
_MOST_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class RecordedEvents:
    """What was observed in a recorded case.

    Parameters
    ----------
    name, job_id
        Names of the case and of the job in it.
    seconds
        Length of the case; times of events are seconds from its start.
    job
        The job's nodes, ranks and places.
    events
        In order of time.
    """

    name: str
    job_id: str
    seconds: float
    job: JobPlaces
    events: tuple[Evidence, ...]


def load_events(folder: Path) -> RecordedEvents:
    """Read the job and the events of a case folder; ``samples.npz`` is not needed for it.

    Raises
    ------
    CaseError
        If ``case.json`` is missing or broken; it names file, entry, value and what is allowed.
    """
    file = folder / _DESCRIPTION
    try:
        if (size := file.stat().st_size) > _MOST_BYTES:
            raise CaseError(f"{file}: has {size} bytes; a case.json has at most {_MOST_BYTES}.")
        about = read_description(file)
        nodes = _names(about["nodes"], f"{file}: nodes")
        seconds = float(about["seconds"])
        return RecordedEvents(
            str(about["name"]),
            str(about["job_id"]),
            seconds,
            JobPlaces(
                nodes,
                _ranks(about, nodes, str(file)),
                _places(about.get("places") or {}, nodes, str(file)),
                _addresses(about.get("addresses") or {}, nodes, str(file)),
            ),
            read_events(about.get("events", []), str(file)),
        )
    except OSError as error:
        raise CaseError(f"{folder}: cannot be read: {error}.") from error
    # RecursionError: lists within lists, thousands deep.
    # OverflowError: whole numbers of any length.
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise CaseError(
            f"{file}: is no description of a case: {error!r}; it needs name, job_id, seconds and "
            "nodes."
        ) from error


def read_description(file: Path) -> dict[str, Any]:
    """Return what a ``case.json`` holds; editors of Windows mark their UTF-8 as such.

    Raises
    ------
    CaseError
        If it is no text in UTF-8, or no object.
    OSError, ValueError, RecursionError
        If it cannot be read, or is no JSON.
    """
    try:
        about = json.loads(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        # Its own text would show the whole file.
        raise CaseError(
            f"{file}: is no text in UTF-8: {error.reason} at byte {error.start:,}; save it as such."
        ) from error
    if not isinstance(about, dict):
        raise CaseError(f"{file}: holds no object.")
    return about


def _names(found: object, where: str) -> tuple[str, ...]:
    if not isinstance(found, list) or not found or len(set(map(str, found))) < len(found):
        raise CaseError(f"{where}: {found!r:.80}: at least one, each once, is needed.")
    return tuple(str(each) for each in found)


def _ranks(about: Mapping[str, object], nodes: tuple[str, ...], file: str) -> dict[int, str]:
    """Return the node of each rank: as ``ranks`` says, else ranks fill one node after the other."""
    listed = about.get("ranks")
    if listed is None:
        per_node = about.get("gpus_per_node")
        if not isinstance(per_node, int) or not 0 < per_node <= 1024:
            return {}
        return {i * per_node + j: node for i, node in enumerate(nodes) for j in range(per_node)}
    if not isinstance(listed, dict):
        raise CaseError(f"{file}: ranks is {listed!r:.80}; it must name the ranks of each node.")
    _known(listed, nodes, f"{file}: ranks")
    found: dict[int, str] = {}
    for node, ranks in listed.items():
        if not isinstance(ranks, list):
            raise CaseError(f"{file}: ranks of {node!r}: {ranks!r:.80}; it must be a list.")
        for rank in ranks:
            if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0 or rank in found:
                raise CaseError(
                    f"{file}: ranks of {node!r}: {rank!r} must be a whole number from 0, once."
                )
            found[rank] = str(node)
    return found


def _places(found: object, nodes: tuple[str, ...], file: str) -> dict[str, dict[str, str]]:
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise CaseError(f"{file}: places is {found!r:.80}; it must name rack, leaf, pod by node.")
    _known(found, nodes, f"{file}: places")
    return {
        str(node): {str(level): str(place) for level, place in each.items()}
        for node, each in found.items()
    }


def _addresses(found: object, nodes: tuple[str, ...], file: str) -> dict[str, str]:
    if not isinstance(found, dict):
        raise CaseError(f"{file}: addresses is {found!r:.80}; it must name the node of each.")
    _known(found.values(), nodes, f"{file}: addresses")
    return {str(address): str(node) for address, node in found.items()}


def _known(named: Iterable[object], nodes: tuple[str, ...], where: str) -> None:
    if unknown := sorted(set(map(str, named)) - set(nodes)):
        raise CaseError(f"{where}: names {unknown!r:.80}, not nodes of the job.")
