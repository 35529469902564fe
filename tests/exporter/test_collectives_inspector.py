"""NCCL Inspector's files: both forms, growing, truncated, replaced, and broken ones."""

from __future__ import annotations

import json
import os
import socket

import pytest

from peerwatch_exporter.sources.collectives.inspector import InspectorFiles, report_inspector
from peerwatch_exporter.sources.collectives.telemetry import (
    GroupInfo,
    GroupTelemetry,
    Totals,
    completed_by,
)
from peerwatch_exporter.sources.jobs.known_ranks import KnownRank

PID = 4242
HOST = socket.gethostname().partition(".")[0]


def line(number, *, size=1_000_000, microseconds=500, short=False, **header):
    """Return a line of the log; ``short`` as the plugin's own documentation shows it."""
    record = {
        "header": {"id": "0xabc", "comm_name": "DP 0", "rank": 1, "n_ranks": 4, "nnodes": 1},
        "metadata": {"hostname": HOST, "pid": PID, "dump_timestamp_us": 1},
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": number,
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": microseconds,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 2.0,
            "coll_busbw_gbs": 3.0,
        },
    }
    if short:
        del record["header"]["comm_name"], record["coll_perf"]["coll_timing_source"]
    record["header"].update(header)
    return json.dumps(record) + "\n"


@pytest.fixture
def log(tmp_path):
    return tmp_path / f"{HOST}-pid{PID}.log"


def totals(files):
    processes, garbled = files.read()
    return processes.get(PID, {}).get("0xabc"), garbled


@pytest.mark.parametrize("short", [False, True])
def test_file_is_followed_as_it_grows(log, short):
    files = InspectorFiles(log.parent)
    log.write_text(line(1, short=short) + line(2, short=short)[:40])
    assert 1 == totals(files)[0].totals["all_reduce"].completed
    with log.open("a") as more:
        more.write(line(2, short=short)[40:] + line(3, short=short))
    for _ in range(2):
        found, garbled = totals(files)
    each = found.totals["all_reduce"]
    assert (3, 0) == (each.completed, garbled)
    assert (pytest.approx(0.0015), 3_000_000, 4_500_000) == (each.seconds, each.size, each.bus)


@pytest.mark.parametrize("how", ["truncated", "replaced"])
def test_totals_go_on_when_the_file_begins_anew(log, how):
    files = InspectorFiles(log.parent)
    log.write_text("".join(map(line, range(5))))
    totals(files)
    if how == "truncated":
        os.truncate(log, 0)
        totals(files)
        log.write_text(line(6))
    else:
        log.with_suffix(".new").write_text("".join(map(line, range(6, 20))))
        log.with_suffix(".new").replace(log)
    assert {"truncated": 6, "replaced": 19}[how] == totals(files)[0].totals["all_reduce"].completed


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        "[]",
        '{"header": 3}',
        line(1, rank=4),
        line(1, rank="x"),
        line(1, n_ranks=None),
        line(1, microseconds=-3),
        line(1, size="big"),
        "\x00\xff",
    ],
)
def test_broken_line_costs_itself(log, broken):
    log.write_text(line(1) + broken.rstrip("\n") + "\n" + line(2))
    found, garbled = totals(InspectorFiles(log.parent))
    assert (2, 1) == (found.totals["all_reduce"].completed, garbled)


def test_send_is_named_and_other_hosts_are_left_to_their_exporters(log):
    record = json.loads(line(1))
    performance = record.pop("coll_perf")
    record["p2p_perf"] = {
        key.replace("coll", "p2p"): "Send" if key == "coll" else value
        for key, value in performance.items()
    }
    log.write_text(json.dumps(record) + "\n")
    (log.parent / "another-pid7.log").write_text(line(1))
    (log.parent / "notes.txt").write_text("x")
    processes, garbled = InspectorFiles(log.parent).read()
    assert ({PID}, 0) == (set(processes), garbled)
    assert {"send"} == set(processes[PID]["0xabc"].totals)


def test_long_backlog_is_read_from_its_end(log, monkeypatch):
    monkeypatch.setattr(
        "peerwatch_exporter.sources.collectives.inspector._MOST_BYTES_PER_ROUND", 2000
    )
    log.write_text("".join(map(line, range(100))))
    files = InspectorFiles(log.parent)
    found, garbled = totals(files)
    assert 0 == garbled
    assert 0 < found.totals["all_reduce"].completed < 8


def test_it_completes_what_the_recorder_knows(log):
    log.write_text(line(1))
    rank = KnownRank("job", 5, PID, is_alive=True)
    groups = {"job": [GroupInfo("2", "data", "4-7", 4)]}
    processes, _ = InspectorFiles(log.parent).read()
    (report,) = report_inspector(processes, 1000.0, {PID: rank}, groups)
    assert ("job", 5, None, "2") == (*report[:2], report.up, report.groups[0].group)
    ours = GroupTelemetry("2", 9, None, 8, totals={"all_reduce": Totals(9, 8, None, 80, 90)})
    both = completed_by(ours, report.groups[0])
    assert (9, 8, 0.0005, 1_000_000) == (
        both.launched,
        both.completed,
        both.totals["all_reduce"].seconds,
        both.totals["all_reduce"].size,
    )
    assert 9 == both.totals["all_reduce"].launched
