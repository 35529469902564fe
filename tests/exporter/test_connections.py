"""What the kernel says of TCP connections: answers of several kernels, whole, cut and garbled."""

from __future__ import annotations

import errno
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
import uuid

import pytest

from peerwatch_demo.cluster.namespaces import why_unavailable
from peerwatch_exporter.errors import SourceMissing
from peerwatch_exporter.sources.host import connections as module
from peerwatch_exporter.sources.host.connections import (
    Connection,
    TooManyConnectionsError,
    connections,
    parse_answer,
)
from peerwatch_exporter.sources.host.netlink import GarbledAnswerError

# Bytes of tcp_info in Linux 6.18.
NEWEST = 280
# Bytes of tcp_info in Linux 3.10, 4.4, 4.9, 4.19, 5.15, 6.1 and 6.7.
SIZES = {104: False, 144: False, 192: True, 224: True, 232: True, 240: True, 248: True}


def info(size, *, round_trip=48_200, least=210, acknowledged=7_000_000, sent=1500):
    """Return tcp_info as far as a kernel gives it; all else is 0xEE."""
    whole = bytearray(b"\xee" * max(size, 152))
    struct.pack_into("=I", whole, 44, sent)
    struct.pack_into("=I", whole, 68, round_trip)
    struct.pack_into("=Q", whole, 120, acknowledged)
    struct.pack_into("=I", whole, 148, least)
    return bytes(whole[:size])


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def message(kind, body):
    length = 16 + len(body)
    return struct.pack("=IHHII", length, kind, 2, 1, 4711) + body + b"\0" * (-length % 4)


def entry(data=None, *, family=socket.AF_INET, address="10.9.0.4", peer="10.9.0.7", cookie=77):
    """Return one connection as the kernel tells of it."""
    ends = [socket.inet_pton(family, each).ljust(16, b"\0") for each in (address, peer)]
    body = struct.pack("=BBBB", family, 1, 0, 0) + struct.pack(">HH", 40000, 29500)
    body += ends[0] + ends[1] + struct.pack("=IQ", 3, cookie) + struct.pack("=5I", 0, 0, 9, 0, 5)
    # How it was shut down, its congestion control, and what the kernel measured.
    data = info(NEWEST) if data is None else data
    return message(20, body + attribute(8, b"\0") + attribute(4, b"cubic\0") + attribute(2, data))


def error(number):
    return message(2, struct.pack("=i", -number) + b"\0" * 16)


END = message(3, struct.pack("=i", 0))


def understood(*answers):
    found, ended = [], False
    for answer in answers:
        ended = parse_answer(answer, found)
    return found, ended


def test_a_connection_with_what_the_kernel_measured():
    assert understood(entry() + entry(cookie=78), END) == (
        [
            Connection(77, "10.9.0.4", "10.9.0.7", 1.5, 7_000_000, 0.0482, 0.00021),
            Connection(78, "10.9.0.4", "10.9.0.7", 1.5, 7_000_000, 0.0482, 0.00021),
        ],
        True,
    )


@pytest.mark.parametrize(("size", "has_least"), SIZES.items())
def test_of_older_kernels_what_they_give_is_read(size, has_least):
    found, _ = understood(entry(info(size)))

    if size < 128:
        assert found == []
    else:
        expected = Connection(77, "10.9.0.4", "10.9.0.7", 1.5, 7_000_000, 0.0482, None)
        assert found == [expected._replace(least_round_trip_seconds=0.00021 if has_least else None)]


def test_ipv4_over_a_socket_of_ipv6_has_its_ipv4_address():
    mapped = entry(family=socket.AF_INET6, address="::ffff:10.9.0.4", peer="::ffff:10.9.0.7")
    plain = entry(family=socket.AF_INET6, address="fd00::4", peer="fd00::7")

    found, _ = understood(mapped + plain)

    assert [(each.address, each.peer) for each in found] == [
        ("10.9.0.4", "10.9.0.7"),
        ("fd00::4", "fd00::7"),
    ]


def test_what_a_node_tells_itself_and_what_is_not_measured_yet_are_left_out():
    own = entry(peer="10.9.0.4")
    new = entry(info(NEWEST, least=0xFFFFFFFF))
    without = entry(b"")

    assert understood(own + new + without) == ([], False)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOMEM])
def test_an_error_has_its_number(number):
    with pytest.raises(OSError, match=os.strerror(number)):
        understood(entry(), error(number))


def test_a_list_that_broke_off_is_an_error():
    with pytest.raises(OSError, match=os.strerror(errno.EMSGSIZE)):
        understood(message(3, struct.pack("=i", -errno.EMSGSIZE)))


def test_an_answer_that_ends_early_is_refused():
    whole = entry()
    for length in range(1, len(whole)):
        with pytest.raises(GarbledAnswerError):
            understood(whole[:length])


