"""One request over HTTP: its limits, and what is said when there is no answer."""

from __future__ import annotations

import base64
import socket
import threading
from contextlib import contextmanager

import pytest
import requests

from peerwatch_common.settings.servers import AskedServer
from peerwatch_common.web.client import Answer, ClientError, ask

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"


@contextmanager
def answering(*parts, pause=0.0):
    """Yield a server that sends these bytes to whoever asks, and a list of what it was sent."""
    seen = []
    ends = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                seen.append(connection.recv(65536))
                for part in parts:
                    try:
                        connection.sendall(part)
                    except OSError:
                        return
                    ends.wait(pause)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield AskedServer(url=f"http://127.0.0.1:{listening.getsockname()[1]}/"), seen
        ends.set()
        thread.join(60)


def asked(server, timeout=60.0, most=100):
    return ask(requests.Session().get, server, "/x", timeout, most, params={"q": "a b"})


def test_an_answer():
    with answering(HEAD, b"0123456789") as (server, seen):
        assert asked(server) == Answer(200, b"0123456789")
    assert seen[0].startswith(b"GET /x?q=a+b HTTP/1.1")


def test_by_whose_word(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    with answering(HEAD, b"0123456789") as (server, seen):
        asked(server.model_copy(update={"token_file": tmp_path / "token"}))
    assert b"Authorization: Bearer secret\r\n" in seen[0]


def test_a_secret_is_utf_8(tmp_path):
    path = tmp_path / "secret"
    with answering(HEAD, b"0123456789") as (server, seen):
        # As editors of Windows mark it.
        path.write_text("secret\r\n", encoding="utf-8-sig")
        asked(server.model_copy(update={"token_file": path}))
    assert b"Authorization: Bearer secret\r\n" in seen[0]
    with answering(HEAD, b"0123456789") as (server, seen):
        path.write_text("pass€", encoding="utf-8")
        asked(server.model_copy(update={"username": "ü", "password_file": path}))
    assert b"Authorization: Basic " + base64.b64encode("ü:pass€".encode()) in seen[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hidden".encode("utf-16"), "is no text in UTF-8; save it as such"),
        ("hidden€".encode(), "a header cannot be sent, .*; check token_file and headers"),
    ],
)
def test_a_secret_that_cannot_be_sent_is_told_and_not_shown(content, said, tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(content)
    server = AskedServer(url="http://127.0.0.1:1", token_file=path)
    with pytest.raises(ClientError, match=said) as caught:
        asked(server)
    assert "hidden" not in str(caught.value)


def test_for_which_tenant():
    with answering(HEAD, b"0123456789") as (server, seen):
        asked(server.model_copy(update={"headers": {"X-Scope-OrgID": "training"}}))
    assert b"X-Scope-OrgID: training\r\n" in seen[0]


@pytest.mark.parametrize("headers", [{"X Scope": "a"}, {"X-Scope-OrgID": "a\r\nHost: b"}])
def test_a_header_that_cannot_be_sent_is_refused(headers):
    with pytest.raises(ValueError, match="headers"):
        AskedServer(url="http://127.0.0.1", headers=headers)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((HEAD, b"0123"), "ChunkedEncodingError|ConnectionError"),
        ((b"",), "ConnectionError"),
        ((b"nonsense\r\n\r\n",), "ConnectionError"),
        ((HEAD.replace(b"10", b"1000"), b"0" * 1000), "answers more than 100 bytes"),
    ],
)
def test_what_is_no_answer(parts, said):
    with answering(*parts) as (server, _), pytest.raises(ClientError, match=said):
        asked(server)


def test_one_that_never_ends():
    """Each byte comes within the library's own limit."""
    slow = (HEAD.replace(b"10", b"99"), *[b"0"] * 99)
    with (
        answering(*slow, pause=0.05) as (server, _),
        pytest.raises(ClientError, match=r"answers for over 0\.5 s|ReadTimeout|ConnectionError"),
    ):
        asked(server, timeout=0.5)


def test_a_file_that_is_gone(tmp_path):
    (tmp_path / "token").write_text("secret")
    server = AskedServer(url="http://127.0.0.1:1", token_file=tmp_path / "token")
    (tmp_path / "token").unlink()
    with pytest.raises(ClientError, match="FileNotFoundError"):
        asked(server)
