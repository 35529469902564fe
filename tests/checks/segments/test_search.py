"""The search for the part of a job that reproduces a fault, on a fabric that is arithmetic."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from peerwatch_checks.segments.division import Segment, divided
from peerwatch_checks.segments.evidence import Tolerances, Trained
from peerwatch_checks.segments.search import Found, Stage, search
from peerwatch_detector.diagnosis.root.algorithm.offline import halves
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces

HEALTHY = 10.0
TOLERANCES = Tolerances(bandwidth=0.15, whole=0.3, compute=0.25)


@dataclass
class Fabric:
    """Nodes and what joins them; each value is a bandwidth in GB/s, 0 for what nothing passes."""

    nodes: tuple[str, ...]
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    node: Mapping[str, float] = field(default_factory=dict)
    link: Mapping[frozenset[str], float] = field(default_factory=dict)
    above: Mapping[str, float] = field(default_factory=dict)
    slow: Mapping[str, float] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    noise: random.Random | None = None

    def trained(self, segment: Segment) -> Trained:
        silent = tuple(node for node in segment.nodes if node in self.dead)
        seconds = {n: self._noisy(self.slow.get(n, 1.0)) for n in segment.nodes if n not in silent}
        if silent:
            return Trained(seconds={}, failure="no answer in 60 s", silent=silent)
        if len(segment.nodes) == 1:
            return Trained(seconds)
        limits = [HEALTHY, *(self.node.get(node, HEALTHY) for node in segment.nodes)]
        limits += [value for pair, value in self.link.items() if pair <= set(segment.nodes)]
        for level, value in self.above.items():
            if len({self.places[node][level] for node in segment.nodes}) > 1:
                limits.append(value)
        value = min(limits)
        return Trained(seconds, self._noisy(value), "" if value else "Connection closed by peer")

    def _noisy(self, value: float) -> float:
        return value if self.noise is None else value * self.noise.uniform(0.96, 1.04)

    def found(self) -> tuple[Found, list[Stage]]:
        stages: list[Stage] = []
        released: set[str] = set()
        running = search(self.nodes, self.places, TOLERANCES)
        stage = next(running)
        while True:
            assert len(stages) < 100
            stages.append(stage)
            released |= set(stage.released)
            train = [node for segment in stage.segments for node in segment.nodes]
            assert len(train) == len(set(train)), "a node is in two segments"
            assert not released & set(train), "a node trains that was handed back"
            try:
                stage = running.send({each: self.trained(each) for each in stage.segments})
            except StopIteration as end:
                return end.value, stages


def named(fabric: Fabric) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.kind, each.names) for each in fabric.found()[0].suspects]


def nodes_of(count: int) -> tuple[str, ...]:
    return tuple(f"n{number:02}" for number in range(count))


def by_fours(nodes: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return places: four nodes to a leaf, two leaves to a pod."""
    return {
        node: {"leaf": f"l{place // 4}", "pod": f"p{place // 8}"}
        for place, node in enumerate(nodes)
    }


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 13, 16])
def test_of_healthy_nodes_none_is_named_and_all_are_handed_back(count: int) -> None:
    nodes = nodes_of(count)
    for seed in range(20_000, 20_020):
        assert [] == named(Fabric(nodes, noise=random.Random(seed)))
    if count > 4:
        _, stages = Fabric(nodes).found()
        assert set(nodes) == {node for stage in stages for node in stage.released}


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8, 11, 16])
@pytest.mark.parametrize("bandwidth", [0.0, 4.0, 8.0])
def test_any_one_bad_node_is_named(count: int, bandwidth: float) -> None:
    nodes = nodes_of(count)
    for bad in nodes:
        assert [("node", (bad,))] == named(Fabric(nodes, node={bad: bandwidth}))


def test_any_two_bad_nodes_of_sixteen_are_named_with_and_without_places() -> None:
    nodes = nodes_of(16)
    for places in ({}, by_fours(nodes)):
        for pair in itertools.combinations(nodes, 2):
            fabric = Fabric(nodes, places, node=dict.fromkeys(pair, 5.0))
            assert {("node", (node,)) for node in pair} == set(named(fabric))


