"""Overlap of computing and communication: what is timed, and who is worse than its peers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from peerwatch_checks.check import Context, Skip
from peerwatch_checks.checks.multi.compute_communication_overlap import (
    _WORDS,
    ComputeCommunicationOverlapOptions,
    compute_communication_overlap,
)
from peerwatch_checks.collectives.overlap import OverlapSeconds, overlap_ratio, timed_overlap
from peerwatch_checks.collectives.ranks import ask
from peerwatch_checks.multihost.member import Member
from peerwatch_checks.multihost.pair_outcomes import outcomes
from peerwatch_checks.multihost.rounds import Result
from peerwatch_checks.pairs.naming import name_suspects

UNIT_SECONDS = 0.25
COMMUNICATION_SECONDS = 1.0


class Node:
    """A node whose communication proceeds beside computing, or only while it waits for it."""

    def __init__(self, *, hides: bool) -> None:
        self.now = 0.0
        self._hides = hides

    def compute(self, count: int) -> None:
        self.now += count * UNIT_SECONDS

    def begin(self) -> object:
        begun = self.now

        def ended() -> None:
            alone = (begun if self._hides else self.now) + COMMUNICATION_SECONDS
            self.now = max(self.now, alone)

        return ended

    def seconds(self) -> OverlapSeconds:
        return timed_overlap(
            self.compute,
            self.begin,  # type: ignore[arg-type]
            lambda: None,
            repeats=3,
            clock=lambda: self.now,
        )


def test_who_hides_communication_takes_as_long_as_the_longer_of_both() -> None:
    seconds = Node(hides=True).seconds()

    assert OverlapSeconds(1.0, 1.0, 1.0) == seconds
    assert overlap_ratio(seconds) == 1.0


def test_who_takes_turns_takes_the_sum_of_both() -> None:
    seconds = Node(hides=False).seconds()

    assert OverlapSeconds(1.0, 1.0, 2.0) == seconds
    assert overlap_ratio(seconds) == 0.5


def test_a_clock_that_stands_still_is_no_overlap() -> None:
    assert overlap_ratio(OverlapSeconds(0.0, 0.0, 0.0)) == 0.0


def test_ranks_of_a_group_measure_it() -> None:
    found = ask(
        ["cpu", "cpu"],
        {"task": "overlap", "backend": "gloo", "size": 4096, "repeats": 2},
        seconds=300.0,
    )

    assert found.failure == ""
    for rank in found.ranks:
        seconds = OverlapSeconds(**rank)
        assert min(seconds.compute, seconds.communication, seconds.both) > 0
        assert 0 < overlap_ratio(seconds) <= 1


def test_a_node_that_is_worse_than_its_peers_is_named() -> None:
    nodes = ["a", "b", "c", "d", "e"]
    value = {
        (a, b): 0.52 if "c" in (a, b) else 0.95
        for place, a in enumerate(nodes)
        for b in nodes[place + 1 :]
    }
    result = Result(dict(enumerate(nodes)), (), value, {}, 5, name_suspects(value, tolerance=0.25))

    member = Member(2, 5, leads=True, host="", port=0)
    (own,) = outcomes(result, member, _WORDS)
    assert (own.status, own.device) == ("fail", "")
    assert "c does an overlap of 0.52, others 0.95 at best with any other node" in own.message
    (healthy,) = outcomes(result, replace(member, index=1), _WORDS)
    assert healthy.status == "pass"
    first = {
        each.device: each.status for each in outcomes(result, replace(member, index=0), _WORDS)
    }
    assert first == {"": "pass", "c": "fail"}


def test_a_node_that_nothing_reaches_has_not_passed() -> None:
    nodes = ["a", "b", "c"]
    value = {("a", "b"): 0.0, ("a", "c"): 0.0, ("b", "c"): 0.0}
    result = Result(dict(enumerate(nodes)), (), value, {}, 3, name_suspects(value, tolerance=0.25))

    for index in range(3):
        own, *_ = outcomes(result, Member(index, 3, leads=False, host="", port=0), _WORDS)
        assert own.status in {"fail", "error"}, own


def test_two_nodes_cannot_be_told_apart() -> None:
    context = Context(ComputeCommunicationOverlapOptions(), "n0", Path(), 60.0)
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2"}

    with pytest.raises(Skip, match="needs 3 nodes, there are 2"):
        list(compute_communication_overlap(context, environment=environment))
