"""What /spans answers: spans of a range, rank by rank, without ever holding all of them."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import struct
import time
from urllib.parse import urlencode

import pytest

from peerwatch_exporter.hook.peerwatch_spans import recorder as writing
from peerwatch_exporter.hook.peerwatch_spans.names import DATA, FORWARD, STEP
from peerwatch_exporter.hook.peerwatch_spans.recorder import ON_GPU, Recorder
from peerwatch_exporter.hook.peerwatch_spans.ring import STATE_AT
from peerwatch_exporter.sources.jobs.process_jobs import ProcessJobs
from peerwatch_exporter.web.spans import MOST_ANSWERS, SpanAnswers
from web_client import FakeEndpoints, ask, eventually, hash_of, raw, serving


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Return a function that lets a rank write so many steps, the last of them just now."""
    directory = tmp_path / "heartbeats"

    def rank(number, steps, job_id="job", records=4096):
        monkeypatch.setenv("PEERWATCH_JOB_ID", job_id)
        monkeypatch.setenv("PEERWATCH_SPANS_RECORDS", str(records))
        monkeypatch.setattr(writing, "rank_of_process", lambda has_stepped: (number, 2))
        recorder = Recorder(str(directory))
        recorder._open_if_rank()
        now = time.perf_counter_ns()
        for step in range(steps):
            start = now - (steps - step) * 10**6
            recorder.add(STEP, start, start + 10**6, value=step)
        recorder.publish()
        return recorder

    rank.directory = directory
    return rank


@pytest.fixture
def answers(node):
    return SpanAnswers(node.directory, ProcessJobs(), 200_000, time.time)


def read(response):
    with_close = response.parts
    try:
        return [json.loads(line) for line in b"".join(with_close).splitlines()]
    finally:
        with_close.close()


def test_ranks_of_the_job_with_their_spans_in_order(node, answers):
    recorder = node(0, 3)
    now = time.perf_counter_ns()
    recorder.add(FORWARD, now, now + 10**6, flag=ON_GPU)
    recorder.add(DATA, now, now + 10**6, recorder.names.detail("3", "send", 2), 12)
    recorder.publish()
    node(1, 1)
    node(2, 1, "other")
    first, *spans, second, _, last = read(answers.answer("job_id=job"))
    assert (0, "job", 2, {"source": "rank_0", "offset": 0, "error": 0}, None) == (
        first["rank"],
        first["job_id"],
        first["world_size"],
        first["clock"],
        first["gpu_pending"],
    )
    assert [["step", 0], ["step", 1], ["step", 2]] == [[span[0], span[3]] for span in spans[:3]]
    assert all(time.time() - 60 < span[1] < time.time() + 1 for span in spans)
    assert ["forward", pytest.approx(0.001), 0, None, None, None, True] == [
        spans[3][0],
        *spans[3][2:],
    ]
    assert [12, "3", "send", 2] == spans[4][3:]
    assert 1 == second["rank"]
    assert {"spans": 6, "truncated": False, "problems": []} == last

    assert [0, 1, 2] == [line["rank"] for line in read(answers.answer("")) if "rank" in line]
    assert 2 == read(answers.answer("job_id=job&rank=1"))[-1]["spans"] + 1
    assert 0 == read(answers.answer("job_id=none"))[-1]["spans"]


def test_times_are_by_the_clock_of_rank_0(node, answers):
    node(1, 1)
    path = node.directory / "rank-1.spans"
    content = bytearray(path.read_bytes())
    reference = time.perf_counter_ns()
    # Half a second ahead, and 50 ppm faster.
    struct.pack_into("<qqddI", content, STATE_AT + 32, reference, 500_000_000, 5e-5, 2e-4, 1)
    path.write_bytes(content)
    head, (_, start, *_), _ = read(answers.answer(f"start={time.time() - 30}"))
    assert {"source": "round_trips", "offset": pytest.approx(0.5, abs=0.01), "error": 2e-4} == head[
        "clock"
    ]
    assert pytest.approx(time.time() - 0.5, abs=30) == start
    # The range is by rank 0's clock too.
    ahead = f"start={start - 0.0001}&end={start + 0.0001}"
    assert 1 == read(answers.answer(ahead))[-1]["spans"]
    assert 0 == read(answers.answer(f"start={start + 0.4}"))[-1]["spans"]