def test_a_node_that_computes_slowly_is_named_by_its_peers() -> None:
    nodes = nodes_of(9)
    for bad in nodes:
        assert [("node", (bad,))] == named(Fabric(nodes, slow={bad: 2.0}))
    (suspect,) = Fabric(nodes, slow={"n04": 2.0}).found()[0].suspects
    assert "computes 2 times as long as its peers" in suspect.evidence


@pytest.mark.parametrize("count", [3, 8, 9])
def test_a_dead_node_is_named_and_the_others_are_tested_without_it(count: int) -> None:
    nodes = nodes_of(count)
    dead = Fabric(nodes, dead=frozenset({"n01"}))
    assert [("node", ("n01",))] == named(dead)
    if count > 3:
        both = Fabric(nodes, dead=frozenset({"n01"}), node={"n02": 5.0})
        assert {("node", ("n01",)), ("node", ("n02",))} == set(named(both))


def test_two_nodes_that_do_well_with_others_are_a_link() -> None:
    nodes = nodes_of(8)
    fabric = Fabric(nodes, link={frozenset({"n02", "n03"}): 3.0})
    assert [("link", ("n02", "n03"))] == named(fabric)


def test_what_no_part_reproduces_is_the_fabric_above_the_parts() -> None:
    nodes = nodes_of(16)
    pods = Fabric(nodes, by_fours(nodes), above={"pod": 4.0})
    assert [("fabric", ("pod p0", "pod p1"))] == named(pods)
    (suspect,) = pods.found()[0].suspects
    assert suspect.evidence == "all nodes does 4 GB/s, each part 10"


def test_one_pod_that_is_low_above_its_leaves_is_named_alone() -> None:
    nodes = nodes_of(16)
    places = by_fours(nodes)
    pairs = itertools.product(nodes[:4], nodes[4:8])
    fabric = Fabric(nodes, places, link={frozenset(pair): 4.0 for pair in pairs})
    assert [("fabric", ("leaf l0", "leaf l1"))] == named(fabric)


def test_uplinks_that_are_narrower_by_design_are_no_fault() -> None:
    nodes = nodes_of(16)
    assert [] == named(Fabric(nodes, by_fours(nodes), above={"pod": 7.5}))


def test_all_nodes_of_a_leaf_are_the_leaf() -> None:
    nodes = nodes_of(16)
    fabric = Fabric(nodes, by_fours(nodes), node=dict.fromkeys(nodes[4:8], 5.0))
    assert [("place", ("leaf l1",))] == named(fabric)


def test_of_two_nodes_nobody_is_named() -> None:
    assert [] == named(Fabric(nodes_of(2), node={"n00": 4.0}))
    assert ["undecided"] * 2 == [kind for kind, _ in named(Fabric(nodes_of(2), node={"n00": 0.0}))]


@pytest.mark.parametrize("count", [5, 8, 16])
def test_where_everything_fails_no_node_is_named(count: int) -> None:
    nodes = nodes_of(count)
    assert [("fabric", ("all nodes",))] == named(Fabric(nodes, node=dict.fromkeys(nodes, 0.0)))


def test_healthy_parts_are_handed_back_before_the_search_goes_on() -> None:
    nodes = nodes_of(32)
    fabric = Fabric(nodes, by_fours(nodes), node={"n30": 4.0})
    _, stages = fabric.found()
    released = [len(stage.released) for stage in stages]
    assert released[:3] == [0, 0, 22]
    assert [("node", ("n30",))] == named(fabric)


def test_parts_have_the_names_and_nodes_that_the_diagnosis_proposes() -> None:
    nodes = nodes_of(16)
    for places in (by_fours(nodes), {n: {"leaf": f"l{i % 3}"} for i, n in enumerate(nodes)}):
        parts = divided(Segment("all nodes", nodes), places)
        assert halves(JobPlaces(nodes, places=places), nodes) == tuple(
            (part.name, part.nodes) for part in parts
        )
    parts = divided(Segment("leaf l1", nodes[:5]), {})
    assert ("half 1 of leaf l1", nodes[:3]) == (parts[0].name, parts[0].nodes)
