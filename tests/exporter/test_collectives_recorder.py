"""Reading a rank's recorder: whatever listens there, it costs that rank alone, in bounded time."""

from __future__ import annotations

import json
import os
import socket
import time

import pytest

from collectives_cases import collector_of, samples_of, wait_for
from fake_recorder import FakeServer, drip, dump, entry, flood, http
from hardware_cases import collected, only
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import (
    CollectivesConfig,
)
from peerwatch_exporter.sources.collectives import recorder as recorder_module
from peerwatch_exporter.sources.collectives import unix_http
from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.recorder import RecorderReader

LIST, TRACE, NCCL = "/handler/", "/handler/fr_trace_json", "/handler/dump_nccl_trace_json"
HANDLERS = ["ping", "fr_trace_json"]
HEALTHY = dump([entry(n, n + 1) for n in range(4)], g0=(4, -1, 3))


@pytest.fixture
def heartbeats(tmp_path):
    path = tmp_path / "b"
    path.mkdir()
    return path


@pytest.fixture
def serve(heartbeats):
    """Return a function that starts a server for a rank; they end with the test."""
    servers = []

    def start(rank, answers=None):
        server = FakeServer(
            heartbeats / f"rank-{rank}.sock", {LIST: HANDLERS, TRACE: HEALTHY, **(answers or {})}
        )
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


def write_rank(heartbeats, rank, groups=(("0", "default_pg", "0-3"),), **more):
    heartbeat = {"rank": rank, "pid": os.getpid(), "job_id": "job", "time": time.time()}
    (heartbeats / f"rank-{rank}.json").write_text(json.dumps(heartbeat))
    keys = ("name", "description", "members")
    document = {"pid": os.getpid(), "groups": [dict(zip(keys, g, strict=True)) for g in groups]}
    (heartbeats / f"rank-{rank}.groups.json").write_text(json.dumps({**document, **more}))


def reader_of(heartbeats, rank=0):
    return RecorderReader(
        heartbeats / f"rank-{rank}.sock",
        heartbeats / f"rank-{rank}.groups.json",
        CollectivesConfig(),
    )


