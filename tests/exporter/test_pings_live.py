"""Real meshes ping each other on addresses of the loopback interface."""

from __future__ import annotations

import contextlib

import pytest
from pydantic import ValidationError

from fake_collectors import wait_until
from peerwatch_exporter.collectors.pings import SPECS, PingsCollector
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.settings.pings import PingsConfig
from peerwatch_exporter.sources import real_sources
from peerwatch_exporter.sources.pings.peer_list import PeerList, PeersError, hosts_of_file
from peerwatch_exporter.sources.pings.rdma.asking import Asker
from peerwatch_exporter.sources.pings.secret import SecretError, read_secrets
from ping_cases import SECRET, KnownPeers, by_size, config_of, free_port, running

FIRST, SECOND = "127.0.0.21", "127.0.0.22"
ALL_SIZES = {"tcp small", "udp small", "udp large", "udp full"}


def test_two_nodes_ping_each_other_in_all_sizes(tmp_path):
    port = free_port()
    first = config_of(tmp_path, port, addresses=[FIRST])
    second = config_of(tmp_path, port, addresses=[SECOND])
    with (
        running(first, KnownPeers([SECOND])) as mesh,
        running(second, KnownPeers([FIRST])) as other,
    ):
        wait_until(lambda: ALL_SIZES <= by_size(mesh.totals.read(), lambda each: each.sent).keys())
        wait_until(other.totals.read)

        counts = mesh.totals.read()

    assert {SECOND} == {target.peer for target in counts}
    assert all(0 < each.shortest <= each.p99 for each in counts.values())
    assert (SECOND,) == other.responder.addresses
    assert 1 == mesh.answering


def test_a_node_with_another_secret_is_not_answered_and_not_counted(tmp_path):
    port = free_port()
    first = config_of(tmp_path, port, addresses=[FIRST], tcp=False)
    second = config_of(tmp_path, port, addresses=[SECOND], tcp=False)
    with (
        running(first, KnownPeers([SECOND])) as mesh,
        running(second, KnownPeers([FIRST], [b"quite another secret"])) as other,
    ):
        wait_until(lambda: other.responder.refused["signature"] > 3)

        assert {} == mesh.totals.read()
        assert (0, 0) == (other.responder.answered, mesh.answering)
        other.peers.secrets = (b"quite another secret", KnownPeers([]).secrets[0])
        wait_until(mesh.totals.read)
        assert 1 == mesh.answering


def test_an_exporter_that_ends_is_no_loss_of_the_network(tmp_path):
    port = free_port()
    first = config_of(tmp_path, port, addresses=[FIRST])
    second = config_of(tmp_path, port, addresses=[SECOND])

    def numbers():
        return [each.sequence for each in mesh._pings[SECOND][0]._sizes.values()]

    with running(first, KnownPeers([SECOND])) as mesh:
        with running(second, KnownPeers([FIRST])):
            wait_until(
                lambda: ALL_SIZES <= by_size(mesh.totals.read(), lambda each: each.sent).keys()
            )
        ended = numbers()
        wait_until(lambda: all(now > then + 3 for now, then in zip(numbers(), ended, strict=True)))
        before = mesh.totals.read()
        with running(second, KnownPeers([FIRST])):
            wait_until(
                lambda: all(
                    each.sent > before[target].sent + 3
                    for target, each in mesh.totals.read().items()
                )
            )
        lost = by_size(mesh.totals.read(), lambda each: sum(each.lost.values()))

    assert dict.fromkeys(ALL_SIZES, 0) == lost


def test_a_port_that_is_taken_is_said_and_does_not_keep_it_from_pinging(tmp_path):
    port = free_port()
    config = config_of(tmp_path, port, addresses=[FIRST])
    with running(config, KnownPeers([])) as mesh:
        wait_until(lambda: mesh._datagrams)
        with running(config, KnownPeers([FIRST])) as late:
            wait_until(lambda: late.problem is not None and late.totals.read())

            assert f"{FIRST} port {port}" in str(late.problem)
            assert "port_unavailable" == late.problem.error_class


