"""Stacks on request: to whom, of whom, and what a rank's worker server may answer instead."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from peerwatch_common.web.request import Request
from peerwatch_exporter.sources.jobs.known_ranks import KnownRank, KnownRanks
from peerwatch_exporter.web.app import App
from peerwatch_exporter.web.stack import StackAnswers

STACK = b'Thread 0x1 (most recent call first):\n  File "train.py", line 118 in step\n'
ASKED = "job_id=llm&rank=3"


def http(status, body, length=None):
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
    return head.encode() + body


@pytest.fixture
def serve(tmp_path):
    """Return a function that lets the worker server of rank 3 answer once; it returns requests."""
    requests, running = [], []

    def start(answer):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(str(tmp_path / "rank-3.sock"))
        server.listen(1)

        def respond():
            connection, _ = server.accept()
            with connection:
                if asked := connection.recv(4096):
                    requests.append(asked)
                    # Who asks may have seen enough, and hung up.
                    with contextlib.suppress(OSError):
                        connection.sendall(answer)

        thread = threading.Thread(target=respond)
        thread.start()
        running.append((server, thread))
        return requests

    yield start
    for server, thread in running:
        # One that nobody asked waits still.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as waking:
            waking.connect(str(tmp_path / "rank-3.sock"))
        thread.join(timeout=60)
        server.close()


@pytest.fixture
def ask(tmp_path):
    ranks = KnownRanks()
    ranks.update([KnownRank("llm", 3, 11, True), KnownRank("llm", 4, 12, False)])

    def answer(query=ASKED, *, protected=True):
        return StackAnswers(tmp_path, ranks, lambda: protected).answer(query)

    return answer


def test_the_stack_of_a_rank_is_what_its_worker_server_dumps(serve, ask):
    requests = serve(http("200 OK", STACK))
    response = ask()
    assert (200, STACK) == (response.status, response.body)
    assert requests[0].startswith(b"POST /handler/dump_traceback HTTP/1.1\r\n")


def test_without_logins_nobody_is_given_a_stack(serve, ask):
    serve(http("200 OK", STACK))
    response = ask(protected=False)
    assert 403 == response.status
    assert b"basic_auth_users" in response.body


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("job_id=llm", 400),
        ("job_id=llm&rank=x", 400),
        ("job_id=llm&rank=../../etc", 400),
        ("job_id=llm&rank=3&more=1", 400),
        ("job_id=other&rank=3", 404),
        ("job_id=llm&rank=4", 404),
        ("job_id=llm&rank=7", 404),
    ],
)
def test_only_ranks_that_run_on_this_node_are_asked(serve, ask, query, status):
    requests = serve(http("200 OK", STACK))
    assert status == ask(query).status
    assert [] == requests


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (http("404 Not Found", b""), 404),
        (http("500 Oops", b""), 502),
        (http("200 OK", b"", length=1 << 30), 502),
        (http("200 OK", STACK, length=5000), 502),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 502),
    ],
)
def test_a_worker_server_that_does_not_answer_as_it_should(serve, ask, answer, status):
    serve(answer)
    assert status == ask().status


def test_a_rank_without_a_worker_server(ask):
    response = ask()
    assert 502 == response.status
    assert b"Rank 3 gives no stack" in response.body


def test_there_is_no_such_endpoint_unless_it_is_switched_on(serve, ask):
    request = Request("GET", "/stack", ASKED, {}, True, "client")
    assert 404 == App(None, lambda: b"").answer(request).status
    serve(http("200 OK", STACK))
    assert STACK == App(None, lambda: b"", stack=ask).answer(request).body
