"""What a connection makes of the bytes of a server, whole or broken, quick or slow."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import ReadingSettings
from peerwatch_detector.reading.transport.body import read_all
from peerwatch_detector.reading.transport.connection import Connection

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Send = Callable[[socket.socket], None]


@contextmanager
def server(send: Send) -> Iterator[str]:
    """Run a server that answers every request with some bytes and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(65_536)
                try:
                    send(connection)
                except OSError:
                    # The client has given up, which is what some tests are about.
                    continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        # Closing alone does not wake who waits for a connection.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def received(send: Send, seconds: float = 30.0, **limits: int) -> bytes:
    """Return the body of what a server sends."""
    with server(send) as url:
        connection = Connection(ReadingSettings(url, **limits))  # type: ignore[arg-type]
        try:
            return read_all(connection.post("x", b"", {}, time.monotonic() + seconds).body)
        finally:
            connection.close()


def in_pieces(data: bytes, cuts: Sequence[int]) -> Send:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]

    def send(connection: socket.socket) -> None:
        for begin, end in pairwise(places):
            connection.sendall(data[begin:end])

    return send


def drops(head: bytes, piece: bytes) -> Send:
    """Send a little now and then, without an end."""

    def send(connection: socket.socket) -> None:
        connection.sendall(head)
        # Until the client hangs up; an assertion would find it if it did not.
        for _ in range(1000):
            connection.sendall(piece)
            time.sleep(0.02)

    return send


chunks = st.lists(st.binary(min_size=1, max_size=40), max_size=5)


@settings(max_examples=40, deadline=None)
@given(
    chunks,
    st.sampled_from([b"", b";name=value", b" ", b';quoted="x"']),
    st.sampled_from([b"", b"Checksum: 12\r\n", b"A: b\r\nC: d\r\n"]),
    st.lists(st.integers(0, 300), max_size=6),
)
def test_chunks_are_joined_however_they_are_cut(
    parts: list[bytes], extension: bytes, trailer: bytes, cuts: list[int]
) -> None:
    coded = b"".join(
        f"{len(part):X}".encode() + extension + b"\r\n" + part + b"\r\n" for part in parts
    )
    data = HEAD + coded + b"0\r\n" + trailer + b"\r\n"
    assert b"".join(parts) == received(in_pieces(data, cuts))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
def test_garbage_never_crashes(coded: bytes, cuts: list[int]) -> None:
    with suppress(ReadError):
        assert len(received(in_pieces(HEAD + coded, cuts))) <= len(coded)


@pytest.mark.parametrize(
    "coded",
    [
        b"zz\r\n",
        b"\r\n",
        b"-1\r\n",
        b"-1\r\n" + b"endless" * 1000,
        b"3\r\nabcd",
        b"1" * 20 + b"\r\n",
        # The last chunk, or its end, is missing.
        b"3\r\nabc\r\n",
        b"3\r\nab",
    ],
)
def test_what_is_no_chunk_is_truncated(coded: bytes) -> None:
    with pytest.raises(ReadError) as caught:
        received(in_pieces(HEAD + coded, []))
    assert "truncated" == caught.value.reason


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"a:"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x"),
        (HEAD, b"0"),
        (HEAD + b"ffff\r\n", b"x"),
        (HEAD, b"1\r\nx\r\n"),
        (HEAD + b"0\r\n", b"a: b\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    ],
    ids=["status", "head", "length", "size", "chunk", "chunks", "trailer", "no_length"],
)
def test_a_server_that_sends_byte_by_byte_is_given_up_in_time(head: bytes, piece: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(ReadError) as caught:
        received(drops(head, piece), seconds=0.3)
    assert "timeout" == caught.value.reason
    assert time.monotonic() - began < 15


def test_a_length_that_is_a_lie_is_truncated_or_cut() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    with pytest.raises(ReadError, match="broke off") as caught:
        received(in_pieces(head % 10 + b"123", []))
    assert "truncated" == caught.value.reason
    assert b"12" == received(in_pieces(head % 2 + b"123", []))


def test_a_response_without_an_end_is_refused() -> None:
    with pytest.raises(ReadError) as caught:
        received(drops(HEAD, b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n"), max_response_bytes=1 << 20)
    assert "too_large" == caught.value.reason
