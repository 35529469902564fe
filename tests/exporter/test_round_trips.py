"""Round trips to other nodes: of connections that carry a lot, bounded, and cheap to read."""

from __future__ import annotations

import pytest

from hardware_cases import FakeClock
from peerwatch_exporter.collectors.round_trips import RoundTripsCollector
from peerwatch_exporter.errors import NoData, PartialData, SourceMissing
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.connections import Connection, TooManyConnectionsError
from peerwatch_exporter.sources.host.queries import HostQueries
from peerwatch_exporter.sources.host.round_trips import RoundTrips
from peerwatch_exporter.sources.jobs.known_ranks import KnownRank

OWN = "10.9.0.4"
MIB = 1 << 20


def connection(cookie, peer, carried, seconds=0.04, least=0.0002, sent=0.1):
    return Connection(cookie, OWN, peer, sent, carried, seconds, least)


def test_a_peer_s_round_trip_is_the_mean_by_what_connections_carried():
    trips = RoundTrips()
    trips.update([connection(1, "n5", 10 * MIB), connection(2, "n5", 10 * MIB)], 5.0)
    later = [connection(1, "n5", 13 * MIB, 0.04), connection(2, "n5", 11 * MIB, 0.02, 0.0001)]

    (trip,) = trips.update(later, 5.0)

    assert trip.peer == "n5"
    assert trip.seconds == pytest.approx(0.035)
    assert trip.least_seconds == 0.0001
    assert trip.carried_bytes == 24 * MIB


def test_what_carries_little_says_nothing():
    """Acknowledgements of single messages wait 40 ms for company, on the fastest network."""
    trips = RoundTrips()
    trips.update([connection(1, "n5", 900 * MIB)], 5.0)

    assert trips.update([connection(1, "n5", 900 * MIB + 65_535)], 5.0) == []
    assert len(trips.update([connection(1, "n5", 900 * MIB + 131_071)], 5.0)) == 1


@pytest.mark.parametrize(("sent", "number"), [(4.9, 1), (5.1, 0)])
def test_of_a_new_connection_all_counts_if_it_sent_since(sent, number):
    assert len(RoundTrips().update([connection(1, "n5", 900 * MIB, sent=sent)], 5.0)) == number


def test_the_shortest_round_trip_is_kept_when_the_kernel_forgets_it():
    """The kernel's own is of five minutes: a link that stays slow is slow compared with before."""
    trips = RoundTrips()
    trips.update([connection(1, "n5", MIB, 0.0004, 0.0002)], 5.0)

    (trip,) = trips.update([connection(2, "n5", MIB, 0.0204, 0.0201)], 5.0)

    assert (trip.seconds, trip.least_seconds) == (0.0204, 0.0002)


def test_what_a_peer_got_goes_on_when_its_connections_begin_anew():
    trips = RoundTrips()
    trips.update([connection(1, "n5", 5 * MIB)], 5.0)

    (trip,) = trips.update([connection(2, "n5", MIB)], 5.0)

    assert trip.carried_bytes == 6 * MIB


def test_of_an_old_kernel_the_shortest_is_not_known():
    (trip,) = RoundTrips().update([connection(1, "n5", MIB, least=None)], 5.0)

    assert trip.least_seconds is None


def test_of_a_flood_of_peers_the_worst_and_the_busiest_stay():
    flood = [connection(n, f"n{n:04}", MIB + n, 0.0001 * (1 + n % 7)) for n in range(4000)]
    worst, busiest = connection(5000, "worst", MIB, 0.3), connection(5001, "busiest", 99 * MIB)
    trips = RoundTrips()
    for _ in range(3):
        found = [trip.peer for trip in trips.update([*flood, worst, busiest], 5.0)]
        trips = RoundTrips()

    assert len(found) <= 16
    assert {"worst", "busiest"} <= set(found)


def test_what_is_remembered_stays_bounded():
    trips = RoundTrips()
    for n in range(5000):
        trips.update([connection(n, f"n{n}", MIB), connection(9999, "steady", n * MIB)], 5.0)

    assert len(trips._peers) <= 1024
    assert (OWN, "steady") in trips._peers
    assert len(trips._acknowledged) == 2


class Node:
    """A collector on a node whose connections and ranks a test sets."""

    def __init__(self, tmp_path, cost=0.0):
        self.clock, self.cpu, self.cost = FakeClock(1000.0), FakeClock(0), cost
        self.asked = 0
        self.connections = [connection(1, "n5", MIB)]
        self.sources = Sources(
            Paths(tmp_path, tmp_path, tmp_path),
            monotonic=self.clock,
            queries=HostQueries(connections=self.ask),
        )
        self.ranks(True)
        self.collector = RoundTripsCollector(
            ExporterConfig(), self.sources, cpu_clock=lambda: self.cpu.now
        )

    def ranks(self, *alive):
        self.sources.known_ranks.update([KnownRank("j", n, n, a) for n, a in enumerate(alive)])

    def ask(self, most):
        assert most == 4096
        self.asked += 1
        self.cpu.now += self.cost
        if isinstance(self.connections, Exception):
            raise self.connections
        return self.connections

    def published(self):
        found, error = {}, None
        try:
            for family in self.collector.collect():
                found |= {(family.name, labels[1]): value for labels, value in family.rows}
        except Exception as raised:
            error = raised
        return found, error


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_round_trips_are_published_with_both_addresses(node):
    assert node.published() == (
        {
            ("host_tcp_round_trip_seconds", "n5"): 0.04,
            ("host_tcp_least_round_trip_seconds", "n5"): 0.0002,
            ("host_tcp_acknowledged_bytes", "n5"): MIB,
        },
        None,
    )
    family, *_ = node.collector.collect()
    assert family.rows[0][0] == (OWN, "n5")


@pytest.mark.parametrize("alive", [(), (False,)], ids=["no rank", "a rank that ended"])
def test_a_node_without_ranks_is_not_read(node, alive):
    node.published()
    node.ranks(*alive)

    found, error = node.published()

    assert (found, type(error), node.asked) == ({}, NoData, 1)


def test_a_node_that_is_files_has_none(tmp_path):
    collector = RoundTripsCollector(ExporterConfig(), Sources(Paths(*[tmp_path] * 3)))

    with pytest.raises(NoData):
        list(collector.collect())


@pytest.mark.parametrize(("cost", "every"), [(0.001, 5), (0.02, 20)], ids=["cheap", "dear"])
def test_connections_are_listed_every_5_s_or_as_often_as_it_is_cheap(tmp_path, cost, every):
    node = Node(tmp_path, cost)
    node.published()
    for passed in range(1, every):
        node.clock.now += 1
        assert node.published()[0], f"{passed} s later what was read still stands"
    assert node.asked == 1
    node.clock.now += 1
    node.published()

    assert node.asked == 2


def test_what_is_refused_is_said_all_the_time_and_asked_rarely(node):
    node.published()
    node.clock.now += 5
    node.connections = SourceMissing("not allowed")
    for _ in range(5):
        found, error = node.published()
        assert (found, type(error)) == ({}, SourceMissing)
        node.clock.now += 1
    assert node.asked == 2
    node.connections = [connection(1, "n5", 9 * MIB)]

    assert node.published()[1] is None


def test_more_connections_than_are_read_are_said(node):
    node.connections = TooManyConnectionsError([connection(1, "n5", MIB)])

    found, error = node.published()

    assert len(found) == 3
    assert isinstance(error, PartialData)
    assert error.__cause__.error_class == "too_many_connections"
