"""The timeline: the spans of all ranks in one trace, and what is said where some cannot be had."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from detector.fake_prometheus import fake_prometheus, success
from peerwatch_detector.__main__ import main
from peerwatch_detector.diagnosis.timeline.lines import parse_lines
from peerwatch_detector.errors import ReadError, TraceError
from peerwatch_detector.reading.span_reader import SpanReading, read_span_lines
from peerwatch_exporter.hook.peerwatch_spans import recorder as writing
from peerwatch_exporter.hook.peerwatch_spans.names import COLLECTIVE, STEP
from peerwatch_exporter.sources.jobs.process_jobs import ProcessJobs
from peerwatch_exporter.web.spans import SpanAnswers
from web_client import FakeEndpoints, hash_of, serving

START = 1_760_000_000.0


def facts(rank: int, clock: dict[str, object] | None = None, job_id: str = "j") -> list[object]:
    return [
        {
            "rank": rank,
            "job_id": job_id,
            "world_size": 4,
            "pid": 100 + rank,
            "updated": START,
            "dropped": rank,
            "clock": clock,
            "gpu_pending": None,
        }
    ]


def text(documents: list[object], *, ended: bool = True, problems: tuple[str, ...] = ()) -> bytes:
    end = [{"spans": len(documents), "truncated": False, "problems": list(problems)}]
    return b"".join(json.dumps(item).encode() + b"\n" for item in documents + end * ended)


@contextmanager
def exporter(body: bytes, status: int = 200, pause: float = 0.0) -> Iterator[tuple[str, list[Any]]]:
    """Serve a body at /spans; yield the address and what was asked."""
    asked: list[Any] = []
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((urlsplit(self.path), self.headers.get("Authorization")))
            self.send_response(status)
            self.end_headers()
            pieces = (
                [body] if not pause else [body[place : place + 1] for place in range(len(body))]
            )
            for piece in pieces:
                try:
                    self.wfile.write(piece)
                except OSError:
                    return
                if ended.wait(pause):
                    return

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


def timeline(path: Path, *urls: str, **options: object) -> int:
    chosen = [f"--exporter={url}" for url in urls]
    chosen += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    times = ["--start", str(START), "--end", str(START + 60)]
    return main(["timeline", str(path), "--job-id", "j", *times, *chosen])


def events(path: Path, phase: str) -> list[dict[str, Any]]:
    return [item for item in json.loads(path.read_text())["traceEvents"] if item["ph"] == phase]


def test_ranks_of_all_nodes_stand_on_one_axis_with_arrows_from_sends_to_receives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    clock = {"source": "round_trips", "offset": 0.2, "error": 0.0004}
    first = [
        *facts(0, {"source": "rank_0", "offset": 0.0, "error": 0.0}),
        ["step", START + 1, 0.5, 7],
        ["collective", START + 1.25, 0.01, 3, "2", "send", 1],
        ["forward", START + 1.1, 0.1, 7, None, None, None, True],
    ]
    second = [
        *facts(1, clock),
        ["collective", START + 1.2, 0.07, 3, "2", "recv", 0],
        ["collective", START + 1.4, 0.02, 41, "0", "all_reduce", None],
        ["tokenize", START + 2, 0.001, 7],
    ]
    # The receiver comes first, as exporters come in any order.
    with exporter(text(second)) as (receiver, asked), exporter(text(first)) as (sender, _):
        assert timeline(path, receiver, sender) == 0
    query = parse_qs(asked[0][0].query)
    assert query["job_id"] == ["j"]
    assert [float(query[name][0]) for name in ("start", "end")] == [START, START + 60]

    spans = {(item["pid"], item["name"]): item for item in events(path, "X")}
    step = spans[0, "step"]
    assert (step["ts"], step["dur"], step["args"]) == (1e6, 5e5, {"step": 7})
    assert spans[1, "all_reduce"]["args"] == {"group": "0", "seq": 41}
    assert spans[1, "recv"]["args"] == {"group": "2", "seq": 3, "peer": 0}
    tracks = {
        (item["pid"], item["tid"]): item["args"]["name"]
        for item in events(path, "M")
        if item["name"] == "thread_name"
    }
    assert tracks[1, spans[1, "tokenize"]["tid"]] == "tokenize"
    assert tracks[0, spans[0, "forward"]["tid"]] == "forward (GPU)"
    named = [item for item in events(path, "M") if item["name"] == "process_name"]
    assert {(item["pid"], item["args"]["name"]) for item in named} == {(0, "rank 0"), (1, "rank 1")}

    (sent,), (received,) = events(path, "s"), events(path, "f")
    assert (sent["id"], sent["pid"], sent["ts"]) == (received["id"], 0, 1.25e6)
    assert (received["pid"], received["bp"]) == (1, "e")
    assert received["ts"] == pytest.approx(1.27e6, abs=2)
    for arrow, name in ((sent, "send"), (received, "recv")):
        span = spans[arrow["pid"], name]
        assert span["tid"] == arrow["tid"]
        assert span["ts"] <= arrow["ts"] < span["ts"] + span["dur"]
    other_data = json.loads(path.read_text())["otherData"]
    assert other_data["clock_error_seconds"] == 0.0004
    assert other_data["spans_dropped"] == 1
    said = capsys.readouterr().err
    assert "6 spans of 2 ranks, 1 messages" in said
    assert "not compared" not in said


def test_what_a_rank_wrote_is_in_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the ring that the hook writes, through the exporter's own server."""
    monkeypatch.setenv("PEERWATCH_JOB_ID", "j")
    monkeypatch.setattr(writing, "rank_of_process", lambda has_stepped: (0, 2))
    recorder = writing.Recorder(str(tmp_path / "heartbeats"))
    recorder._open_if_rank()
    now = time.perf_counter_ns()
    recorder.add(STEP, now - 10**9, now, value=41)
    recorder.add(COLLECTIVE, now - 10**7, now, recorder.names.detail("2", "isend", 1), 12)
    recorder.publish()
    answers = SpanAnswers(tmp_path / "heartbeats", ProcessJobs(), 1000, time.time)
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{peerwatch: {hash_of('secret')}}}\n")
    (tmp_path / "password").write_text("secret")
    config = tmp_path / "detector.yaml"
    config.write_text(f"exporters: {{username: peerwatch, password_file: {tmp_path}/password}}")
    path = tmp_path / "out.json"
    with serving(FakeEndpoints(), spans=answers.answer, config_file=web) as server:
        chosen = [f"--exporter=http://127.0.0.1:{server.port}", f"--config={config}"]
        assert main(["timeline", str(path), "--job-id", "j", *chosen]) == 0
    step, message = events(path, "X")
    assert (step["name"], step["args"]) == ("step", {"step": 41})
    assert step["dur"] == pytest.approx(1e6)
    # The default range is the last minute.
    assert 50e6 < step["ts"] < 61e6
    assert (message["name"], message["args"]) == ("isend", {"group": "2", "seq": 12, "peer": 1})


