"""HTTP requests: what is served, what is refused, and that no bytes do harm."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.web.request import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_TARGET_BYTES,
    BadRequestError,
    RequestReader,
)
from peerwatch_common.web.response import Response, to_bytes

HOST = b"Host: node-0\r\n"


def reader_of(*pieces, max_body_bytes=0):
    """Return a reader that is given these pieces, then the end."""
    left = list(pieces)
    return RequestReader(lambda _: left.pop(0) if left else b"", "10.0.0.1", max_body_bytes)


def answer(reader):
    """Answer the request, so that the next one can come."""
    body = b"ok\n"
    arguments = {"with_body": not reader.is_head, "keep_alive": True, "now": 0.0}
    sent = to_bytes(reader.http, Response(200, body), body, **arguments)
    if reader.http.our_state is h11.DONE:
        reader.http.start_next_cycle()
    return sent


def parsed(line, *headers):
    reader = reader_of(b"\r\n".join([line, *headers, b"", b""]))
    assert reader.wait()
    return reader.read()


def refused(line, *headers):
    with pytest.raises(BadRequestError) as caught:
        parsed(line, *headers)
    return caught.value.status


def test_request_is_read():
    request = parsed(b"GET /metrics?a=1&b HTTP/1.1", b"Host: node-0", b"ACCEPT:  */* \t")
    assert ("GET", "/metrics", "a=1&b", "*/*", "", True, "10.0.0.1") == (
        request.method,
        request.path,
        request.query,
        request.header("accept"),
        request.header("absent"),
        request.keep_alive,
        request.client,
    )


def test_request_comes_in_any_pieces_and_two_at_once():
    data = b"\r\nGET /a HTTP/1.1\r\n" + HOST + b"\r\n" + b"HEAD /b HTTP/1.1\r\n" + HOST + b"\r\n"
    bytewise = reader_of(*(data[at : at + 1] for at in range(len(data))))
    at_once = reader_of(data)
    for reader in (bytewise, at_once):
        paths = []
        while reader.wait():
            paths.append(reader.read().path)
            answer(reader)
        assert ["/a", "/b"] == paths


QUESTIONS = {
    b"GET /metrics HTTP/1.1\r\nHost: node-0\r\n\r\n": ("GET", "/metrics"),
    b"GET /metrics HTTP/1.1\r\nHost: node-1\r\nAccept: a\r\n\r\n": ("GET", "/metrics"),
    b"\r\nGET /fast HTTP/1.1\r\nHost: node-0\r\n\r\n": ("GET", "/fast"),
    b"HEAD /metrics HTTP/1.1\r\nHost: node-0\r\n\r\n": ("HEAD", "/metrics"),
    b"POST /hook HTTP/1.1\r\nHost: node-0\r\nContent-Length: 2\r\n\r\nab": ("POST", "/hook"),
}


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(sorted(QUESTIONS)), min_size=1, max_size=2),
            st.none() | st.integers(1, 200),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_question_that_comes_again_is_understood_as_the_first_time(chunks):
    """Whole or cut, alone or two at once, and whether h11 is asked for the answer or not."""
    pieces, wanted = [], []
    for questions, cut, _ in chunks:
        # Empty lines are harmless where nothing else has come yet.
        whole = questions[0] + b"".join(question.lstrip() for question in questions[1:])
        pieces += [whole] if cut is None else [whole[:cut], whole[cut:]]
        wanted += [QUESTIONS[question] for question in questions]
    reader = reader_of(*filter(None, pieces), max_body_bytes=10)
    asks_h11 = iter([asks for questions, _, asks in chunks for _ in questions])
    found = []
    while reader.wait():
        request = reader.read()
        found.append((request.method, request.path))
        assert reader.is_head == (request.method == "HEAD")
        assert request.body == (b"ab" if request.method == "POST" else b"")
        if next(asks_h11) or not reader.is_repeated:
            answer(reader)
        else:
            reader.next()
    assert wanted == found


def test_same_question_from_a_client_that_waits_for_the_answer_is_parsed_once():
    question = b"GET /metrics HTTP/1.1\r\nHost: node-0\r\n\r\n"
    reader = reader_of(question, question, question.replace(b"0", b"1"), question + question)
    requests, repeated = [], []
    while reader.wait():
        requests.append(reader.read())
        repeated.append(reader.is_repeated)
        if reader.is_repeated:
            reader.next()
        else:
            answer(reader)
    assert [False, True, False, False, False] == repeated
    assert requests[0] is requests[1]


def test_client_that_ends_within_a_request_has_sent_none():
    reader = reader_of(b"GET / HTTP/1.1\r\nHo")
    assert reader.wait()
    with pytest.raises(EOFError):
        reader.read()


@pytest.mark.parametrize(
    ("version", "connection", "expected"),
    [
        (b"1.1", None, True),
        (b"1.1", b"close", False),
        (b"1.1", b"Upgrade, Close", False),
        (b"1.0", None, False),
        # A server may close after any answer to HTTP/1.0 (RFC 9112, 9.3), and h11 does.
        (b"1.0", b"Keep-Alive", False),
    ],
)
def test_connection_is_kept_as_the_version_and_the_header_say(version, connection, expected):
    headers = [b"Host: x"] + ([b"Connection: " + connection] if connection else [])
    assert expected == parsed(b"GET / HTTP/" + version, *headers).keep_alive


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://node-0:9400/metrics", "/metrics"),
        (b"https://node-0", "/"),
        (b"/metrics", "/metrics"),
    ],
)
def test_target_may_name_the_host(target, path):
    assert path == parsed(b"GET " + target + b" HTTP/1.1", b"Host: x").path


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        pytest.param([b"GET /"], 400, id="no version"),
        pytest.param([b"GET / HTTP/2.0", b"Host: x"], 400, id="version 2"),
        pytest.param([b"get / HTTP/1.1", b"Host: x"], 405, id="method in small letters"),
        pytest.param([b"GET /a b HTTP/1.1", b"Host: x"], 400, id="space in the target"),
        pytest.param([b"GET metrics HTTP/1.1", b"Host: x"], 400, id="no slash"),
        pytest.param([b"GET / HTTP/1.1"], 400, id="no host"),
        pytest.param([b"GET / HTTP/1.1", b"Host: x", b"Host: y"], 400, id="two hosts"),
        pytest.param([b"GET / HTTP/1.1", b"Host : x"], 400, id="space before the colon"),
        pytest.param([b"GET / HTTP/1.1", b"Host: x\0"], 400, id="zero byte"),
        pytest.param([b"PUT / HTTP/1.1", b"Host: x"], 405, id="another method"),
        pytest.param([b"GET / HTTP/1.1", b"Host: x", b"Content-Length: 1"], 413, id="body"),
        pytest.param(
            [b"GET / HTTP/1.1", b"Host: x", b"Transfer-Encoding: chunked"], 413, id="chunked"
        ),
        pytest.param([b"GET / HTTP/1.1", b"Host: x", b"Transfer-Encoding: x"], 501, id="coding"),
        pytest.param(
            [b"GET / HTTP/1.1", b"Host: x", b"Content-Length: 0", b"Content-Length: 1"],
            400,
            id="two lengths",
        ),
        pytest.param(
            [b"GET / HTTP/1.1", b"Host: x", b"Authorization: a", b"authorization: b"],
            400,
            id="two logins",
        ),
        pytest.param(
            [b"GET /" + MAX_TARGET_BYTES * b"x" + b" HTTP/1.1", b"Host: x"], 414, id="long target"
        ),
        pytest.param(
            [b"GET / HTTP/1.1", b"Host: x", *(MAX_HEADERS * [b"a: b"])], 431, id="many headers"
        ),
    ],
)
def test_what_is_no_request_is_refused(lines, status):
    assert status == refused(*lines)


@pytest.mark.parametrize(
    ("lines", "name", "value"),
    [
        # RFC 9112, 5.2: a folded line is refused or read as one with a space.
        pytest.param([b"a: b", b" c"], "a", "b c", id="folded line"),
        # RFC 9112, 2.2: a line feed alone may end a line.
        pytest.param([b"a: b\nc: d"], "c", "d", id="bare line feed"),
        # RFC 9112, 6.3: equal lengths may be taken for one.
        pytest.param(2 * [b"Content-Length: 0"], "content-length", "0", id="equal lengths"),
    ],
)
def test_what_may_be_read_is_read_as_the_standard_says(lines, name, value):
    assert value == parsed(b"GET / HTTP/1.1", b"Host: x", *lines).header(name)


@pytest.mark.parametrize("piece", [100, MAX_HEAD_BYTES, 3 * MAX_HEAD_BYTES])
def test_endless_headers_are_refused_after_a_bounded_number_of_bytes(piece):
    given = 0

    def receive(size):
        nonlocal given
        given += min(piece, size)
        return min(piece, size) * b"a"

    reader = RequestReader(receive, "10.0.0.1")
    assert reader.wait()
    with pytest.raises(BadRequestError) as caught:
        reader.read()
    assert 431 == caught.value.status
    assert given <= 3 * MAX_HEAD_BYTES


def post(length, body=b"", *headers):
    head = b"\r\n".join([b"POST /hook HTTP/1.1", b"Host: x", *length, *headers, b"", b""])
    return head + body


@pytest.mark.parametrize("size", [0, 1, 99_999, 100_000])
def test_a_body_is_read_whole_in_any_pieces_where_bodies_are_taken(size):
    body = bytes(each % 251 for each in range(size))
    data = post([b"Content-Length: %d" % size], body) + b"GET /next HTTP/1.1\r\n" + HOST + b"\r\n"
    pieces = [data[at : at + 7001] for at in range(0, len(data), 7001)]
    for parts in ([data], pieces):
        reader = reader_of(*parts, max_body_bytes=100_000)
        assert reader.wait()
        request = reader.read()
        assert (request.method, request.path, request.body) == ("POST", "/hook", body)
        answer(reader)
        assert reader.wait()
        following = reader.read()
        assert (following.method, following.path, following.body) == ("GET", "/next", b"")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (post([b"Content-Length: 101"]), 413),
        (post([b"Content-Length: 1000000000"]), 413),
        (post([]), 411),
        (post([b"Transfer-Encoding: chunked"]), 411),
        (post([b"Content-Length: x"]), 400),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na", 405),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na", 413),
    ],
)
def test_a_body_that_is_not_taken_is_refused_unread(data, status):
    reader = reader_of(data, max_body_bytes=100)
    assert reader.wait()
    with pytest.raises(BadRequestError) as caught:
        reader.read()
    assert caught.value.status == status


def test_a_body_that_ends_early_is_none():
    reader = reader_of(post([b"Content-Length: 9"], b"12345678"), max_body_bytes=100)
    assert reader.wait()
    with pytest.raises(EOFError):
        reader.read()


def test_without_bodies_a_post_is_another_method():
    assert refused(b"POST / HTTP/1.1", b"Host: x", b"Content-Length: 0") == 405
    assert refused(b"POST / HTTP/1.1", b"Host: x", b"Content-Length: 4097") == 413


@given(st.binary(max_size=300) | st.text("GETHOS :/\r\n1.?-", max_size=120).map(str.encode))
def test_no_bytes_raise_anything_else(data):
    reader = reader_of(data, max_body_bytes=100)
    try:
        while reader.wait():
            request = reader.read()
            assert request.method in {"GET", "HEAD", "POST"}
            assert request.path.startswith("/")
            answer(reader)
            if not request.keep_alive:
                return
    except (BadRequestError, EOFError):
        pass


def test_malformed_line_is_not_repeated():
    with pytest.raises(BadRequestError, match=r"^The request is malformed: illegal header line\.$"):
        parsed(b"GET / HTTP/1.1", b"Authorization : secret")


@given(st.lists(st.tuples(st.text("abc-", min_size=1, max_size=4), st.binary(max_size=20))))
def test_header_values_hold_no_line_ends(pairs):
    lines = [name.encode() + b": " + value for name, value in pairs]
    try:
        request = parsed(b"GET / HTTP/1.0", *lines)
    except BadRequestError:
        return
    assert not any(set("\r\n\0") & set(value) for value in request.headers.values())