def test_answer_is_bounded_and_shared_out_over_the_ranks(node):
    node(0, 3000)
    node(1, 3000)
    small = SpanAnswers(node.directory, ProcessJobs(), 1000, time.time)
    lines = read(small.answer(""))
    assert {"spans": 1000, "truncated": True, "problems": []} == lines[-1]
    assert 501 == next(n for n, line in enumerate(lines) if n and "rank" in line)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"start": "soon"}, "start 'soon' is no Unix time"),
        ({"start": "1767300000000"}, "is no Unix time in seconds"),
        ({"start": "nan"}, "is no Unix time"),
        ({"start": "20", "end": "10"}, "start 20.000 is after end 10.000"),
        ({"rank": "-1"}, "rank '-1' is no rank"),
        ({"job": "x"}, "'job' is unknown; there are job_id, rank, start, end"),
        ({"job_id": "x" * 3000}, "at most 2000 count"),
    ],
)
def test_query_without_sense_is_refused_with_a_reason(answers, query, reason):
    response = answers.answer(urlencode(query))
    assert 400 == response.status
    assert reason in response.body.decode()
    assert 400 == answers.answer("rank=1&rank=2").status


def test_damaged_file_is_a_problem_of_its_own(node, answers):
    node(0, 2)
    node(1, 2)
    (node.directory / "rank-0.spans").write_bytes(b"PWSPANS1")
    *lines, last = read(answers.answer(""))
    assert [1] == [line["rank"] for line in lines if "rank" in line]
    assert "rank-0.spans: is cut off: 8 bytes" in last["problems"][0]


def test_over_http_in_parts_behind_the_password(node, answers, tmp_path):
    node(0, 4000)
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{prometheus: {hash_of('secret')}}}\n")
    with serving(FakeEndpoints(), spans=answers.answer, config_file=web) as server:
        assert 401 == ask(server.port, "/spans").status
        login = {"authorization": "Basic cHJvbWV0aGV1czpzZWNyZXQ="}
        plain = ask(server.port, "/spans", **login)
        packed = ask(server.port, "/spans", accept_encoding="gzip", **login)
        head = ask(server.port, "/spans", method="HEAD", **login)
        for _ in range(3 * MOST_ANSWERS):  # each gave its place back
            assert 200 == ask(server.port, "/spans?rank=7", **login).status
        assert (200, b"") == (head.status, head.body)
        assert "chunked" == plain.headers["transfer-encoding"]
        assert plain.body.splitlines()[1:] == gzip.decompress(packed.body).splitlines()[1:]
        assert 3840 == json.loads(plain.body.splitlines()[-1])["spans"]
        # A connection goes on after an answer in parts; an old client's ends with it.
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for _ in range(2):
            connection.request("GET", "/spans?rank=0", headers=login)
            assert b'"truncated":false' in connection.getresponse().read()
        connection.close()
        with raw(server.port) as old:
            lines = f"GET /spans HTTP/1.0\r\nAuthorization: {login['authorization']}\r\n\r\n"
            old.sendall(lines.encode())
            received = b"".join(iter(lambda: old.recv(65536), b""))
            assert received.endswith(b'"problems":[]}\n')


def test_client_that_goes_gives_its_place_to_another(node, answers):
    node(0, 120_000, records=131072)  # more than the kernel takes for a client that does not read
    with serving(FakeEndpoints(), spans=answers.answer) as server:
        connections = [raw(server.port) for _ in range(MOST_ANSWERS)]
        sockets = [connection.__enter__() for connection in connections]
        for client in sockets:  # they ask, and never read
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"GET /spans?start=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        # Not by asking, which might take the place of one that has yet to be served.
        eventually(lambda: answers._free._value == 0)
        assert 503 == ask(server.port, "/spans?rank=5").status
        for connection in connections:
            connection.__exit__(None, None, None)
        eventually(lambda: ask(server.port, "/spans?rank=5").status == 200)
