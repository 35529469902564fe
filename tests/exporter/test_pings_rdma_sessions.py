"""Servers of rping: only who knows the secret gets one, for one client, within limits.

No RDMA hardware takes part: ``rping`` is a program that says what the real one says, over TCP.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from fake_collectors import wait_until
from hardware_cases import FakeClock
from peerwatch_exporter.collectors.pings import PingsCollector
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import real_sources
from peerwatch_exporter.sources.pings.datagrams import Datagram
from peerwatch_exporter.sources.pings.packets import Kind, Packet, Status, decode, encode
from peerwatch_exporter.sources.pings.rdma.asking import Asker
from peerwatch_exporter.sources.pings.rdma.mesh import RdmaPings
from peerwatch_exporter.sources.pings.rdma.process import Run
from peerwatch_exporter.sources.pings.rdma.servers import MOST_AT_ONCE, RpingServers
from peerwatch_exporter.sources.pings.responder import Responder
from ping_cases import SECRET, KnownPeers, config_of, free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND = "127.0.0.32"
CLIENT, OWN = "10.0.0.1", "10.0.0.2"
LISTENS = b"rdma_listen"
TAKEN = b"cma_event type RDMA_CM_EVENT_CONNECT_REQUEST cma_id 0x7f58 (child)"


class FakeRping:
    """Servers that do what the test says, each in the thread that runs it."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.lines: list[bytes] = [LISTENS]
        self.error: OSError | None = None
        self.output = b""
        self.timed_out = False
        self.hold = threading.Event()
        self.take = threading.Event()

    def __call__(self, command, _timeout, hear, is_ended) -> Run:
        self.commands.append(command)
        if self.error is not None:
            raise self.error
        for line in self.lines:
            hear(line)
        while not (self.hold.wait(0.01) or is_ended()):
            if self.take.is_set():
                hear(TAKEN)
        return Run(self.output, [], self.timed_out)


@pytest.fixture
def rping() -> Iterator[FakeRping]:
    made = FakeRping()
    yield made
    made.hold.set()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def servers(tmp_path, rping, clock) -> Iterator[RpingServers]:
    config = config_of(tmp_path, 9403, rdma=True, rdma_ports=6, rdma_pings_per_second=0.5)
    made = RpingServers(config, rping, clock)
    yield made
    made.close()


class Told:
    """Keeps what was answered."""

    def __init__(self) -> None:
        self.answers: list[tuple[Status, int]] = []

    def __call__(self, status: Status, port: int) -> None:
        self.answers.append((status, port))


def ask(servers: RpingServers, client: str = CLIENT, own: str = OWN) -> Told:
    told = Told()
    servers.open(client, own, told)
    return told


def test_a_server_listens_before_its_port_is_told_and_on_the_address_that_was_asked(servers, rping):
    rping.lines = []
    told = ask(servers)
    wait_until(lambda: rping.commands)
    assert not told.answers
    rping.hold.set()
    wait_until(lambda: told.answers)
    assert told.answers == [(Status.NOT_SERVING, 0)]
    assert servers.results["failed"] == 1

    rping.lines = [LISTENS]
    rping.hold.clear()
    told = ask(servers)
    wait_until(lambda: told.answers)
    ((status, port),) = told.answers
    assert status is Status.OPEN
    assert port in range(9404, 9410)
    command = rping.commands[-1]
    assert (command[command.index("-p") + 1], command[-1]) == (str(port), OWN)
    assert "-P" not in command


def test_who_asks_again_is_told_of_the_same_server_until_it_is_used(servers, rping):
    first = ask(servers)
    wait_until(lambda: first.answers)
    again = [ask(servers) for _ in range(10)]
    assert {port for told in again for _, port in told.answers} == {first.answers[0][1]}
    assert len(rping.commands) == 1
    # Others are not told of it.
    other = ask(servers, "10.0.0.9")
    wait_until(lambda: other.answers)
    assert other.answers != first.answers

    def all_are_taken():
        return all(each.is_taken for each in [*servers._by_port.values()])

    rping.take.set()
    wait_until(all_are_taken)
    second = ask(servers)
    wait_until(lambda: second.answers)
    assert second.answers != first.answers
    wait_until(all_are_taken)
    rping.hold.set()
    wait_until(lambda: servers.results["served"] == 3)
    assert servers.state == "ready"


