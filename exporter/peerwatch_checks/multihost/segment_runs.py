"""Segments of a job train at the same time, stage by stage; the first node leads the search.

Every wait ends: a node that says nothing until its segment's time is over was silent, and the
search goes on without an answer of it. A healthy segment's nodes are told so and leave.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from peerwatch_checks.multihost.member import Member
from peerwatch_checks.multihost.rounds import SLACK_SECONDS, Store, publish, receive, unlike
from peerwatch_checks.segments.division import Segment
from peerwatch_checks.segments.evidence import Tolerances, Trained
from peerwatch_checks.segments.search import Found, Places, Suspect, search

# Of two nodes nobody knows which is slow.
_LEAST_NODES = 3


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment's training as one of its nodes sees it.

    Parameters
    ----------
    name
        Of the training, unlike that of any other.
    place, count
        Which of the segment's nodes this is, from 0, and how many there are.
    host
        Address of the first one, which listens.
    seconds
        Until then it has an answer.
    """

    name: str
    place: int
    count: int
    host: str
    seconds: float


@dataclass(frozen=True, slots=True)
class NodeTrained:
    """What one node saw of its segment's training.

    Parameters
    ----------
    seconds
        Computing of a step, that of its slowest device.
    bandwidth
        Bus bandwidth, GB/s.
    failure
        Why there is neither; empty if there is.
    """

    seconds: float
    bandwidth: float
    failure: str = ""


Train = Callable[[SegmentTask], NodeTrained]


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """What came of it for one node.

    Parameters
    ----------
    names
        Of the nodes that came, by index.
    missing
        Indices of those that did not.
    stages
        In how many stages segments trained, as far as this node heard of them.
    found
        What is bad; None where this node was handed back before that was known: it is healthy.
    """

    names: Mapping[int, str]
    missing: tuple[int, ...]
    stages: int
    found: Found | None


