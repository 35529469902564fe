"""Where a server listens: an address in brackets is one, and what cannot be one is told."""

from __future__ import annotations

import socket

import pytest

from peerwatch_common.web.server import HttpServer, ListenError
from peerwatch_exporter.web.app import App
from web_client import EXPORTER, TEXT_EXPOSITION, FakeEndpoints, everything

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("address", ["0.0.0.0\N{ZERO WIDTH SPACE}..", "größe..x", "a\0b"])
def test_what_is_no_name_of_a_host_says_so(address):
    expected = r"^Cannot listen on '.*' port 0: this is no name of a host\. Choose another"
    with pytest.raises(ListenError, match=expected):
        HttpServer(EXPORTER, address, 0, App(FakeEndpoints(), bytes))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the machine has no IPv6")
@pytest.mark.parametrize("address", ["[::1]", "[::]", "::1"])
def test_an_address_may_stand_in_brackets(address):
    server = HttpServer(EXPORTER, address, 0, App(FakeEndpoints(), bytes))
    server.start()
    try:
        with socket.create_connection(("::1", server.port), timeout=300) as connection:
            connection.sendall(REQUEST)
            assert TEXT_EXPOSITION == everything(connection).partition(b"\r\n\r\n")[2]
    finally:
        server.stop()
