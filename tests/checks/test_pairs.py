"""Schedules of pairs, and whom their bandwidth names."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from each_case import each_case
from peerwatch_checks.pairs.naming import Suspect, Verdict, name_suspects
from peerwatch_checks.pairs.schedule import Pair, all_pairs, near_to_far


def capped(pairs: list[Pair], caps: dict[str, float]) -> dict[Pair, float]:
    return {(a, b): min(caps[a], caps[b]) for a, b in pairs}


def every(nodes: str) -> list[Pair]:
    return list(itertools.combinations(nodes, 2))


def named(found: Verdict) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.kind, each.names) for each in found.suspects]


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 33, 64])
def test_the_circle_method_pairs_all_once_and_nobody_twice_in_a_round(count: int) -> None:
    nodes = [f"n{i:02}" for i in range(count)]
    rounds = all_pairs(nodes)
    assert len(rounds) == (count if count % 2 else count - 1)
    for each in rounds:
        assert max(Counter(itertools.chain(*each)).values()) == 1
        assert len(each) == count // 2
    pairs = list(itertools.chain(*rounds))
    assert sorted(pairs) == list(itertools.combinations(nodes, 2))


def test_nobody_or_one_node_has_no_rounds() -> None:
    assert all_pairs([]) == all_pairs(["a"]) == ()
    assert near_to_far([], {}) == near_to_far(["a"], {}) == ()


@each_case(
    "count, leaf", itertools.product([2, 3, 4, 5, 6, 7, 8, 9, 17, 31, 64, 101], [1, 3, 8, 1000])
)
def test_each_node_meets_as_many_distinct_partners_as_asked_for(count: int, leaf: int) -> None:
    nodes = [f"n{i:03}" for i in range(count)]
    places = {
        node: {"leaf": f"l{i // leaf}", "pod": f"p{i // (2 * leaf)}"}
        for i, node in enumerate(nodes)
    }
    random.Random(count).shuffle(nodes)
    rounds = near_to_far(nodes, places)
    pairs = list(itertools.chain(*rounds))
    assert len(set(pairs)) == len(pairs)
    for each in rounds:
        assert max(Counter(itertools.chain(*each)).values()) == 1
    met = Counter(itertools.chain(*pairs))
    assert min(met.values()) >= min(3, count - 1)
    # Rounds to make up for a rest are few: one test takes as long as all of its round.
    assert len(rounds) <= min(3, count - 1) + 3


def test_the_first_round_stays_under_a_leaf_and_the_third_crosses_pods() -> None:
    nodes = [f"n{i:02}" for i in range(32)]
    places = {node: {"leaf": f"l{i // 4}", "pod": f"p{i // 16}"} for i, node in enumerate(nodes)}
    first, second, third = near_to_far(nodes, places)
    assert all(places[a]["leaf"] == places[b]["leaf"] for a, b in first)
    assert all(places[a]["leaf"] != places[b]["leaf"] for a, b in second)
    assert all(places[a]["pod"] == places[b]["pod"] for a, b in second)
    assert all(places[a]["pod"] != places[b]["pod"] for a, b in third)


# W1 to W7 of the reference.
def test_w1_the_node_with_the_low_cap() -> None:
    found = name_suspects(capped(every("abcd"), {"a": 380, "b": 378, "c": 200, "d": 382}))
    assert found.level == 379
    assert named(found) == [("node", ("c",))]
    assert found.suspects[0].ratio == pytest.approx(200 / 379)


def test_w2_one_low_pair_is_a_link() -> None:
    pairs = capped(every("abcdef"), dict.fromkeys("abcdef", 380.0)) | {("a", "c"): 190.0}
    assert named(name_suspects(pairs)) == [("link", ("a", "c"))]


def two_leaves() -> tuple[dict[Pair, float], dict[str, dict[str, str]]]:
    places = {node: {"leaf": "l1" if node in "abcd" else "l2"} for node in "abcdefgh"}
    pairs = {(a, b): 380.0 if places[a] == places[b] else 200.0 for a, b in every("abcdefgh")}
    return pairs, places


def test_w3_all_crossing_pairs_are_the_uplink_and_no_node() -> None:
    pairs, places = two_leaves()
    found = name_suspects(pairs, places)
    assert found.level == 380
    assert named(found) == [("uplink", ("leaf l1", "leaf l2"))]


def test_w4_two_bad_nodes_of_eight_and_no_link() -> None:
    caps = dict.fromkeys("acdefh", 380.0) | {"b": 200.0, "g": 250.0}
    assert named(name_suspects(capped(every("abcdefgh"), caps))) == [
        ("node", ("b",)),
        ("node", ("g",)),
    ]


def test_w5_one_round_is_undecided_two_rounds_name_the_node() -> None:
    rounds = all_pairs("12345678")
    caps = dict.fromkeys("12345678", 380.0) | {"5": 200.0}
    (partner,) = ({a, b} - {"5"} for a, b in rounds[0] if "5" in (a, b))
    found = name_suspects(capped(list(rounds[0]), caps))
    assert named(found) == [("undecided", tuple(sorted({"5", *partner})))]
    found = name_suspects(capped([*rounds[0], *rounds[1]], caps))
    assert named(found) == [("node", ("5",))]


def test_w6_two_nodes_are_undecided_and_only_a_floor_says_that_the_pair_is_bad() -> None:
    without = name_suspects({("a", "b"): 200.0})
    assert not without.enough
    assert without.suspects == ()
    found = name_suspects({("a", "b"): 200.0}, floor=345.0)
    assert found.suspects == (Suspect("undecided", ("a", "b"), 200 / 345),)
    good = name_suspects({("a", "b"): 380.0}, floor=345.0)
    assert good.enough
    assert good.suspects == ()


def test_w7_all_below_the_floor_is_the_fabric() -> None:
    pairs = capped(every("abcdef"), dict.fromkeys("abcdef", 200.0))
    assert named(name_suspects(pairs, floor=345.0)) == [("fabric", tuple("abcdef"))]
    assert named(name_suspects(pairs)) == []


def test_any_two_bad_of_sixty_four_are_exact_in_three_rounds() -> None:
    nodes = [f"n{i:02}" for i in range(64)]
    places = {node: {"leaf": f"l{i // 8}", "pod": f"p{i // 32}"} for i, node in enumerate(nodes)}
    pairs = list(itertools.chain(*near_to_far(nodes, places)))
    assert len(pairs) == 96
    wrong = []
    for bad in itertools.combinations(nodes, 2):
        caps = dict.fromkeys(nodes, 380.0) | dict.fromkeys(bad, 250.0)
        found = named(name_suspects(capped(pairs, caps), places))
        if found != [("node", (node,)) for node in bad]:
            wrong.append((bad, found))
    assert wrong == []


def test_one_bad_of_any_odd_number_is_exact_also_where_a_test_crashed() -> None:
    for count in (5, 7, 9, 33):
        nodes = [f"n{i:02}" for i in range(count)]
        pairs = list(itertools.chain(*near_to_far(nodes, {})))
        for bad in nodes:
            measured = {(a, b): 0.0 if bad in (a, b) else 380.0 for a, b in pairs}
            assert named(name_suspects(measured)) == [("node", (bad,))]


def test_noise_of_healthy_pairs_names_nobody() -> None:
    rng = random.Random(7)
    nodes = [f"n{i:02}" for i in range(64)]
    places = {node: {"leaf": f"l{i // 8}"} for i, node in enumerate(nodes)}
    pairs = list(itertools.chain(*near_to_far(nodes, places)))
    for _ in range(200):
        measured = {pair: rng.gauss(380, 10) for pair in pairs}
        assert name_suspects(measured, places, floor=300.0).suspects == ()


def test_a_node_that_only_sends_badly_is_named_with_its_direction() -> None:
    measured = {(a, b): 190.0 if a == "c" else 380.0 for a, b in itertools.permutations("abcde", 2)}
    assert name_suspects(measured).suspects == (Suspect("node", ("c",), 0.5, "sending"),)
    turned = {(b, a): value for (a, b), value in measured.items()}
    assert name_suspects(turned).suspects == (Suspect("node", ("c",), 0.5, "receiving"),)


def test_a_pair_measured_once_says_nothing_about_directions() -> None:
    # By order of name "a" is the sender in all of its pairs.
    measured = capped(every("abcdef"), dict.fromkeys("abcdef", 380.0)) | {("a", "c"): 100.0}
    assert named(name_suspects(measured)) == [("link", ("a", "c"))]


def test_an_uplink_of_three_leaves_is_that_leaf_and_a_path_between_two_is_both() -> None:
    nodes = [f"n{i:02}" for i in range(12)]
    places = {node: {"leaf": f"l{i // 4}"} for i, node in enumerate(nodes)}
    leaf = {node: place["leaf"] for node, place in places.items()}
    pairs = list(itertools.combinations(nodes, 2))
    uplink = {
        (a, b): 200.0 if leaf[a] != leaf[b] and "l1" in (leaf[a], leaf[b]) else 380.0
        for a, b in pairs
    }
    assert named(name_suspects(uplink, places)) == [("uplink", ("leaf l1",))]
    two = {(a, b): 200.0 if {leaf[a], leaf[b]} == {"l0", "l2"} else 380.0 for a, b in pairs}
    assert named(name_suspects(two, places)) == [("uplink", ("leaf l0", "leaf l2"))]
    spine = {(a, b): 200.0 if leaf[a] != leaf[b] else 380.0 for a, b in pairs}
    assert named(name_suspects(spine, places)) == [("uplink", ("leaf l0", "leaf l1", "leaf l2"))]


def test_a_pods_uplink_is_not_its_leaves() -> None:
    nodes = [f"n{i:02}" for i in range(24)]
    places = {node: {"leaf": f"l{i // 4}", "pod": f"p{i // 8}"} for i, node in enumerate(nodes)}
    pod = {node: place["pod"] for node, place in places.items()}
    measured = {
        (a, b): 200.0 if pod[a] != pod[b] and "p2" in (pod[a], pod[b]) else 380.0
        for a, b in itertools.combinations(nodes, 2)
    }
    assert named(name_suspects(measured, places)) == [("uplink", ("pod p2",))]


def test_a_bad_node_beside_a_bad_uplink_are_told_apart() -> None:
    pairs, places = two_leaves()
    pairs = {pair: min(value, 100.0) if "a" in pair else value for pair, value in pairs.items()}
    assert named(name_suspects(pairs, places)) == [
        ("node", ("a",)),
        ("uplink", ("leaf l1", "leaf l2")),
    ]


def test_what_is_no_number_is_no_bandwidth() -> None:
    measured = capped(every("abcd"), dict.fromkeys("abcd", 380.0))
    measured |= {pair: float("nan") for pair in measured if "d" in pair}
    assert named(name_suspects(measured)) == [("node", ("d",))]
    assert named(name_suspects(dict.fromkeys(every("abc"), 0.0))) == [("fabric", ("a", "b", "c"))]
    assert not name_suspects({}).enough