class SegmentRuns:
    """One node's part.

    Parameters
    ----------
    store
        Where all meet.
    member
        Which node this is.
    name, address
        Its name, and where the others reach it.
    train
        Trains a segment from this node's side.
    join_seconds
        Until then a node has come, or it is missing.
    segment_seconds
        What a segment's training may take.
    """

    def __init__(
        self,
        store: Store,
        member: Member,
        name: str,
        address: str,
        train: Train,
        *,
        join_seconds: float,
        segment_seconds: float,
    ) -> None:
        self._store, self._member = store, member
        self._name, self._address = name, address
        self._train = train
        self._join, self._segment = join_seconds, segment_seconds

    def run(self, places: Places, tolerances: Tolerances) -> SegmentResult:
        """Take part until the search has ended or this node is handed back.

        Parameters
        ----------
        places, tolerances
            As for ``search``; those of the first node count.

        Raises
        ------
        RuntimeError
            If the first node went away.
        """
        index = self._member.index
        publish(self._store, f"node/{index}", {"name": self._name, "address": self._address})
        if index == 0:
            self._plan()
        plan = receive(self._store, "plan", self._join + SLACK_SECONDS)
        names = {int(key): name for key, name in plan["names"].items()}
        missing = tuple(plan["missing"])
        if len(names) < _LEAST_NODES or index not in names:
            return SegmentResult(names, missing, 0, Found((), 0.0))
        if index == 0:
            return self._lead(plan, names, missing, search([*names.values()], places, tolerances))
        return self._follow(plan, names, missing)

    def segments_of(self, turn: int) -> list[tuple[str, list[str]]]:
        """Return names and nodes of the segments of a stage that has begun."""
        said = receive(self._store, f"stage/{turn}", SLACK_SECONDS)
        return [(name, nodes) for name, nodes in said["segments"]]

    def _plan(self) -> None:
        deadline = time.monotonic() + self._join
        nodes: dict[int, dict[str, str]] = {}
        for index in range(self._member.count):
            with contextlib.suppress(RuntimeError):
                nodes[index] = receive(self._store, f"node/{index}", deadline - time.monotonic())
        names = unlike({index: node["name"] for index, node in nodes.items()})
        addresses = {names[index]: node["address"] for index, node in nodes.items()}
        missing = [each for each in range(self._member.count) if each not in nodes]
        publish(self._store, "plan", {"names": names, "addresses": addresses, "missing": missing})

    def _lead(
        self,
        plan: Mapping[str, Any],
        names: Mapping[int, str],
        missing: tuple[int, ...],
        running: Any,  # noqa: ANN401 - a generator
    ) -> SegmentResult:
        turn = 0
        released: set[str] = set()
        stage = next(running)
        while True:
            released |= set(stage.released)
            said = {
                "segments": [[each.name, each.nodes] for each in stage.segments],
                "released": sorted(released),
            }
            publish(self._store, f"stage/{turn}", said)
            # A segment has its time from the beginning of the stage, on whichever node.
            until = time.monotonic() + self._segment + SLACK_SECONDS
            self._take_part(turn, said, plan, names[0])
            trained = self._gathered(turn, stage.segments, until)
            turn += 1
            try:
                stage = running.send(trained)
            except StopIteration as end:
                found: Found = end.value
                publish(self._store, f"stage/{turn}", {"found": asdict(found)})
                self._wait_for_all(names, released)
                return SegmentResult(names, missing, turn, found)

    def _follow(
        self, plan: Mapping[str, Any], names: Mapping[int, str], missing: tuple[int, ...]
    ) -> SegmentResult:
        own, turn = names[self._member.index], 0
        while True:
            said = receive(self._store, f"stage/{turn}", self._segment + 3 * SLACK_SECONDS)
            if found := said.get("found"):
                publish(self._store, f"left/{self._member.index}", True)
                suspects = tuple(
                    Suspect(**{**each, "names": tuple(each["names"])}) for each in found["suspects"]
                )
                level = Found(suspects, found["level"])
                return SegmentResult(names, missing, turn, level)
            if own in said["released"]:
                return SegmentResult(names, missing, turn, None)
            self._take_part(turn, said, plan, own)
            turn += 1

    def _take_part(
        self, turn: int, said: Mapping[str, Any], plan: Mapping[str, Any], own: str
    ) -> None:
        for number, (_name, nodes) in enumerate(said["segments"]):
            if own in nodes:
                task = SegmentTask(
                    name=f"{turn}/{number}",
                    place=nodes.index(own),
                    count=len(nodes),
                    host=plan["addresses"][nodes[0]],
                    seconds=self._segment,
                )
                publish(self._store, f"trained/{turn}/{own}", asdict(self._train(task)))

    def _gathered(
        self, turn: int, segments: tuple[Segment, ...], deadline: float
    ) -> dict[Segment, Trained]:
        found = {}
        for segment in segments:
            said: dict[str, NodeTrained] = {}
            for node in segment.nodes:
                with contextlib.suppress(RuntimeError):
                    key = f"trained/{turn}/{node}"
                    said[node] = NodeTrained(
                        **receive(self._store, key, deadline - time.monotonic())
                    )
            found[segment] = _joined(segment, said)
        return found

    def _wait_for_all(self, names: Mapping[int, str], released: set[str]) -> None:
        """Let the first node, which may keep the store, stay until the others have heard all."""
        deadline = time.monotonic() + SLACK_SECONDS
        for index, name in names.items():
            if index and name not in released:
                with contextlib.suppress(RuntimeError):
                    receive(self._store, f"left/{index}", deadline - time.monotonic())


def _joined(segment: Segment, said: Mapping[str, NodeTrained]) -> Trained:
    silent = tuple(node for node in segment.nodes if node not in said)
    failures = [each.failure for each in said.values() if each.failure]
    if silent:
        failures.append(f"{silent[0]} did not answer")
    well = [each for each in said.values() if not each.failure]
    return Trained(
        seconds={node: each.seconds for node, each in said.items() if not each.failure},
        bandwidth=min(each.bandwidth for each in well) if well and len(segment.nodes) > 1 else None,
        failure=failures[0] if failures else "",
        silent=silent,
    )
