"""From round trips between nodes to the one whose link is slow; its neighbours are never named."""

from __future__ import annotations

import itertools
import random

import pytest

from detector.diagnosis.exported import series
from detector.diagnosis.transfer_series import TransferJob
from peerwatch_detector.diagnosis.collectives.slowness.communication_diagnoser import (
    CommunicationDiagnoser,
)
from peerwatch_detector.diagnosis.collectives.slowness.round_trips import SlowLinks, slow_pairs

NOW = 1e9
# Milliseconds measured of a job of six ranks, all links alike: by sender and receiver.
HEALTHY = {(0, 5): 1.3, (1, 0): 1.2, (2, 1): 2.7, (3, 2): 1.4, (4, 3): 2.2, (5, 4): 1.3}
# The same with what node 2 sends at 20 Mbit/s, what node 4 is sent, and node 2 at 50 Mbit/s.
SENDS_SLOWLY = {(0, 5): 0.2, (1, 0): 0.9, (2, 1): 34.6, (3, 2): 28.0, (4, 3): 4.3, (5, 4): 0.8}
RECEIVES_SLOWLY = {(0, 5): 4.5, (1, 0): 2.1, (2, 1): 1.2, (3, 2): 2.2, (4, 3): 50.7, (5, 4): 32.0}
LESS_SLOWLY = {(0, 5): 0.1, (1, 0): 0.3, (2, 1): 10.2, (3, 2): 6.1, (4, 3): 1.7, (5, 4): 0.5}


def ring(size, slow=(), seconds=0.035, usual=0.001):
    """Return milliseconds by sender and receiver in a ring in which some nodes' links are slow."""
    pairs = [(n, (n + 1) % size) for n in range(size)]
    return {pair: 1000 * (seconds if set(pair) & set(slow) else usual) for pair in pairs}


def everybody(size, slow=(), seconds=0.035):
    pairs = itertools.permutations(range(size), 2)
    return {pair: 1000 * seconds if set(pair) & set(slow) else 1.0 for pair in pairs}


def samples(trips, least=None, moved=None, light=()):
    """Return what a job's exporters publish, node 3 having the address 10.9.0.3.

    ``light`` are pairs that carry a twentieth of what the others do.
    """

    def of(values, factor=0.001):
        return [
            series(
                {"node": f"n{a}", "address": f"10.9.0.{a}", "peer": f"10.9.0.{b}"}, value * factor
            )
            for (a, b), value in values.items()
        ]

    # Whoever only receives sends little, and is known by what it sends to others.
    return {
        "round_trips": of(trips),
        "least_round_trips": of(dict.fromkeys(trips, 0.05) | (least or {})),
        "carried": of({pair: 1e5 if pair in light else 2e6 for pair in trips}, 1.0),
        "moved": [series({"node": node}, value) for node, value in (moved or {}).items()],
    }


def found(trips, every=5, **more):
    """Return what is said of a job that is so for a minute and a half, asked every few seconds."""
    links, said = SlowLinks(), []
    for passed in range(0, 90, every):
        said = links.update(samples(trips, **more), NOW + passed)
        if passed < 75:
            assert said == []
    return said


def named(trips, **more):
    return [link.node for link in found(trips, **more) if link.names_node]


@pytest.mark.parametrize(
    ("trips", "node"),
    [(SENDS_SLOWLY, "n2"), (RECEIVES_SLOWLY, "n4"), (LESS_SLOWLY, "n2")],
    ids=["sends slowly", "receives slowly", "less slowly"],
)
def test_the_node_that_all_slow_pairs_have_in_common_is_named(trips, node):
    (link,) = found(trips)

    assert (link.node, link.names_node, link.since) == (node, True, NOW)


def test_the_sentence_has_both_sides_numbers():
    (link,) = found(SENDS_SLOWLY)

    assert link.text(2) == (
        "rank 2 on node n2: TCP round trips between its node and 2 others take 34.6 ms, those that "
        "are not slow 4.3 ms at most: what it sends or is sent waits for a slow link"
    )