@pytest.mark.parametrize(
    ("answers", "error_class"),
    [
        ({TRACE: b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"entries": '}, "recorder_garbled"),
        ({TRACE: b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"entr'}, "recorder_garbled"),
        ({TRACE: b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n"}, "recorder_too_large"),
        ({TRACE: flood}, "recorder_too_large"),
        ({TRACE: drip}, "recorder_no_answer"),
        ({TRACE: lambda connection: time.sleep(60)}, "recorder_no_answer"),
        ({TRACE: b""}, "recorder_garbled"),
        ({TRACE: b"SSH-2.0-OpenSSH_9.2\r\n"}, "recorder_garbled"),
        ({TRACE: b"x" * 100_000}, "recorder_garbled"),
        ({TRACE: b"HTTP/1.1 500 Internal Server Error\r\n\r\n"}, "recorder_refused"),
        ({TRACE: b"HTTP/1.1 404 Not Found\r\n\r\n"}, "recorder_garbled"),
        ({LIST: {"no": "list"}}, "recorder_garbled"),
        ({LIST: ["ping"]}, "recorder_unavailable"),
    ],
)
def test_server_that_answers_something_else(heartbeats, serve, monkeypatch, answers, error_class):
    monkeypatch.setattr(recorder_module, "TIMEOUT_SECONDS", 0.5)
    write_rank(heartbeats, 0)
    serve(0, answers)
    start = time.monotonic()
    reading = reader_of(heartbeats).read()
    assert error_class == reading.problem.error_class
    assert not reading.up
    assert () == reading.groups
    assert time.monotonic() - start < 30


def make_directory(path):
    path.mkdir()


def make_file(path):
    path.write_text("{}")


def make_stale_socket(path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def make_full_queue(path):
    # Nobody accepts, as with a stopped process; the queue of one is full after two.
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.listen(0)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for connection in waiting:
        connection.setblocking(False)
        connection.connect_ex(str(path))
    return [left, *waiting]


@pytest.mark.parametrize(
    ("make", "error_class"),
    [
        (make_directory, "recorder_no_socket"),
        (make_file, "recorder_no_socket"),
        (make_stale_socket, "recorder_gone"),
        (make_full_queue, "recorder_no_answer"),
        (lambda path: None, "recorder_gone"),
    ],
)
def test_socket_that_is_none_or_that_nobody_serves(heartbeats, monkeypatch, make, error_class):
    monkeypatch.setattr(recorder_module, "TIMEOUT_SECONDS", 0.5)
    write_rank(heartbeats, 0)
    kept = make(heartbeats / "rank-0.sock") or []
    try:
        reading = reader_of(heartbeats).read()
    finally:
        for connection in kept:
            connection.close()
    assert (False, error_class) == (reading.up, reading.problem.error_class)


def test_socket_of_another_user_says_who_must_read_it(heartbeats, monkeypatch):
    make_stale_socket(heartbeats / "rank-0.sock")

    class Refused(socket.socket):
        def connect(self, _address):
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(unix_http.socket, "socket", Refused)
    with pytest.raises(CollectiveSourceError, match="CAP_DAC_OVERRIDE") as caught:
        unix_http.ask(heartbeats / "rank-0.sock", "GET", "/", timeout_seconds=1, most_bytes=10)
    assert "permission_denied" == caught.value.error_class


def test_torch_without_the_server_says_so(heartbeats):
    write_rank(heartbeats, 0, unavailable="AttributeError: no attribute '_WorkerServer'")
    reading = reader_of(heartbeats).read()
    assert (None, "recorder_unavailable") == (reading.up, reading.problem.error_class)
    assert "_WorkerServer" in str(reading.problem)
    # Who is in which group is known all the same.
    assert {"0"} == set(reading.infos)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"groups": 3}', '{"groups": [7]}', '{"groups": [{"name": 3}]}']
    + [json.dumps({"groups": [{"name": "0", "members": m}]}) for m in ("3-1", "a", "0-9999999")],
)
def test_groups_file_that_is_garbled(heartbeats, serve, text):
    serve(0)
    (heartbeats / "rank-0.groups.json").write_text(text)
    assert "garbled_groups" == reader_of(heartbeats).read().problem.error_class


def test_build_with_nccl_has_two_recorders(heartbeats, serve):
    nccl = dump(
        [entry(0, 1, name="nccl:all_reduce", state="completed", duration_ms=1.5)], g0=(1, 1, 1)
    )
    nccl["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3, 4, 5]"}}
    serve(0, {LIST: [*HANDLERS, "dump_nccl_trace_json"], NCCL: nccl})
    reading = reader_of(heartbeats).read()
    groups = {group.group: group for group in reading.groups}
    assert {"0", "gloo:0"} == set(groups)
    assert (4000 * 2 * 5 / 6, 0.0015) == (
        groups["0"].totals["all_reduce"].bus,
        groups["0"].totals["all_reduce"].seconds,
    )


@pytest.mark.parametrize("group", [7, None, {"desc": "d"}, {"desc": "d", "ranks": [0, 1]}])
def test_a_group_without_ranks_is_left_out_and_the_others_count(heartbeats, serve, group):
    answer = dump([entry(n, n + 1) for n in range(4)], g0=(4, -1, 3))
    answer["pg_config"] = {"0": group, "1": {"desc": "tp", "ranks": "[0, 1]"}}
    serve(0, {TRACE: answer})
    reading = reader_of(heartbeats).read()
    assert (True, None) == (reading.up, reading.problem)
    assert {"1": 2} == {name: info.size for name, info in reading.infos.items()}


def test_one_rank_that_stands_still_delays_nobody(heartbeats, serve):
    for rank in range(3):
        write_rank(heartbeats, rank)
        serve(rank, {LIST: lambda connection: time.sleep(60)} if rank == 1 else None)
    collector, _ = collector_of(heartbeats)
    try:
        assert wait_for(lambda: 3 == len(only(samples_of(collector)[0], "collective_source_up")))
        samples, error = samples_of(collector)
    finally:
        collector.close()
    up = only(samples, "collective_source_up")
    assert [1, 0, 1] == [up["job", str(rank), "flight_recorder"] for rank in range(3)]
    assert "recorder_no_answer" == error
    assert {"0", "2"} == {key[1] for key in only(samples, "collective_last_sequence")}
    assert 4 == samples["collective_last_sequence", "job", "0", "0", "launched"]
    assert 1 == samples["collective_group_info", "job", "0", "default_pg", "0-3"]
    # The entry was launched in 1970.
    assert (
        4
        == samples[
            "collective_in_flight_info", "job", "0", "0", "all_reduce", "[1000]", "[1000]", "Float"
        ]
    )
    assert samples["collective_in_flight_seconds", "job", "0", "0"] > 1e9


def test_sixteen_ranks_are_read_at_once(heartbeats, serve):
    ring = dump([entry(n, n + 1) for n in range(2000)], g0=(2000, -1, 2000))
    answer = http(ring)
    for rank in range(16):
        write_rank(heartbeats, rank)
        serve(rank, {TRACE: answer})
    collector, _ = collector_of(heartbeats)
    start = time.process_time()
    try:
        assert wait_for(lambda: 16 == len(only(samples_of(collector)[0], "collective_source_up")))
    finally:
        collector.close()
    # CPU time of both ends, since the machine may be busy.
    assert time.process_time() - start < 30


def test_more_ranks_than_the_limit(heartbeats, serve):
    for rank in range(3):
        write_rank(heartbeats, rank)
        serve(rank)
    collector, _ = collector_of(heartbeats, max_ranks=2)
    try:
        assert wait_for(lambda: 2 == len(only(samples_of(collector)[0], "collective_source_up")))
        assert "too_many_ranks" == samples_of(collector)[1]
    finally:
        collector.close()


def test_rank_without_the_hook_is_no_failure(heartbeats):
    (heartbeats / "rank-0.json").write_text(json.dumps({"rank": 0, "job_id": "job"}))
    collector, _ = collector_of(heartbeats)
    with pytest.raises(NoData):
        list(collector.collect())


def test_rank_has_the_job_that_the_ranks_collector_gives_it(heartbeats, serve):
    # A number that no other job on the test's machine has.
    write_rank(heartbeats, 977)
    heartbeat = {"rank": 977, "pid": os.getpid(), "time": time.time()}
    (heartbeats / "rank-977.json").write_text(json.dumps(heartbeat))
    serve(977)
    collector, ranks = collector_of(heartbeats)
    # A job that is not known yet: none is made up.
    with pytest.raises(NoData):
        list(collector.collect())
    collected(ranks)
    source = "collective_source_up", "", "977", "flight_recorder"
    try:
        assert wait_for(lambda: source in samples_of(collector)[0])
    finally:
        collector.close()


@pytest.mark.parametrize(
    ("oldest", "seconds_apart", "period"),
    [
        pytest.param(0, 10.0, 2.0, id="a ring that has not gone round loses nothing"),
        pytest.param(7, 0.8, 2.0, id="a fast one is read as often as the setting says"),
        pytest.param(7, 1.5, 3.375, id="before it has gone round once"),
        pytest.param(7, 60.0, 6.0, id="a slow one in time to see a hang"),
        pytest.param(7, -5.0, 2.0, id="a clock that went back says nothing"),
    ],
)
def test_how_often_a_ring_is_read(heartbeats, serve, oldest, seconds_apart, period):
    entries = [entry(oldest + n, oldest + n + 1) for n in range(4)]
    for n, each in enumerate(entries):
        each["time_created_ns"] = int((1000 + n * seconds_apart) * 1e9)
    serve(0, {TRACE: dump(entries, g0=(oldest + 4, -1, oldest + 4))})
    write_rank(heartbeats, 0)
    reader = reader_of(heartbeats)

    reader.read()

    assert pytest.approx(period) == reader.period_seconds
