"""Loading the fleet's past tells how far it has come, and a Ctrl-C ends it at once."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.fleet import hosts
from peerwatch_demo.fleet.plan import make_plan
from peerwatch_demo.stack.local_server import LocalServer
from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.servers import Stack

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


@pytest.mark.parametrize(
    ("nodes", "share", "seconds", "words"),
    [
        (64, 0.02, 30, None),
        (64, 0.08, 44, None),
        (64, 0.07, 44, "In 44 s 7% of the fleet's past was simulated: this machine is too busy"),
        (64, 0.07, 44, "take a smaller fleet (FLEET=8)"),
        (8, 0.07, 44, "End what else runs here, and try again."),
        (64, 0.9, 1000, "for 64 nodes"),
    ],
)
def test_a_machine_that_would_take_more_than_ten_minutes_is_given_up_early(
    tmp_path: Path, nodes: int, share: float, seconds: float, words: str | None
) -> None:
    plan = make_plan(nodes, None, "1")
    fleet = hosts.Hosts(Stack(tmp_path), Place(tmp_path), plan, 0.0)
    if words is None:
        fleet._require_pace(share, seconds)
        return
    with pytest.raises(StackError, match=re.escape(words)):
        fleet._require_pace(share, seconds)


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