def test_one_peer_may_not_ask_more_often_than_nodes_ping(servers, rping, clock):
    rping.hold.set()

    def opened(number: int) -> int:
        before = len(rping.commands)
        for _ in range(number):
            told = ask(servers)
            wait_until(lambda told=told: told.answers and not servers._by_port)
        return len(rping.commands) - before

    assert opened(MOST_AT_ONCE + 3) == MOST_AT_ONCE
    assert servers.results["too_often"] == 3
    # Another peer is not held up by it.
    assert ask(servers, "10.0.0.9").answers != [(Status.BUSY, 0)]
    clock.now += 2.0
    assert opened(2) == 1
    clock.now += 3600.0
    assert opened(MOST_AT_ONCE + 3) == MOST_AT_ONCE


def test_all_peers_together_get_as_many_servers_as_there_are_ports(servers, rping):
    told = [ask(servers, f"10.0.1.{number}") for number in range(9)]
    wait_until(lambda: all(each.answers for each in told))
    ports = [port for each in told for status, port in each.answers if status is Status.OPEN]
    assert sorted(ports) == list(range(9404, 9410))
    assert servers.results["busy"] == 3
    rping.hold.set()
    wait_until(lambda: servers.results["unused"] == 6)
    assert not servers._by_port


@pytest.mark.parametrize(
    ("error", "output", "state"),
    [
        (FileNotFoundError("rping"), b"", "tool_missing"),
        (PermissionError("rping"), b"", "no_access"),
        (None, b"No RDMA devices were detected\n", "no_device"),
        (None, b"rdma_bind_addr: Cannot assign requested address\n", "no_address"),
        (None, b"anything else\n", "failed"),
    ],
)
def test_a_node_that_cannot_serve_says_so(servers, rping, error, output, state):
    rping.error, rping.output, rping.lines = error, output, []
    rping.hold.set()
    told = ask(servers)
    wait_until(lambda: told.answers)
    assert told.answers == [(Status.NOT_SERVING, 0)]
    assert (servers.state, servers.results["failed"]) == (state, 1)


def test_what_ended_a_session_is_counted(servers, rping):
    rping.timed_out, rping.lines = True, [LISTENS, TAKEN]
    rping.hold.set()
    ask(servers)
    wait_until(lambda: servers.results["ended"] == 1)
    rping.lines = [LISTENS]
    ask(servers)
    wait_until(lambda: servers.results["unused"] == 1)
    # A client came, and there was no memory for it.
    rping.timed_out, rping.lines, rping.output = False, [LISTENS, TAKEN], b"reg_mr failed\n"
    ask(servers)
    wait_until(lambda: servers.state == "no_locked_memory")
    assert ask(servers, own="").answers == [(Status.NOT_SERVING, 0)]
    assert servers.state == "no_address"


class Opened:
    """Keeps for whom a server was to be opened, and gives each one."""

    def __init__(self) -> None:
        self.clients: list[str] = []

    def open(self, client, own, reply) -> None:
        assert own == OWN
        self.clients.append(client)
        reply(Status.OPEN, 9404)


def request(token=bytes(8), sequence=1, source=(CLIENT, 5000), secret=SECRET, kind=Kind.OPEN):
    packet = Packet(kind, b"session0", sequence, token)
    return Datagram(encode(packet, secret), source, None, OWN)


def test_forged_and_recorded_requests_open_nothing_and_are_counted(clock):
    opened, sent = Opened(), []
    responder = Responder(lambda: (SECRET,), opened, monotonic=clock, clock=clock)

    def reply(datagram):
        made = responder.reply(datagram, sent.append)
        return None if made is None else decode(made, [SECRET])[0]

    # Without the secret: nothing at all.
    changed = bytearray(request().data)
    changed[4] = Kind.REQUEST
    for data in (bytes(64), request(secret=b"another secret").data, bytes(changed)):
        assert reply(Datagram(data, (CLIENT, 5000), None, OWN)) is None
    assert reply(request(kind=Kind.OPENED)) is None
    assert responder.refused["signature"] == 4
    # With it, but at an address that was not proved: a token alone, which goes to that address.
    token = reply(request())
    assert token.kind is Kind.TOKEN
    assert reply(request(token.token, source=("10.9.9.9", 5000))).kind is Kind.TOKEN
    assert (opened.clients, sent) == ([], [])

    good = request(token.token, 2)
    assert reply(good) is None
    answer, _ = decode(sent.pop(), [SECRET])
    assert (answer.kind, answer.status, answer.port) == (Kind.OPENED, Status.OPEN, 9404)
    # The very same packet again, at once and when its token is old.
    assert reply(good) is None
    assert responder.refused["repeated"] == 1
    clock.now += 180
    assert reply(good).kind is Kind.TOKEN
    assert (opened.clients, sent) == ([CLIENT], [])
    # Such packets are no pings.
    assert responder.answered == 0


