"""Segments of nodes that are threads here, by torch's own store; the model between processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from peerwatch_checks.check import Context, Skip
from peerwatch_checks.checks.multi.reference_training import (
    ReferenceTrainingOptions,
    outcomes,
    reference_training,
)
from peerwatch_checks.collectives.ranks import ask
from peerwatch_checks.multihost.member import Member
from peerwatch_checks.multihost.segment_runs import (
    NodeTrained,
    SegmentResult,
    SegmentRuns,
    SegmentTask,
)
from peerwatch_checks.segments.evidence import Tolerances

# Patience with a machine that does much else; nothing waits for it unless something is missing.
SECONDS = 60.0


@pytest.fixture
def port() -> Iterator[int]:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield store.port
    del store


def play(
    port: int, count: int, *, bad: str = "", absent: Collection[int] = (), join: float = SECONDS
) -> dict[int, SegmentResult]:
    results: dict[int, SegmentResult] = {}

    def node(index: int) -> None:
        store = PrefixStore("t", TCPStore("127.0.0.1", port, wait_for_workers=False))
        name = f"n{index}"

        def train(task: SegmentTask) -> NodeTrained:
            assert 0 <= task.place < task.count
            turn, number = task.name.split("/")
            segments = runs.segments_of(int(turn))
            inside = segments[int(number)][1]
            assert inside[task.place] == name
            return NodeTrained(1.0, 4.0 if bad in inside else 10.0)

        runs = SegmentRuns(
            store,
            Member(index, count, leads=True, host="127.0.0.1", port=port),
            name,
            "127.0.0.1",
            train,
            join_seconds=join,
            segment_seconds=SECONDS,
        )
        results[index] = runs.run({}, Tolerances())

    indices = [index for index in range(count) if index not in absent]
    threads = [threading.Thread(target=node, args=(index,)) for index in indices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def member(index: int, count: int) -> Member:
    return Member(index, count, leads=True, host="", port=0)


def test_a_bad_node_is_named_and_healthy_parts_are_handed_back(port: int) -> None:
    results = play(port, 12, bad="n7")

    (own,) = outcomes(results[7], member(7, 12))
    assert (own.status, own.device) == ("fail", "")
    first = {each.device: each.status for each in outcomes(results[0], member(0, 12))}
    assert first == {"": "pass", "n7": "fail"}
    assert [index for index, result in results.items() if result.found is None]
    for index in set(results) - {0, 7}:
        assert ["pass"] == [each.status for each in outcomes(results[index], member(index, 12))]


def test_of_too_few_that_came_nobody_passes(port: int) -> None:
    results = play(port, 3, absent={2}, join=3.0)

    said = [(each.device, each.status) for each in outcomes(results[0], member(0, 3))]
    assert said == [("", "skipped"), ("node 2", "fail")]
    assert ["skipped"] == [each.status for each in outcomes(results[1], member(1, 3))]


def test_two_nodes_are_too_few() -> None:
    context = Context(ReferenceTrainingOptions(), "n0", Path(), 60.0)
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2"}

    with pytest.raises(Skip, match="needs 3 nodes to compare, there are 2"):
        list(reference_training(context, environment=environment))


def test_a_topology_of_other_nodes_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("x1: {leaf: l1}\n")
    options = ReferenceTrainingOptions(topology=tmp_path / "t.yaml")
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "4"}

    with pytest.raises(ValueError, match="n0 is not in it"):
        list(reference_training(Context(options, "n0", Path(), 60.0), environment=environment))


def test_ranks_train_the_model_and_have_the_same_parameters() -> None:
    told = {
        "task": "training",
        "backend": "gloo",
        "width": 16,
        "layers": 2,
        "batch": 1,
        "sequence": 7,
        "steps": 2,
    }
    found = ask(["cpu", "cpu"], told, seconds=300.0)

    assert found.failure == ""
    for rank in found.ranks:
        assert rank["right"]
        assert rank["bandwidth"] > 0