def test_64_ranks_of_100_steps_with_messages_are_one_trace(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with ExitStack() as stack:
        urls = []
        for node in range(8):
            documents: list[object] = []
            for rank in range(8 * node, 8 * node + 8):
                documents += facts(rank, {"source": "round_trips", "offset": 0, "error": 0.0001})
                for step in range(100):
                    begin = START + 0.4 * step
                    documents.append(["step", begin, 0.4, step])
                    if rank < 56:
                        documents.append(["collective", begin, 0.1, step, "p", "send", rank + 8])
                    if rank >= 8:
                        documents.append(
                            ["collective", begin + 0.05, 0.1, step, "p", "recv", rank - 8]
                        )
            urls.append(stack.enter_context(exporter(text(documents)))[0])
        assert timeline(path, *urls) == 0
    assert len([item for item in events(path, "X") if item["name"] == "step"]) == 6400
    starts, ends = events(path, "s"), events(path, "f")
    assert len({item["id"] for item in starts}) == 5600
    assert {item["id"]: item["pid"] + 8 for item in starts} == {i["id"]: i["pid"] for i in ends}


def test_exporters_are_those_that_told_prometheus_of_the_jobs_ranks(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    body = text([*facts(0), ["step", START + 1, 0.5, 7]])
    with exporter(body) as (url, asked), fake_prometheus(vector([])) as server:
        address = url.removeprefix("http://")
        labels = {"job_id": "j", "rank": "0", "node": "c4", "instance": address}
        server.response = vector([labels, labels | {"rank": "1"}])
        assert timeline(path, prometheus=server.url) == 0
        assert 'rank_info{job_id="j"}[61s]' in server.requests[0].form["query"]
    assert len(asked) == 1
    assert events(path, "M")[0]["args"] == {"name": "rank 0 (c4)"}


def vector(labels: list[dict[str, str]]) -> Any:
    return success("vector", [{"metric": item, "value": [START, "1"]} for item in labels])


def test_a_job_that_prometheus_does_not_know_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_prometheus(vector([])) as server:
        assert timeline(tmp_path / "out.json", prometheus=server.url) == 2
    assert "knows no rank_info of job 'j'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_one_exporter_that_fails_costs_only_its_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    good = text([*facts(0), ["step", START + 1, 0.5, 7]], problems=("rank-3.spans: garbled",))
    broken = text([*facts(1), ["step", START + 1, 0.5, 7]], ended=False)
    with (
        exporter(good) as (first, _),
        exporter(broken) as (second, _),
        exporter(b"<html>\n", 200) as (third, _),
        exporter(b"no", 401) as (fourth, _),
    ):
        assert timeline(path, first, second, third, fourth, "http://127.0.0.1:1", "ftp://x") == 1
    assert [item["pid"] for item in events(path, "X")][:1] == [0]
    said = capsys.readouterr().err
    for sentence in (
        "broke off before its last line",
        "line 1 is no line of spans",
        "answered 401: no; set exporters.username",
        "127.0.0.1:1 cannot be read",
        "ftp://x cannot be read",
        "rank-3.spans: garbled",
    ):
        assert sentence in said


def test_without_a_span_there_is_no_file_but_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    path.write_text("an older trace")
    with exporter(text(facts(0))) as (url, _):
        assert timeline(path, url) == 2
    assert "had no spans of job 'j'" in capsys.readouterr().err
    assert path.read_text() == "an older trace"
    assert [item.name for item in tmp_path.iterdir()] == ["out.json"]


def test_a_rank_that_two_exporters_have_is_drawn_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = text([*facts(0), ["step", START + 1, 0.5, 7]])
    path = tmp_path / "out.json"
    with exporter(body) as (first, _), exporter(body) as (second, _):
        assert timeline(path, first, second) == 0
    assert len(events(path, "X")) == 1
    assert "the second is left out" in capsys.readouterr().err


def test_clocks_that_were_not_compared_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    spans: list[object] = [["step", START + 1, 0.5, 7]]
    with exporter(text(facts(0) + spans + facts(1) + spans)) as (url, _):
        assert timeline(path, url) == 0
    assert "clocks of 2 ranks were not compared" in capsys.readouterr().err
    assert json.loads(path.read_text())["otherData"]["ranks_with_uncompared_clocks"] == [0, 1]


def test_clocks_that_were_not_compared_are_set_by_the_ends_of_collectives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 1's host is half a second ahead, and no datagram passes; it comes first, besides."""
    path = tmp_path / "out.json"

    def spans(ahead: float) -> list[object]:
        ends = [START + 1 + n * 0.1 + ahead for n in range(20)]
        reduces = [["collective", e - 0.01, 0.01, n, "0", "all_reduce"] for n, e in enumerate(ends)]
        return [["data", START + 3 + ahead, 0.5, 7], *reduces]

    known = facts(0, {"source": "rank_0", "offset": 0, "error": 0.0})
    with (
        exporter(text(facts(1) + spans(0.5))) as (url, _),
        exporter(text(known + spans(0))) as (
            first,
            _,
        ),
    ):
        assert timeline(path, url, first) == 0
    starts = [event["ts"] for event in events(path, "X") if event["name"] == "data"]
    assert starts[0] == pytest.approx(starts[1], abs=1)
    other_data = json.loads(path.read_text())["otherData"]
    assert other_data["ranks_with_clocks_by_collectives"] == [1]
    assert other_data["ranks_with_uncompared_clocks"] == []
    assert "not compared" not in capsys.readouterr().err


def test_a_password_is_sent(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    config = tmp_path / "detector.yaml"
    config.write_text(f"exporters: {{username: pw, password_file: {tmp_path}/password}}")
    with exporter(text([*facts(0), ["step", START + 1, 0.5, 7]])) as (url, asked):
        assert timeline(tmp_path / "out.json", url, config=config) == 0
    assert asked[0][1] == "Basic cHc6c2VjcmV0"
    config.write_text("exporters: {username: pw}")
    assert timeline(tmp_path / "out.json", url, config=config) == 2


def test_an_exporter_that_drips_is_given_up() -> None:
    with exporter(text(facts(0)), pause=0.2) as (url, _):
        began = time.monotonic()
        with pytest.raises(ReadError, match=r"was not done after 0\.5 s"):
            list(read_span_lines(url, {}, SpanReading(timeout_seconds=0.5)))
        # The whole body would take its bytes times 0.2 s.
        assert time.monotonic() - began < 0.2 * len(text(facts(0)))


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[]",
        b"null",
        b"[1,2,3,4]",
        b'["step",1,-1,2]',
        b'["step",1,NaN,2]',
        b'["step",1e999,1,2]',
        b'["step",1,1,-2]',
        b'["step",1,1,1.5]',
        b'["step",1,1,1,"g","send","x"]',
        b'["step",1,1,1,1,1,1,1,1]',
        b'{"rank":"0","job_id":"j","dropped":0,"clock":null}',
        b"[" * 100_000,
    ],
)
def test_lines_of_another_kind_are_refused(line: bytes) -> None:
    head = json.dumps(facts(0)[0]).encode()
    with pytest.raises(TraceError, match="line 2 is no line of spans"):
        list(parse_lines([head, line], "http://n"))


def test_a_range_that_is_empty_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["timeline", str(tmp_path / "o"), "--job-id", "j", "--start=2", "--end=1"])
    assert code == 2
    assert "--start 2.000 must be before --end 1.000" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with exporter(text(facts(0))) as (url, _):
        assert timeline(tmp_path / "no" / "out.json", url) == 1
    assert "cannot be written: No such file" in capsys.readouterr().err
