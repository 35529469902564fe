"""Which pings count as lost, and on which half of their path; who pings whom."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from peerwatch_exporter.sources.pings.losses import Losses
from peerwatch_exporter.sources.pings.partners import partners
from peerwatch_exporter.sources.pings.totals import PingTotals, Target

TARGET = Target("10.0.0.2", "udp", "large")


class Path:
    """A target that is pinged once a second; each half of the path may lose a ping."""

    def __init__(self):
        self.totals = PingTotals()
        self.losses = Losses(TARGET, self.totals, timeout_seconds=0.5, patience_seconds=10)
        self.sequence = self.received = 0

    def ping(self, there=True, back=True, seconds=0.001):
        self.sequence += 1
        self.losses.sent(self.sequence, float(self.sequence))
        self.received += there
        if there and back:
            now = self.sequence + seconds
            self.losses.answered(self.sequence, self.received, seconds, now)
        self.losses.expire(float(self.sequence))

    @property
    def counts(self):
        counts = self.totals.read()[TARGET]
        lost = {name: number for name, number in counts.lost.items() if number}
        return counts.sent, lost


def test_losses_are_counted_by_the_half_of_the_path():
    path = Path()
    path.ping()
    for _ in range(3):
        path.ping(there=False)
    path.ping(back=False)
    path.ping()

    assert (6, {"to_peer": 3, "from_peer": 1}) == path.counts


def test_a_thousand_random_losses_have_the_direction_they_had():
    path, rng = Path(), random.Random(20101)
    expected = Counter()
    path.ping()
    for _ in range(1000):
        there, back = rng.random() > 0.1, rng.random() > 0.05
        path.ping(there, back)
        expected["to_peer"] += not there
        expected["from_peer"] += there and not back
    path.ping()

    assert (1002, dict(expected)) == path.counts


def test_without_an_answer_the_direction_is_not_known():
    path = Path()
    for _ in range(30):
        path.ping(there=False)

    assert (19, {"unknown": 19}) == path.counts


def test_a_peer_that_was_started_again_has_received_less_and_lost_nothing():
    path = Path()
    for _ in range(5):
        path.ping()
    path.ping(there=False)
    path.received = 0
    for _ in range(5):
        path.ping()
    path.ping(there=False)
    path.ping()

    assert (13, {"unknown": 1, "to_peer": 1}) == path.counts


def test_an_answer_that_comes_too_late_is_a_loss_on_its_way_back():
    path = Path()
    path.ping()
    path.ping(seconds=0.7)

    assert (2, {"from_peer": 1}) == path.counts


def test_answers_in_another_order_are_no_losses():
    path = Path()
    path.ping()
    for number in (2, 3):
        path.losses.sent(number, 2.0)
    path.losses.answered(3, 2, 0.1, 2.1)
    path.losses.answered(2, 3, 0.2, 2.2)
    path.sequence = path.received = 3
    path.ping()

    assert (4, {}) == path.counts


def test_an_answer_nobody_waits_for_counts_nothing():
    path = Path()
    path.ping()
    path.losses.answered(1, 1, 0.1, 2.0)
    path.losses.answered(77, 1, 0.1, 2.0)

    assert (1, {}) == path.counts


def test_the_shortest_and_the_99th_percentile_are_of_the_newest():
    totals = PingTotals()
    for number in range(300):
        totals.answered(TARGET, number / 1000)

    counts = totals.read()[TARGET]

    assert (0.1, 0.298) == (counts.shortest, counts.p99)
    assert sum(range(300)) / 1000 == pytest.approx(counts.seconds)


def ring(count):
    return [f"10.0.{number >> 8}.{number & 255}" for number in range(count)]


@pytest.mark.parametrize("most", [2, 3, 8, 16])
@pytest.mark.parametrize("count", [2, 3, 5, 9, 17, 64, 100, 333])
def test_each_node_is_pinged_by_as_many_as_it_pings(count, most):
    nodes = ring(count)

    chosen = {node: partners(reversed(nodes), {node}, most, "node") for node in nodes}

    assert {min(most, count - 1)} == {len(set(each)) for each in chosen.values()}
    assert all(node not in each for node, each in chosen.items())
    pinged_by = Counter(each for every in chosen.values() for each in every)
    assert {min(most, count - 1)} == set(pinged_by.values())


def test_of_many_nodes_near_and_far_ones_are_pinged():
    nodes = ring(1024)

    chosen = partners(nodes, {nodes[0]}, 4, "node")

    assert [1, 8, 64, 512] == [nodes.index(each) for each in chosen]


def test_a_node_with_several_addresses_pings_from_each_and_not_itself():
    nodes = ring(64)

    chosen = partners(nodes, {nodes[0], nodes[32]}, 6, "node")

    assert [1, 2, 4, 33, 34, 36] == [nodes.index(each) for each in chosen]


def test_a_node_that_is_not_in_the_list_pings_too():
    nodes = ring(64)

    assert 8 == len(partners(nodes, set(), 8, "gateway"))
    assert partners(nodes, set(), 8, "a") != partners(nodes, set(), 8, "b")
    assert () == partners([], set(), 8, "a")
