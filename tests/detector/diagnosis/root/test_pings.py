"""What pings that are lost have in common: worked cases, sizes, directions, random layouts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest

from detector.diagnosis.root.failed_job import JOB, NODES, ev, timeouts
from peerwatch_detector.diagnosis.root.algorithm.algorithm import find_root
from peerwatch_detector.diagnosis.root.algorithm.episode import episode
from peerwatch_detector.diagnosis.root.algorithm.net_diag import Unreachable, net_diag
from peerwatch_detector.diagnosis.root.algorithm.ping_matrix import Cell, Fault, ping_faults
from peerwatch_detector.diagnosis.root.algorithm.ping_table import PairCount, PingTable, ping_table
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.live.gathering import evidence_of
from peerwatch_detector.diagnosis.root.live.pings import ping_table_of
from peerwatch_detector.diagnosis.root.live.root import root_of
from peerwatch_detector.diagnosis.root.taxonomy.cause import Step
from peerwatch_detector.diagnosis.root.taxonomy.rules import rule_book
from peerwatch_detector.frame import Series

SENT = 190
NOW = 1_800_000_000.0
# Losses there and back, as ratios, of a ping from one node to another.
Loss = Callable[[str, str], float]


def counts(
    loss: Loss, nodes: Sequence[str] = NODES, size: str = "small", **more: float
) -> list[PairCount]:
    """Return what all pairs count where ``loss`` is that of one way."""
    found = []
    for source, destination in itertools.permutations(nodes, 2):
        there = round(SENT * loss(source, destination))
        back = round((SENT - there) * (loss(destination, source) if size == "small" else 0))
        found.append(PairCount(source, destination, "udp", size, SENT, there, back, **more))
    return found


def touching(*bad: str, ratio: float = 0.2) -> Loss:
    return lambda a, b: ratio if a in bad or b in bad else 0.0


def clean(_source: str, _destination: str) -> float:
    return 0.0


def crossing(ratio: float = 0.2, level: str = "leaf") -> Loss:
    return lambda a, b: ratio if JOB.places[a][level] != JOB.places[b][level] else 0.0


def diagnosed(*every: Iterable[PairCount], job: JobPlaces = JOB) -> tuple[Unreachable, ...]:
    seen = episode((), rule_book(), float("inf"), "")
    return net_diag(seen, job, ping_table(itertools.chain(*every)))


def shown(*every: Iterable[PairCount], job: JobPlaces = JOB) -> list[tuple[str, str, str, str]]:
    return [(f.what, f.name, f.symptom, f.direction) for f in diagnosed(*every, job=job)]


WORKED = {
    "W1 one bad node of four": (NODES[:4], touching("n2"), [("node", "n2", "", "")]),
    "W2 one bad link": (
        NODES[:6],
        lambda a, b: 0.5 * ({a, b} == {"n0", "n2"}),
        [("path", "n0 - n2", "", "")],
    ),
    "W3 the uplink between two leaves": (NODES, crossing(), [("place", "leaf l0 - l1", "", "")]),
    "W4 two bad nodes of eight": (
        NODES,
        lambda a, b: max(0.2 * ("n1" in (a, b)), 0.4 * ("n6" in (a, b))),
        [("node", "n1", "", ""), ("node", "n6", "", "")],
    ),
    "W6 two nodes do not tell which": (NODES[:2], touching("n0"), [("path", "n0 - n1", "", "")]),
    "W7 all pairs": (NODES, lambda _a, _b: 0.3, [("all", "", "", "")]),
    "nothing is lost": (NODES, clean, []),
    "less than a healthy network loses": (NODES, touching("n2", ratio=0.004), []),
    "a dead node": (NODES, touching("n5", ratio=1.0), [("node", "n5", "", "")]),
    "a node that sends badly": (
        NODES,
        lambda a, _b: 0.1 * (a == "n3"),
        [("node", "n3", "", "send")],
    ),
    "a node that receives badly": (
        NODES,
        lambda _a, b: 0.1 * (b == "n3"),
        [("node", "n3", "", "receive")],
    ),
    "a link that loses in one direction": (
        NODES,
        lambda a, b: 0.1 * ((a, b) == ("n4", "n1")),
        [("path", "n4 to n1", "", "")],
    ),
    "a bad node and a bad link": (
        NODES,
        lambda a, b: 0.3 * ("n7" in (a, b) or {a, b} == {"n0", "n4"}),
        [("node", "n7", "", ""), ("path", "n0 - n4", "", "")],
    ),
    "a node with a bad link and a dead partner, of few nodes": (
        NODES[:5],
        lambda a, b: 1.0 if "n4" in (a, b) else 0.1 * ({a, b} == {"n0", "n3"}),
        [("node", "n4", "", ""), ("path", "n0 - n3", "", "")],
    ),
    "a rack of two of four racks": (
        NODES,
        lambda a, b: 0.5 * ((a in NODES[2:4]) != (b in NODES[2:4])),
        [("place", "rack r1", "", "")],
    ),
    "too many bad nodes for the others to be a majority": (
        NODES,
        touching("n0", "n1", "n2", "n3", "n4"),
        [("all", "", "", "")],
    ),
}


@pytest.mark.parametrize("case", WORKED)
def test_worked_cases_of_loss(case: str) -> None:
    nodes, loss, expected = WORKED[case]

    assert expected == shown(counts(loss, nodes))


def test_w5_one_partner_tells_nothing_and_two_tell_the_node() -> None:
    one_round = [("n0", "n1"), ("n2", "n5"), ("n3", "n4")]
    two_rounds = [*one_round, ("n5", "n1"), ("n0", "n2"), ("n4", "n0"), ("n3", "n2")]

    def table(pairs: Sequence[tuple[str, str]]) -> list[PairCount]:
        return [each for each in counts(touching("n5")) if (each.source, each.destination) in pairs]

    assert [("path", "n2 - n5", "", "")] == shown(table(one_round))
    assert [("node", "n5", "", "")] == shown(table(two_rounds))


def test_who_is_bad_only_with_bad_nodes_is_explained_by_them() -> None:
    """In a ring of eight, where nodes know two partners each: n3 stands between two bad nodes."""

    def ring(*bad: int) -> list[Cell]:
        pairs = [(n, (n + 1) % 8) for n in range(8)]
        return [
            Cell(f"n{a}", f"n{b}", 100, 30 if {a, b} & set(bad) else 0)
            for pair in pairs
            for a, b in (pair, pair[::-1])
        ]

    def found(*bad: int) -> list[str]:
        return [fault.name for fault in ping_faults(ring(*bad), {})]

    assert found(2, 4) == ["n2", "n4"]
    assert found(2, 3) == ["n2", "n3"]
    assert found(3) == ["n3"]


def test_without_labels_groups_that_do_not_reach_each_other_are_no_nodes() -> None:
    minority = {"n6", "n7"}
    nowhere = JobPlaces(NODES)

    def parted(a: str, b: str) -> float:
        return 1.0 if (a in minority) != (b in minority) else 0.0

    assert [("place", "n6, n7 from the others", "", "")] == shown(counts(parted), job=nowhere)
    assert [("place", "n0, n1, n2, n3 from the others", "", "")] == shown(
        counts(crossing(1.0)), job=nowhere
    )


def test_a_loss_of_large_packets_alone_says_so_and_on_which_side() -> None:
    lost = counts(lambda a, _b: 0.3 * (a == "n4"), size="large")

    assert [("node", "n4", "large", "send")] == shown(counts(clean), lost)
    assert "7 pairs lose large packets, and no small ones: node n4 (send side)" == str(
        diagnosed(counts(clean), lost)[0]
    )


def test_without_an_answer_to_large_ones_they_were_lost_on_the_way_there() -> None:
    large = [
        PairCount(a, b, "udp", "full", SENT, unknown=SENT if b == "n4" else 0)
        for a, b in itertools.permutations(NODES, 2)
    ]

    assert [("node", "n4", "full", "receive")] == shown(counts(clean), large)


def test_a_node_is_named_once_with_the_smallest_size_that_shows_it() -> None:
    both = counts(touching("n1")), counts(touching("n1", "n5"), size="large")

    assert [("node", "n1", "", ""), ("node", "n5", "large", "")] == shown(*both)


def slow(pairs: Callable[[str, str], bool], usual: float = 0.0001) -> list[PairCount]:
    return [
        PairCount(a, b, "udp", "small", SENT, seconds=0.005 if pairs(a, b) else usual)
        for a, b in itertools.permutations(NODES, 2)
    ]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (lambda a, b: "n2" in (a, b), [("node", "n2", "slow", "")]),
        (lambda a, b: {a, b} == {"n0", "n2"}, [("path", "n0 - n2", "slow", "")]),
        (
            lambda a, b: (a in NODES[2:4]) != (b in NODES[2:4]),
            [("place", "rack r1", "slow", "")],
        ),
        (lambda a, b: False, []),
        (lambda a, b: True, []),
    ],
    ids=["node", "link", "place", "none", "all"],
)
def test_worked_cases_of_latency(
    pairs: Callable[[str, str], bool], expected: list[tuple[str, str, str, str]]
) -> None:
    assert expected == shown(slow(pairs))


def test_a_few_microseconds_more_are_not_slow() -> None:
    assert [] == shown(slow(lambda a, b: False, usual=0.00002) + slow(lambda a, b: False)[:0])
    near = [
        PairCount(a, b, "udp", "small", SENT, seconds=0.0003 if "n1" in (a, b) else 0.00002)
        for a, b in itertools.permutations(NODES, 2)
    ]
    assert [] == shown(near)


def test_tcp_counts_where_there_is_no_udp() -> None:
    by_tcp = [
        PairCount(a, b, "tcp", "small", SENT, unknown=50 if "n2" in (a, b) else 0)
        for a, b in itertools.permutations(NODES, 2)
    ]

    assert [("node", "n2", "", "")] == shown(by_tcp)
    assert [] == shown(by_tcp, counts(clean))


def over_rdma(loss: Callable[[str, str], bool]) -> list[PairCount]:
    return [
        PairCount(a, b, "rdma", size, SENT, unknown=SENT if loss(a, b) else 0)
        for a, b in itertools.permutations(NODES, 2)
        for size in ("small", "large")
    ]


def test_a_node_that_loses_pings_over_rdma_alone_is_named_so() -> None:
    lost = over_rdma(lambda a, b: "n2" in (a, b))

    assert [("node", "n2", "rdma", "")] == shown(counts(clean), lost)
    assert [("node", "n2", "rdma", "")] == shown(lost)
    assert "7 pairs lose pings over RDMA, and no others: node n2" == str(
        diagnosed(counts(clean), lost)[0]
    )


def test_what_loses_packets_of_any_kind_is_not_said_again_of_rdma() -> None:
    lost = over_rdma(lambda a, b: "n2" in (a, b))

    assert [("node", "n2", "", "")] == shown(counts(touching("n2")), lost)
    assert [] == shown(counts(clean), over_rdma(lambda a, b: False))


def test_one_bad_node_of_any_layout_is_named_and_no_other() -> None:
    for seed in range(20_000, 21_000):
        rng, chance = random.Random(seed), np.random.default_rng(seed)
        nodes = [f"m{number}" for number in range(rng.randint(5, 40))]
        bad = rng.choice(nodes)
        ratio = rng.choice([0.06, 0.1, 0.3, 0.7, 1.0])
        sides = rng.choice(["both", "send", "receive"])
        distances = rng.sample(range(1, len(nodes)), min(len(nodes) - 1, rng.randint(4, 8)))
        cells = []
        for place, distance in itertools.product(range(len(nodes)), distances):
            source, destination = nodes[place], nodes[(place + distance) % len(nodes)]
            sent = rng.randint(120, 250)
            is_bad = (sides != "receive" and source == bad) or (
                sides != "send" and destination == bad
            )
            lost = int(chance.binomial(sent, ratio if is_bad else 0.0003))
            cells.append(Cell(source, destination, sent, lost))

        named = [fault.name for fault in ping_faults(cells, {}) if fault.what == "node"]

        assert [bad] == named, seed


def test_without_faults_nobody_is_named_in_any_layout() -> None:
    for seed in range(21_000, 21_200):
        chance = np.random.default_rng(seed)
        nodes = [f"m{number}" for number in range(chance.integers(2, 30))]
        cells = [
            Cell(a, b, 190, int(chance.binomial(190, 0.0003)))
            for a, b in itertools.permutations(nodes, 2)
        ]

        assert () == ping_faults(cells, {}), seed


def test_too_few_pings_say_nothing() -> None:
    few = [Cell(a, b, 19, 19) for a, b in itertools.permutations(NODES, 2)]

    assert () == ping_faults(few, {})
    assert () == ping_faults([], {})
    assert (Fault("path", "a to b", 1),) == ping_faults([Cell("a", "b", 20, 3)], {})


def net_diag_step(pings: PingTable, found: Iterable[object] = ()) -> Step:
    evidence = [ev(0, "step", "stalled"), *timeouts(50), *found]
    root = find_root(JOB, evidence, pings=pings)
    return next(step for step in root.path if step.name == "NetDiag")


def test_the_step_says_what_was_found_or_why_nothing_was() -> None:
    few = [PairCount("n0", "n1", "udp", "small", 7, unknown=7)]

    assert "no pair of nodes is known to lose packets" == net_diag_step(ping_table(())).result
    assert "not often enough" in net_diag_step(ping_table(few)).result
    assert "none loses packets" in net_diag_step(ping_table(counts(clean))).result
    lost = net_diag_step(ping_table(counts(touching("n2")))).result
    assert "7 pairs lose packets: node n2" == lost
    path = net_diag_step(ping_table(counts(lambda a, b: 0.5 * ({a, b} == {"n0", "n2"}))))
    assert "1 pair loses packets: path n0 - n2" == path.result
    every = net_diag_step(ping_table(counts(lambda a, b: 0.3))).result
    assert "28 pairs lose packets: most, so settings or the fabric as a whole" == every


def test_a_bad_node_of_another_job_is_said_and_not_blamed() -> None:
    elsewhere = ("n8", "n9", "n10")
    step = net_diag_step(ping_table(counts(touching("n9"), (*NODES, *elsewhere))))
    root = find_root(
        JOB,
        [ev(0, "step", "stalled"), *timeouts(50)],
        pings=ping_table(counts(touching("n9"), (*NODES, *elsewhere))),
    )

    assert "10 pairs lose packets: node n9" == step.result
    assert not any(cause.nodes for cause in root.causes)


def rows(*labels_and_values: tuple[dict[str, str], float]) -> list[Series]:
    return [Series(labels, np.array([NOW]), np.array([v])) for labels, v in labels_and_values]


def series_of(every: Sequence[PairCount]) -> dict[str, list[Series]]:
    """Return what the queries of pings answer."""
    address = {node: f"10.0.0.{number}" for number, node in enumerate(NODES)}
    sent, lost, seconds = [], [], []
    for each in every:
        labels = {
            "node": each.source,
            "peer": address[each.destination],
            "protocol": each.protocol,
            "size": each.size,
        }
        sent.append((labels, each.sent + 0.2))
        lost += [
            (labels | {"direction": name}, getattr(each, name))
            for name in ("to_peer", "from_peer", "unknown")
        ]
        seconds.append((labels, (each.sent - each.lost) * 0.0001))
    return {
        "ping_addresses": rows(*[({"node": n, "address": a}, 1.0) for n, a in address.items()]),
        "pings_sent": rows(*sent),
        "pings_lost": rows(*lost),
        "pings_seconds": rows(*seconds),
    }


def test_series_of_pings_name_the_node_of_a_job_that_stands() -> None:
    samples = series_of(counts(clean) + counts(lambda a, _b: 0.2 * (a == "n6"), size="large"))
    samples |= {
        "ranks": rows(*[({"node": node, "rank": str(i)}, 1.0) for i, node in enumerate(NODES)]),
        "step": rows(({}, NOW - 90)),
        "log": rows(
            *[
                (
                    {"node": node, "rank": str(i), "class": "D", "signature": "collective_timeout"},
                    NOW - 20,
                )
                for i, node in enumerate(NODES)
            ]
        ),
    }

    found = root_of(samples, NOW, "7")

    (cause,) = found.root.causes
    assert ("n6",) == cause.nodes
    lost = [each for each in found.evidence if each.kind == "reach"]
    assert {("n6", each) for each in NODES if each != "n6"} == {(e.node, e.peer_node) for e in lost}
    assert "38 of 190 large pings lost" == lost[0].text
    (step,) = [step for step in found.root.path if step.name == "NetDiag"]
    assert "7 pairs lose large packets, and no small ones: node n6 (send side)" == step.result


def test_peers_whose_address_no_node_has_are_left_out() -> None:
    samples = series_of(counts(touching("n2")))
    samples["ping_addresses"] = samples["ping_addresses"][:2]

    pairs = {(c.source, c.destination) for c in ping_table_of(samples).cells["large"]}
    small = {c.destination for c in ping_table_of(samples).cells["small"] if c.source == "n5"}

    assert (set(), {"n0", "n1"}) == (pairs, small)
    assert 0 == ping_table_of({}).pairs
    assert () == evidence_of({}, NOW, "7")
