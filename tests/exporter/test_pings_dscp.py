"""Pings and their answers with a DSCP, as another socket on the loopback interface sees them."""

from __future__ import annotations

import socket

import pytest

from peerwatch_exporter.sources.pings.packets import SMALL_BYTES, Kind, Packet, encode
from peerwatch_exporter.sources.pings.protocols.tcp import TcpPings
from peerwatch_exporter.sources.pings.protocols.udp import UdpPings
from peerwatch_exporter.sources.pings.totals import PingTotals
from ping_cases import SECRET, KnownPeers, config_of, free_port, running

ADDRESSES = ("127.0.0.31", "::1")
PATIENCE_SECONDS = 60
every_address = pytest.mark.parametrize("address", ADDRESSES)
every_dscp = pytest.mark.parametrize(("dscp", "traffic_class"), [(26, 104), (0, 0)])


@pytest.fixture
def observer(address):
    """A UDP socket that is told the traffic class of what it gets."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as opened:
        try:
            opened.bind((address, 0))
        except OSError as error:
            pytest.skip(f"This machine has no {address}: {error}")
        opened.settimeout(PATIENCE_SECONDS)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        else:
            opened.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_RECVTOS", 13), 1)
        yield opened


def traffic_class_of_the_next(observer):
    _, ancillary, _, _ = observer.recvmsg(9216, 256)
    ((_, _, content),) = ancillary
    return int.from_bytes(content, "little")


@every_dscp
@every_address
def test_pings_by_udp_have_it(tmp_path, observer, address, dscp, traffic_class):
    config = config_of(tmp_path, observer.getsockname()[1], dscp=dscp)
    pings = UdpPings(address, config, lambda: [SECRET], PingTotals(), 10)
    try:
        pings.send("large")

        assert traffic_class == traffic_class_of_the_next(observer)
    finally:
        pings.close()


@every_dscp
@every_address
def test_answers_have_it(tmp_path, observer, address, dscp, traffic_class):
    port = free_port()
    config = config_of(tmp_path, port, addresses=[address], dscp=dscp, tcp=False)
    request = encode(Packet(Kind.REQUEST, bytes(8), 1, bytes(8)), SECRET, SMALL_BYTES)
    with running(config, KnownPeers([])) as mesh:
        observer.settimeout(1)
        for _ in range(PATIENCE_SECONDS):
            observer.sendto(request, (address, port))
            try:
                found = traffic_class_of_the_next(observer)
                break
            except (TimeoutError, ConnectionRefusedError):
                # Its thread has not opened the port yet.
                assert mesh.problem is None
        else:
            pytest.fail("It does not answer.")

    assert traffic_class == found


@every_address
def test_connections_begin_with_it(tmp_path, address):
    pings = TcpPings(address, config_of(tmp_path, free_port(), dscp=26), PingTotals())
    try:
        pings.send("small")
        (opened,) = pings.writable() or (None,)
        if opened is None:
            pytest.skip(f"This machine has no {address}.")
        level, name = (
            (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
            if ":" in address
            else (socket.IPPROTO_IP, socket.IP_TOS)
        )

        assert 104 == opened.getsockopt(level, name)
    finally:
        pings.close()
