"""Orders to a training driver: one identity over all tries, and never a guess what was done."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.server
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from peerwatch_responder.action import (
    AmbiguousError,
    LaterError,
    RejectedError,
    Target,
    registered_actions,
)
from peerwatch_responder.actions.driver.command import CommandOptions, DriverCommand
from peerwatch_responder.actions.driver.http import DriverHttp, HttpOptions

TARGET = Target(
    *("0123456789abcdef", "east", "gpu-017", "4711", "peerwatch: compute_straggler"),
    labels={"alertname": "PeerwatchFaultyNode", "gpu": "3", "metric": "steps", "node": "gpu-017"},
    starts_at=1000.0,
)
DONE = b'{"outcome": "done", "checkpoint_step": 1200, "message": "saved"}'


def the_step(action):
    (step,) = action.steps(TARGET)
    assert step.inspect().status == "open"
    return step


def test_actions_are_registered_by_their_files():
    known = registered_actions()
    assert {"driver_command", "driver_http"} <= set(known)
    for each in known.values():
        assert each.summary
        assert "\n" not in each.summary


def answering(**content):
    return f"print({json.dumps(content)!r})"


class Command:
    def __init__(self, folder):
        self.told = folder / "told"

    def __call__(self, program, **options):
        prelude = f"import json, os, sys; told = {os.fspath(self.told)!r}\n"
        command = (sys.executable, "-c", prelude + program)
        return DriverCommand(CommandOptions(command=command, want="checkpoint", **options))


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)


def test_a_command_is_told_whom_and_why(command):
    program = (
        "order = json.load(sys.stdin); order['id'] = os.environ['PEERWATCH_ACTION_ID']\n"
        f"open(told, 'w').write(json.dumps(order)); print({DONE.decode()!r})"
    )
    answer = the_step(command(program, deadline_seconds=77)).do({})
    assert answer == "done at step 1200: saved"
    order = json.loads(command.told.read_text())
    assert order["id"] == order["action_id"]
    assert TARGET.key in order["id"]
    expected = {
        "version": 1,
        "want": "checkpoint",
        "cluster": "east",
        "job_id": "4711",
        "node": "gpu-017",
        "gpus": ["3"],
        "deadline_seconds": 77.0,
        "finding": {"alertname": "PeerwatchFaultyNode", "metric": "steps", "since": 1000.0},
    }
    assert expected.items() <= order.items()


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        ('print(\'{"outcome": "rejected", "message": "too late"}\')', RejectedError, "too late"),
        ('print(\'{"outcome": "maybe"}\')', AmbiguousError, "'maybe'"),
        ("print('[1]')", AmbiguousError, "no JSON object"),
        ("pass", AmbiguousError, "no JSON object"),
        ("sys.exit(75)", LaterError, "try again"),
        ("sys.exit(1)", AmbiguousError, "status 1"),
        ("os.kill(os.getpid(), 9)", AmbiguousError, "status -9"),
    ],
)
def test_what_a_command_may_answer(command, program, error, message):
    with pytest.raises(error, match=message):
        the_step(command(program)).do({})


def test_a_command_that_is_not_there_did_nothing():
    action = DriverCommand(CommandOptions(command=("/no/such/driver",), want="pause"))
    with pytest.raises(RejectedError, match="No such file"):
        the_step(action).do({})


def test_a_command_that_hangs_is_ended_with_all_that_it_started(command):
    program = (
        "import subprocess, signal, time; signal.signal(15, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open(told, 'w').write(str(child.pid)); time.sleep(600)"
    )
    with pytest.raises(AmbiguousError, match="not done after 3 s"):
        the_step(command(program, deadline_seconds=3)).do({})
    if command.told.exists():
        pid = int(command.told.read_text())
        end = time.monotonic() + 60
        while _lives(pid) and time.monotonic() < end:
            time.sleep(0.05)
        assert not _lives(pid)


def _lives(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_opposite_order_undoes_it(command):
    program = (
        "open(told, 'a').write(json.load(sys.stdin)['want']); print('{\"outcome\": \"done\"}')"
    )
    assert command(program).undo(TARGET, "checkpoint", {}) == "has no opposite order"
    assert not command.told.exists()
    assert command(program, undo="resume").undo(TARGET, "checkpoint", {}) == "done"
    assert command.told.read_text() == "resume"


class Driver(http.server.ThreadingHTTPServer):
    """A training driver that answers as told."""

    def __init__(self, answers):
        self.answers, self.got = list(answers), []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.got.append((self.command, self.path, dict(self.headers), body))
        answer = self.server.answers.pop(0)
        if answer == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, headers, content = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST  # noqa: N815 - http.server's names

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def driver(*answers):
    with Driver(answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Clock:
    now = 5000.0

    def wait(self, seconds):
        self.now += seconds

    def __call__(self):
        return self.now


def action_at(server, **options):
    clock = Clock()
    url = f"http://127.0.0.1:{server.server_port}/orders"
    return DriverHttp(HttpOptions(url=url, want="pause", **options), clock.wait, clock)


def test_an_order_is_posted_signed_with_its_identity(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    with driver((200, {}, DONE)) as server:
        assert the_step(action_at(server, secret_file=secret)).do({}) == "done at step 1200: saved"
    ((method, path, headers, body),) = server.got
    assert (method, path) == ("POST", "/orders")
    assert headers["Idempotency-Key"] == json.loads(body)["action_id"]
    wanted = hmac.new(b"s3cret", b"5000." + body, hashlib.sha256).hexdigest()
    assert headers["X-Peerwatch-Timestamp"] == "5000"
    assert headers["X-Peerwatch-Signature"] == f"sha256={wanted}"


def test_every_try_has_the_same_identity():
    with driver((503, {}, b""), (200, {}, DONE)) as server:
        step = the_step(action_at(server))
        with pytest.raises(LaterError, match="503"):
            step.do({})
        step.do({})
    first, second = (headers["Idempotency-Key"] for _, _, headers, _ in server.got)
    assert first == second


def test_an_answer_to_come_is_asked_for():
    later = (202, {"Location": "/orders/7"}, b"")
    with driver(later, later, "cut", (200, {}, DONE)) as server:
        assert the_step(action_at(server)).do({}).startswith("done")
    asked = [(method, path) for method, path, *_ in server.got]
    assert asked == [("POST", "/orders"), *[("GET", "/orders/7")] * 3]


def test_an_answer_that_never_comes_leaves_open_what_was_done():
    later = (202, {}, b"")
    with driver(*[later] * 9) as server, pytest.raises(AmbiguousError, match="after 5 s"):
        the_step(action_at(server, deadline_seconds=5)).do({})


BROKEN_OFF = {"Content-Length": "999"}


def test_an_answer_that_breaks_off_leaves_open_what_was_done():
    answer = (200, {**BROKEN_OFF, "Transfer-Encoding": "chunked"}, b"5\r\nab")
    with driver(answer) as server, pytest.raises(AmbiguousError, match="No answer"):
        the_step(action_at(server)).do({})


def test_an_answer_to_come_that_breaks_off_is_asked_for_again():
    cut_off = (200, {**BROKEN_OFF, "Transfer-Encoding": "chunked"}, b"5\r\nab")
    with driver((202, {}, b""), cut_off, (200, {}, DONE)) as server:
        assert the_step(action_at(server)).do({}).startswith("done")


def test_without_its_secret_nothing_is_sent(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    with driver() as server:
        action = action_at(server, secret_file=secret)
        secret.unlink()
        with pytest.raises(LaterError, match="The secret cannot be read"):
            the_step(action).do({})
    assert server.got == []


def test_nobody_else_is_sent_the_signature():
    """An answer that points to another host is not followed there."""
    elsewhere = (202, {"Location": "http://127.0.0.2:1/steal"}, b"")
    with driver(elsewhere, (200, {}, DONE)) as server:
        assert the_step(action_at(server)).do({}).startswith("done")
    assert server.got[1][1] == "/orders"


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ((200, {}, b'{"outcome": "rejected"}'), RejectedError, "without a reason"),
        ((200, {}, b"<html>"), AmbiguousError, "no JSON object"),
        ((200, {}, b"[" * 100_000), AmbiguousError, "no JSON object"),
        ((404, {}, b""), RejectedError, "404"),
        ((401, {}, b""), RejectedError, "401"),
        ((429, {}, b""), LaterError, "429"),
        ((500, {}, b""), AmbiguousError, "500"),
        ((302, {"Location": "http://127.0.0.2/"}, b""), AmbiguousError, "302"),
        ("cut", AmbiguousError, "broke after"),
    ],
)
def test_what_a_driver_may_answer(answer, error, message):
    with driver(answer) as server, pytest.raises(error, match=message):
        the_step(action_at(server)).do({})
    assert len(server.got) == 1


def test_a_driver_that_is_not_there_did_nothing():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    action = DriverHttp(HttpOptions(url=f"http://127.0.0.1:{port}/", want="pause"))
    with pytest.raises(LaterError, match="refused"):
        the_step(action).do({})


@pytest.mark.parametrize(
    "options",
    [
        {"url": "ftp://x", "want": "pause"},
        {"url": "http://x", "want": "dance"},
        {"url": "http://x", "want": "pause", "secret_file": "/no/such/file"},
        {"url": "http://x", "want": "pause", "deadline_seconds": 0},
        {"url": "http://x", "want": "pause", "extra": 1},
    ],
)
def test_settings_with_mistakes_are_refused(options):
    with pytest.raises(ValidationError):
        HttpOptions(**options)
