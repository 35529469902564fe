"""The command ``diagnose``: what stands about a job, and the stacks of who is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from detector.fake_prometheus import FakePrometheus, fake_prometheus, success
from peerwatch_detector.__main__ import main

STACK = 'File "/home/ops/train.py", line 118 in step\n'
SUMMARY = "rank 3 on node c4 did not launch all_reduce 1041 of the group of all ranks; 7 ranks wait"
VERDICT = {
    "class": "not_launched",
    "node": "c4",
    "rank": "3",
    "domain": "unknown",
    "confidence": "likely",
    "action": "isolate",
    "summary": SUMMARY,
}
UNDECIDED = VERDICT | {"class": "mismatch", "node": "", "rank": "", "confidence": "undecided"}


@pytest.fixture
def exporter() -> Iterator[tuple[str, list[str]]]:
    """An exporter that gives a stack to those who know the password."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            allowed = self.headers["Authorization"] == "Basic b3BzOnNlY3JldA=="
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(STACK.encode() if allowed else b"who?\n")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def server() -> Iterator[FakePrometheus]:
    with fake_prometheus(success("vector", [])) as running:
        yield running


def publish(server: FakePrometheus, *verdicts: dict[str, str], exporter: str = "") -> None:
    def respond(handler: BaseHTTPRequestHandler) -> None:
        query = server.requests[-1].form["query"]
        if "peerwatch_diagnosis_last_success" in query:
            found = [{"metric": {}, "value": [1, "1700000000"]}]
        elif "rank_info" in query:
            found = [{"metric": {"instance": exporter, "node": "c4"}, "value": [1, "1"]}]
        else:
            found = [{"metric": verdict, "value": [1, "1"]} for verdict in verdicts]
        success("vector", found)(handler)

    server.response = respond


def diagnose(server: FakePrometheus, *options: str) -> int:
    return main(["diagnose", "--job-id", "llm", "--prometheus", server.url, *options])


def test_what_stands_is_printed_the_decided_first(
    server: FakePrometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(server, UNDECIDED, VERDICT)
    assert 0 == diagnose(server)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Job llm (diagnosed ")
    assert [SUMMARY, "  not_launched, likely, unknown, action isolate"] == lines[2:4]
    assert "  mismatch, undecided, unknown, action isolate" == lines[6]


def test_nothing_stands(server: FakePrometheus, capsys: pytest.CaptureFixture[str]) -> None:
    publish(server)
    assert 0 == diagnose(server)
    assert capsys.readouterr().out.startswith("Nothing stands against job llm (diagnosed ")


def test_a_job_that_nobody_diagnoses(
    server: FakePrometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == diagnose(server)
    assert "has diagnosed job 'llm'" in capsys.readouterr().err


def test_stacks_are_asked_for_once_and_only_of_who_is_named(
    server: FakePrometheus,
    exporter: tuple[str, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, asked = exporter
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "detector.yaml").write_text(
        json.dumps({"exporters": {"username": "ops", "password_file": str(tmp_path / "password")}})
    )
    publish(server, UNDECIDED, VERDICT, VERDICT | {"class": "no_data"}, exporter=address)
    config = ("--config", str(tmp_path / "detector.yaml"))
    assert 0 == diagnose(server, "--stacks", "--json", *config)
    rows = json.loads(capsys.readouterr().out)
    assert [STACK, STACK, None] == [row.get("stack") for row in rows]
    assert ["/stack?job_id=llm&rank=3"] == asked
    assert ["train.py:118 (step)"] * 2 == [row["main_thread"] for row in rows[:2]]
    # In words it stands below its verdict, which says where.
    assert 0 == diagnose(server, "--stacks", *config)
    text = capsys.readouterr().out
    assert f"    {STACK}" in text
    assert f"{SUMMARY}; its main thread is at train.py:118 (step)\n" in text


def test_stacks_stand_below_the_verdicts_of_a_root_too(
    server: FakePrometheus,
    exporter: tuple[str, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "detector.yaml").write_text(
        json.dumps({"exporters": {"username": "ops", "password_file": str(tmp_path / "password")}})
    )
    publish(server, VERDICT, exporter=exporter[0])
    config = ("--config", str(tmp_path / "detector.yaml"))
    assert 0 == diagnose(server, "--root", "--stacks", "--json", *config)
    assert [STACK] == [
        row["stack"] for row in json.loads(capsys.readouterr().out)["verdicts"] if "stack" in row
    ]


def test_a_recorded_case_has_no_stacks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert 2 == main(["diagnose", str(tmp_path / "case"), "--stacks"])
    out, err = capsys.readouterr()
    assert "" == out
    assert "--stacks asks the exporters" in err
    assert "case) has none; leave --stacks out" in err


def test_a_stack_that_cannot_be_had_costs_only_itself(
    server: FakePrometheus, exporter: tuple[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    publish(server, VERDICT, VERDICT | {"node": "c9", "class": "no_data"}, exporter=exporter[0])
    assert 1 == diagnose(server, "--stacks")
    out, err = capsys.readouterr()
    assert 2 == out.count(SUMMARY)
    assert "set exporters.username and exporters.password_file" in err
    assert "no exporter of node c9 is known" in err