def test_a_collector_publishes_all_of_its_metrics(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    port = free_port()
    over_rdma = {"rdma": True, "rdma_pings_per_second": 10}
    config = config_of(tmp_path, port, addresses=[FIRST], peers=[FIRST, SECOND], **over_rdma)
    collector = PingsCollector(ExporterConfig(pings=config), real_sources(ExporterConfig()))
    collector._mesh.peers = KnownPeers([SECOND])
    second = config_of(tmp_path, port, addresses=[SECOND])
    with (
        running(second, KnownPeers([FIRST])) as other,
        contextlib.closing(Asker(FIRST, second, lambda: (SECRET,))) as asker,
    ):
        try:
            wait_until(lambda: other._datagrams)
            list(collector.collect())
            # Over RDMA the second node serves nothing, and the first one has no rping.
            wait_until(lambda: asker.ask() == "not_serving")
            wait_until(
                lambda: {spec.name for spec in SPECS} == {f.spec.name for f in collector.collect()}
            )
            families = {each.spec.name: dict(each.rows) for each in collector.collect()}
        finally:
            collector.close()

    assert {(FIRST,): 1} == families["ping_address_info"]
    assert {("known",): 1, ("chosen",): 1, ("answering",): 1} == families["ping_peers"]
    directions = {labels[3] for labels in families["ping_lost_total"]}
    assert {"to_peer", "from_peer", "unknown"} == directions
    assert {(SECOND, "not_serving")} == families["ping_rdma_failures_total"].keys()
    states = families["ping_rdma_state"]
    assert {("server", "tool_missing")} == {labels for labels, value in states.items() if value}
    assert families["ping_rdma_sessions_total"]["failed",] >= 1


def test_pings_are_off_by_default():
    collector = PingsCollector(ExporterConfig(), real_sources(ExporterConfig()))

    with pytest.raises(NoData):
        next(collector.collect())
    collector.close()


def test_a_missing_secret_is_said_and_nothing_is_sent(tmp_path):
    config = config_of(tmp_path, free_port(), addresses=[FIRST], secret_file=tmp_path / "none")
    collector = PingsCollector(ExporterConfig(pings=config), real_sources(ExporterConfig()))
    caught = []

    def collected():
        try:
            list(collector.collect())
        except PartialData as error:
            caught.append(error)
        return caught

    try:
        wait_until(collected)
    finally:
        collector.close()
    assert "no_secret" == caught[0].error_class
    assert str(tmp_path / "none") in str(caught[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 lines"),
        (b"short\n", "a secret of 5 characters"),
        (b"0123456789abcdef\n" * 5, "has 5 lines"),
        (b"0123456789abcdef" * 300, "in 4097 bytes"),
    ],
    ids=["empty", "short", "many", "long"],
)
def test_a_secret_that_is_none_is_refused(tmp_path, content, message):
    path = tmp_path / "secret"
    path.write_bytes(content)

    with pytest.raises(SecretError, match=message):
        read_secrets(path)


def test_a_file_of_targets_is_read_without_its_ports(tmp_path):
    path = tmp_path / "nodes.yaml"
    path.write_text(
        "- targets: ['node-1:9400', '10.0.0.7', '[fd00::7]:9400', 'fd00::8']\n"
        "  labels: {rack: r1}\n- targets: [node-2]\n"
    )

    assert ["node-1", "10.0.0.7", "fd00::7", "fd00::8", "node-2"] == hosts_of_file(path)


@pytest.mark.parametrize("text", ["{targets: [a]}", "[a, b]", "- targets: [3]", "[", "- {x: 1}"])
def test_a_file_that_is_something_else_is_refused(tmp_path, text):
    path = tmp_path / "nodes.yaml"
    path.write_text(text)

    with pytest.raises(PeersError, match=r"nodes\.yaml"):
        hosts_of_file(path)


def test_peers_come_from_list_file_and_name_and_stay_if_nothing_is_found(tmp_path):
    path = tmp_path / "nodes.json"
    path.write_text('[{"targets": ["10.1.0.3:9400", "node-4"]}]')
    config = config_of(
        tmp_path, 9403, peers=["10.1.0.2"], peers_file=path, peers_name="all", max_peers=16
    )
    names = {"all": ["10.1.0.2", "10.1.0.5", "127.0.0.1"], "node-4": ["10.1.0.4", "fd00::4"]}
    peers = PeerList(config, resolve=lambda name: names[name])

    peers.update()

    found = ("10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5")
    assert (found, 4) == (peers.partners, peers.known)
    path.unlink()
    with pytest.raises(PeersError, match="cannot be read"):
        peers.update()
    assert found == peers.partners


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"secret_file": None}, "needs secret_file"),
        ({"peers": []}, "needs peers, peers_file or peers_name"),
        ({"peers": ["node-1:9403"]}, "leave the port out"),
        ({"peers": ["node 1"]}, "neither an address nor a host name"),
        ({"addresses": ["eth0"]}, "is no address"),
        ({"pings_per_second": 1000}, "less than or equal to 200"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path, changes, message):
    with pytest.raises(ValidationError, match=message):
        config_of(tmp_path, 9403, **changes)
    assert not PingsConfig().enabled