def test_the_sentence_about_one_of_two_slow_nodes_has_only_its_own_numbers():
    trips = ring(8) | {(0, 1): 50.0, (1, 2): 40.0, (4, 5): 30.0, (5, 6): 30.0}

    texts = [link.text(None) for link in found(trips)]

    assert [text.partition(" take ")[2].partition(": ")[0] for text in texts] == [
        "50 ms, those that are not slow 1 ms at most",
        "30 ms, those that are not slow 1 ms at most",
    ]


@pytest.mark.parametrize("size", [3, 4, 5, 6, 7, 8, 12, 25])
def test_in_a_ring_of_any_size_the_node_is_named_and_no_neighbour(size):
    assert {n: named(ring(size, [n])) for n in range(size)} == {n: [f"n{n}"] for n in range(size)}


@pytest.mark.parametrize("size", range(4, 12))
def test_where_all_talk_to_all_the_node_is_named(size):
    assert named(everybody(size, [2])) == ["n2"]


@pytest.mark.parametrize("apart", [1, 2, 3, 4])
def test_of_two_slow_nodes_both_are_named_and_not_who_stands_between_them(apart):
    assert named(ring(8, [1, 1 + apart])) == ["n1", f"n{1 + apart}"]


def test_a_delay_counts_against_the_time_the_same_way_took_before():
    """20 ms more on all that one node sends; the shortest was known before."""
    assert named(ring(6, [3], 0.021, 0.0003)) == ["n3"]


def test_a_node_that_was_always_far_is_told_and_not_named():
    """A node at another site, 20 ms away."""
    (link,) = found(ring(6, [3], 0.021), least={(2, 3): 20.0, (3, 4): 20.0})

    assert (link.node, link.names_node) == ("n3", False)
    assert "always been" in link.text(3)


def test_two_racks_with_a_longer_way_between_them_name_nobody():
    trips = ring(8) | {(3, 4): 9.0, (7, 0): 9.0}

    assert named(trips) == []
    assert [link.node for link in found(trips, least={(3, 4): 8.9, (7, 0): 8.9})] == []


@pytest.mark.parametrize(
    "trips",
    [HEALTHY, ring(8, range(8)), ring(8, range(7)), ring(4, [0, 2]), ring(5, [0, 2]), {}],
    ids=["healthy", "all slow: the switch", "most", "all pairs of four", "four of five", "none"],
)
def test_nobody_is_named_where_no_majority_is_well(trips):
    assert named(trips) == []


def test_of_two_nodes_it_is_open_which_is_slow():
    (link,) = found(ring(2, [0]))

    assert (link.node, link.names_node, link.fault.name) == ("", False, "n0 - n1")
    assert "at one of both ends" in link.text(None)
    assert found(ring(2)) == []


def test_a_single_slow_pair_names_neither_end():
    (link,) = found(ring(8) | {(4, 5): 35.0})

    assert (link.node, link.names_node, link.fault.what) == ("", False, "path")


def test_whoever_moves_far_more_than_others_fills_its_link_by_itself():
    """As a parameter server, to which all send."""
    moved = {f"n{n}": 1e8 for n in range(6)}

    assert named(ring(6, [2]), moved=moved) == ["n2"]
    (link,) = found(ring(6, [2]), moved=moved | {"n2": 5e8})
    assert (link.node, link.names_node) == ("n2", False)
    assert "fills its link by itself" in link.text(2)


def test_a_burst_is_not_said_and_a_lull_neither_ends_nor_begins_it_anew():
    slow, well, links = samples(SENDS_SLOWLY), samples(HEALTHY), SlowLinks()

    def said(answers, passed):
        return [(link.node, link.since) for link in links.update(answers, NOW + passed)]

    for passed in range(0, 70, 5):
        assert said(slow, passed) == []
    assert said(well, 70) == []
    assert said(slow, 80) == [("n2", NOW)]
    assert said(well, 85) == said(well, 110) == [("n2", NOW)]
    assert said(well, 115) == []
    assert said(slow, 120) == []