def test_a_node_without_rdma_pings_gives_no_server(clock):
    sent = []
    responder = Responder(lambda: (SECRET,), monotonic=clock, clock=clock)
    token, _ = decode(responder.reply(request()), [SECRET])
    responder.reply(request(token.token, 2), sent.append)
    assert decode(sent[0], [SECRET])[0].status == Status.NOT_SERVING


RPING = """#!{python}
import socket, sys
values = dict(zip(sys.argv[1:], sys.argv[2:]))
address = (values["-a"], int(values["-p"]))
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if "-s" in sys.argv:
    listener = socket.create_server(address)
    print("rdma_listen", flush=True)
    opened, _ = listener.accept()
    print("cma_event type RDMA_CM_EVENT_CONNECT_REQUEST cma_id 0x1 (child)", flush=True)
    while data := opened.recv(100):
        opened.sendall(data)
else:
    try:
        opened = socket.create_connection(address)
    except ConnectionRefusedError:
        sys.exit("cma event RDMA_CM_EVENT_REJECTED, error 8")
    for number in range(4):
        opened.sendall(b"x")
        if not opened.recv(1):
            sys.exit("client DISCONNECT EVENT...")
        print(f"ping data: rdma-ping-{{number}}: ABC", flush=True)
"""


@pytest.fixture
def starts(tmp_path, monkeypatch):
    """Put an ``rping`` first in the path; return what was started."""
    log = tmp_path / "starts"
    log.touch()
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "rping"
    program.write_text(RPING.format(python=sys.executable + " -IS", log=str(log)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return lambda: [line.split() for line in log.read_text().splitlines()]


@contextlib.contextmanager
def serving(
    directory: Path, port: int, **changes: object
) -> Iterator[tuple[RpingServers, Responder]]:
    """Lend servers, and who answers for them on the second address."""
    values = {"addresses": [SECOND], "rdma": True, "rdma_port": free_port(), "rdma_ports": 1}
    config = config_of(directory, port, **values | changes)
    servers = RpingServers(config)
    with running(config, KnownPeers([], [SECRET]), servers) as mesh:
        # Who asks before has the answer that nobody listens.
        wait_until(lambda: mesh._datagrams)
        yield servers, mesh.responder
    servers.close()


@pytest.mark.usefixtures("many_open_files")
def test_a_ping_over_rdma_is_a_session_that_leaves_no_server(tmp_path, starts):
    port = free_port()
    config = config_of(tmp_path, port, rdma=True, rdma_timeout_seconds=30)
    with serving(tmp_path, port, rdma_timeout_seconds=30) as (servers, _):
        collector = PingsCollector(ExporterConfig(pings=config), real_sources(ExporterConfig()))
        pings = RdmaPings(config, lambda: (SECOND,), collector._mesh.totals, lambda: (SECRET,))
        pings.step(0.0)
        wait_until(lambda: not servers._by_port)
        results, state = servers.results, servers.state
        pings.close()
        collector.close()

    ((target, counts),) = collector._mesh.totals.read().items()
    assert (target.peer, target.protocol, counts.sent) == (SECOND, "rdma", 1)
    assert not pings.failures
    assert (results["served"], sum(results.values()), state) == (1, 1, "ready")
    server, client = starts()
    assert server[0] == "-s"
    assert server[server.index("-p") + 1] == client[client.index("-p") + 1]
    # Nobody listens any more.
    address = SECOND, int(server[server.index("-p") + 1])
    with socket.socket() as late:
        assert late.connect_ex(address) != 0


def test_who_does_not_know_the_secret_never_reaches_a_server(tmp_path, starts):
    port = free_port()
    stranger = config_of(tmp_path, port, timeout_seconds=1)
    with serving(tmp_path, port) as (servers, responder):
        with contextlib.closing(Asker(SECOND, stranger, lambda: (b"quite another secret",))) as it:

            def is_refused() -> bool:
                # On a busy machine the second that it waits may pass before anything is sent.
                assert it.ask() == "no_session"
                return responder.refused["signature"] > 0

            wait_until(is_refused)
        assert sum(servers.results.values()) == 0
    assert starts() == []


def test_a_peer_without_rping_and_one_that_is_not_there_say_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    port = free_port()
    config = config_of(tmp_path, port)
    with contextlib.closing(Asker(SECOND, config, lambda: (SECRET,))) as asker:
        assert asker.ask() == "no_session"
        with serving(tmp_path, port) as (servers, _):
            assert asker.ask() == "not_serving"
            assert servers.state == "tool_missing"


def test_ports_beyond_the_last_are_refused(tmp_path):
    with pytest.raises(ValidationError, match="go beyond port 65535"):
        config_of(tmp_path, 9403, rdma=True, rdma_port=65530)
