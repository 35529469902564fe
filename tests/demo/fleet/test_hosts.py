"""Loading the fleet's past tells how far it has come, and a Ctrl-C ends it at once."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from peerwatch_demo.fleet import hosts
from peerwatch_demo.stack.local_server import LocalServer

LINES = [f'node_load1{{node="gpu-{number}"}} 0.5 {1000 + number}.250\n' for number in range(9)]


class Past(BaseHTTPRequestHandler):
    """Answers with the lines, in one part."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(LINES).encode())

    def log_message(self, *args: object) -> None:
        pass


def test_a_past_is_kept_whole_and_its_newest_time_noted(tmp_path: Path) -> None:
    file, noted = tmp_path / "past.txt", []
    with LocalServer(Past) as server:
        hosts._save(f"http://{server.address}/past", file, noted.append)

    assert "".join(LINES) + "# EOF\n" == file.read_text()
    assert [1008.25] == noted


def test_it_is_told_that_tasks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = threading.Event()
    monkeypatch.setattr(hosts, "_PROGRESS_SECONDS", 0.01)

    def task() -> None:
        assert reported.wait(60)

    hosts._together([task], reported.set)

    assert reported.is_set()


def test_ctrl_c_does_not_wait_for_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    over, ended = threading.Event(), []
    monkeypatch.setattr(hosts, "_PROGRESS_SECONDS", 0.01)

    def task() -> None:
        over.wait(60)
        ended.append("task")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hosts._together([task], interrupt)

    assert [] == ended
    over.set()