def test_a_pair_that_carries_little_does_not_speak_for_a_slow_node():
    """Two milliseconds, measured of a group of three while the job's ring was idle."""
    trips = ring(7, [4]) | {(4, 6): 1.3}

    assert named(trips, light=[(4, 6)]) == ["n4"]
    assert named(trips) == []


def test_a_pair_that_carries_little_accuses_nobody():
    assert found(ring(7) | {(4, 6): 40.0, (6, 4): 40.0}, light=[(4, 6), (6, 4)]) == []


def test_addresses_that_several_nodes_have_are_nobody_s():
    trips = samples(SENDS_SLOWLY)
    for name in ("round_trips", "least_round_trips"):
        for each in trips[name]:
            each.labels["address"] = "172.17.0.1"

    assert SlowLinks().update(trips, NOW) == []


def test_of_an_old_kernel_all_of_a_round_trip_counts():
    links = SlowLinks()
    for passed in range(0, 90, 5):
        found = samples(SENDS_SLOWLY) | {"least_round_trips": [], "carried": [], "moved": []}
        said = links.update(found, NOW + passed)

    assert [link.node for link in said] == ["n2"]


def test_of_random_healthy_rings_nobody_is_named():
    """Round trips of loads that differ tenfold, below what a queue of milliseconds adds."""
    for seed in range(300):
        chance = random.Random(seed)
        size = chance.randint(2, 16)
        trips = {pair: 4.9 * chance.random() ** 3 for pair in ring(size)}
        assert found(trips, every=40) == [], seed


def test_of_random_slow_nodes_no_other_is_named():
    """A minority of nodes is slow, each as much as it likes, in rings and elsewhere."""
    for seed in range(300):
        chance = random.Random(seed)
        size = chance.randint(3, 16)
        slow = chance.sample(range(size), chance.randint(1, max(1, size // 4)))
        seconds = {node: chance.uniform(0.01, 0.2) for node in slow}
        pairs = chance.choice((ring, everybody))(size)
        trips = {
            pair: 1000 * max((seconds.get(node, 0.0) for node in pair), default=0.0)
            or chance.uniform(0.1, 2.0)
            for pair in pairs
        }
        assert set(named(trips, every=40)) <= {f"n{node}" for node in slow}, seed


def test_nothing_is_slow_of_nothing():
    assert slow_pairs({}) == set()


def said(loss, trips):
    """Return the verdicts about a job over TCP of four ranks."""
    pairs = {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)}
    job, diagnoser = (
        TransferJob(pairs, dict.fromkeys(pairs, 0.007), loss=loss),
        CommunicationDiagnoser("llm"),
    )
    for passed in range(0, 90, 5):
        answers = job.answers() | samples(trips) | {"transfer": [], "calls": []}
        verdicts = diagnoser.diagnose(answers, NOW + passed)
    return verdicts


def test_a_slow_link_is_a_finding_about_its_node():
    (verdict,) = said({}, ring(4, [2]))

    assert (verdict.class_name, verdict.node, verdict.rank) == ("communication_straggler", "n2", 2)
    assert (verdict.confidence, verdict.names_node, verdict.action) == ("likely", True, "inspect")
    assert verdict.victims == (0, 1, 3)
    assert verdict.start_time == NOW


def test_two_slow_links_are_two_findings():
    verdicts = said({}, ring(8, [1, 5]))

    assert [(each.node, each.names_node) for each in verdicts] == [("n1", True), ("n5", True)]


def test_a_node_that_loses_what_it_sends_explains_slow_round_trips():
    (verdict,) = said({"n1": 0.39}, ring(4, [2]))

    assert verdict.node == "n1"