@pytest.mark.parametrize("seed", range(20))
def test_a_garbled_answer_is_refused_or_gives_connections(seed):
    chance = random.Random(seed)
    for _ in range(50):
        answer = bytearray(entry() + entry(cookie=78) + END)
        for _ in range(chance.choice((1, 4, 64))):
            answer[chance.randrange(len(answer))] = chance.randrange(256)
        found = []
        try:
            parse_answer(bytes(answer), found)
        except (GarbledAnswerError, OSError):
            continue
        assert len(found) <= 2


class FakeKernel:
    """Answers a request with datagrams, by the family that is asked for."""

    def __init__(self, answers):
        self._answers = answers
        self._left = []

    def __call__(self, *_):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def settimeout(self, _):
        pass

    def bind(self, _):
        pass

    def sendto(self, request, _):
        self._left = list(self._answers[request[16]])

    def recvfrom(self, _):
        if not self._left:
            raise TimeoutError("timed out")
        answer = self._left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, tuple) else (answer, (0, 0))


@pytest.fixture
def kernel(monkeypatch):
    def answers(version_4, version_6=(END,)):
        fake = FakeKernel({socket.AF_INET: version_4, socket.AF_INET6: version_6})
        monkeypatch.setattr(module.socket, "socket", fake)

    return answers


def test_both_families_are_asked_and_strangers_not_heard(kernel):
    stranger = (entry(cookie=666), (4712, 0))
    six = entry(family=socket.AF_INET6, address="fd00::4", peer="fd00::7", cookie=78)
    kernel([entry(), stranger, END], [six, END])

    assert [each.cookie for each in connections(10)] == [77, 78]


def test_no_more_connections_are_read_than_asked_for(kernel):
    kernel([b"".join(entry(cookie=n) for n in range(50)) for _ in range(1000)])

    with pytest.raises(TooManyConnectionsError) as raised:
        connections(60)

    assert len(raised.value.found) == 60


@pytest.mark.parametrize(
    "number", [errno.EPERM, errno.EACCES, errno.ENOENT, errno.EPROTONOSUPPORT, errno.EINVAL]
)
def test_a_kernel_that_has_no_list_or_keeps_it_is_no_failure(kernel, number):
    kernel([error(number)])

    with pytest.raises(SourceMissing, match="does not list TCP connections"):
        connections(10)


def test_seccomp_that_forbids_the_socket_is_no_failure(monkeypatch):
    def forbidden(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(module.socket, "socket", forbidden)

    with pytest.raises(SourceMissing):
        connections(10)


def test_a_kernel_without_ipv6_has_the_others(kernel):
    kernel([entry(), END], [error(errno.ENOENT)])

    assert [each.cookie for each in connections(10)] == [77]


def test_a_kernel_that_does_not_answer_is_an_error(kernel):
    kernel([entry()])

    with pytest.raises(TimeoutError):
        connections(10)


def test_the_running_kernel_leaves_out_what_a_node_tells_itself():
    """Its filter is understood, or it would refuse the request."""
    pairs = []
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        if family == socket.AF_INET6 and not socket.has_ipv6:
            continue
        try:
            server = socket.create_server((address, 0), family=family)
        except OSError:
            continue
        pairs += [server, socket.create_connection(server.getsockname()[:2])]
    try:
        found = connections(4096)
    except SourceMissing as refused:
        pytest.skip(str(refused))
    finally:
        for each in pairs:
            each.close()

    assert not [each for each in found if each.peer in ("127.0.0.1", "::1")]


_READER = """
import socket
with socket.create_connection(("10.178.254.1", {port})) as connection:
    while connection.recv(65536):
        pass
"""


@pytest.mark.skipif(shutil.which("ip") is None, reason="ip (iproute2) is not on PATH")
def test_the_running_kernel_measures_a_connection_to_another_host():
    if (why := why_unavailable()) is not None:
        pytest.skip(why)
    name = f"pw{uuid.uuid4().hex[:8]}"

    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    ip("netns", "add", name)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", "10.178.254.1/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "address", "add", "10.178.254.2/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        with socket.create_server(("10.178.254.1", 0)) as server:
            program = _READER.format(port=server.getsockname()[1])
            reader = subprocess.Popen(["ip", "netns", "exec", name, sys.executable, "-c", program])
            server.settimeout(120)
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"x" * 1_000_000)
                found = arrived("10.178.254.2", 1_000_000)
            reader.wait(120)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)

    assert found.address == "10.178.254.1"
    assert 0 < found.least_round_trip_seconds <= found.round_trip_seconds < 60
    assert found.sent_seconds < 120


def arrived(peer, size):
    """Return the connection to a peer once so much has arrived there."""
    for _ in range(1200):
        for each in connections(4096):
            if each.peer == peer and each.acknowledged_bytes >= size:
                return each
        time.sleep(0.1)
    raise AssertionError("It has not arrived in two minutes.")
