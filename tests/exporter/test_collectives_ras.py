"""NCCL's RAS: what it says of this node's ranks, in both formats, and whatever else may answer."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fake_ras import FakeRas, communicator, ras_rank, status
from fake_recorder import drip
from peerwatch_exporter.sources.collectives import ras_client
from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.ras import Ras, report_ras
from peerwatch_exporter.sources.collectives.ras_answer import parse_ras
from peerwatch_exporter.sources.collectives.ras_client import RasAnswer, ask_ras
from peerwatch_exporter.sources.collectives.telemetry import GroupInfo
from peerwatch_exporter.sources.jobs.known_ranks import KnownRank

# Ranks 4 and 5 of the job are on this node.
LOCAL = {pid: KnownRank("job", rank, pid, is_alive=True) for rank, pid in ((4, 104), (5, 105))}
GROUPS = {
    "job": [
        GroupInfo("0", "default_pg", "0-7", 8),
        GroupInfo("3", "data_parallel", "5-9:4", 2),
        GroupInfo("4", "tensor_parallel", "4-5", 2),
        GroupInfo("5", "expert_parallel", "4-5", 2),
    ]
}
ELSEWHERE = "192.0.2.1"


def ask(server, seconds=10):
    try:
        return parse_ras(ask_ras("127.0.0.1", server.port, seconds))
    finally:
        server.close()


def reports(*communicators, ranks=LOCAL):
    parsed = parse_ras(RasAnswer(json.dumps(status(*communicators)).encode(), is_json=True))
    found = report_ras(parsed, 1000.0, ranks, GROUPS)
    return {(each.rank, each.up): {g.group: g for g in each.groups} for each in found}


def world(**own):
    ranks = [ras_rank(n, 104 + n - 4, host=ELSEWHERE, AllReduce=7) for n in range(8)]
    ranks[4], ranks[5] = ras_rank(4, 104, AllReduce=6, **own), ras_rank(5, 105, AllReduce=7)
    return ranks


def test_recorded_answer_of_a_job_of_four_ranks():
    """NCCL 2.28.9; the answer as it came, below SERVER PROTOCOL 2 and two times OK."""
    body = (Path(__file__).parent / "recorded_collectives" / "ras_nccl_2.28.9.json").read_bytes()
    status = parse_ras(RasAnswer(body, is_json=True))
    assert [2, 2, 4] == sorted(each.size for each in status.communicators)
    assert (0, ()) == (status.garbled, status.missing)
    (everybody,) = (each for each in status.communicators if each.size == 4)
    assert [912, 913, 914, 915] == sorted(rank.pid for rank in everybody.ranks)
    assert all(rank.launched["all_reduce"] > 100 for rank in everybody.ranks)


def test_own_ranks_with_the_name_of_their_group():
    found = reports(communicator(world(Broadcast=2)))
    assert {(4, True), (5, True)} == set(found)
    assert 8 == found[4, True]["0"].launched
    assert {"all_reduce": 6, "broadcast": 2} == {
        kind: totals.launched for kind, totals in found[4, True]["0"].totals.items()
    }
    assert (7, None, None) == (
        found[5, True]["0"].launched,
        found[5, True]["0"].started,
        found[5, True]["0"].completed,
    )


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        # Place 0 of {5, 9} is rank 5.
        ([ras_rank(0, 105), ras_rank(1, 900, host=ELSEWHERE)], "3"),
        # Two groups have these members.
        ([ras_rank(0, 104), ras_rank(1, 105)], "nccl-7f8c496ae9f661"),
        # No group has them in this order.
        ([ras_rank(0, 105), ras_rank(1, 104)], "nccl-7f8c496ae9f661"),
    ],
)
def test_communicator_is_the_group_only_if_it_is_certain(ranks, name):
    found = reports(communicator(ranks))
    assert {name} == set(found[5, True])


def test_missing_ranks_are_silent():
    gone = {"rank": 4, "host": "127.0.0.1", "pid": 104, "status": {"considered_dead": True}}
    ranks = world()
    found = reports(communicator([*ranks[:4], *ranks[5:]], missing=[gone]))
    assert {(4, False), (5, True)} == set(found)
    # Of another node, they are told of where the first present rank runs: here.
    gone = [{"rank": n, "host": ELSEWHERE, "pid": 40 + n, "status": {}} for n in range(4)]
    found = reports(communicator(ranks[4:], missing=gone))
    assert {(n, False) for n in range(4)} | {(4, True), (5, True)} == set(found)


@pytest.mark.parametrize(
    "odd",
    [
        ras_rank(4711, 104),
        ras_rank(-1, 104),
        ras_rank(4, 0),
        {**ras_rank(4, 104), "collective_counts": {"AllReduce": -3}},
        {**ras_rank(4, 104), "collective_counts": None},
        {**ras_rank(4, 104), "host": 3},
        ras_rank(5, 104),
        "rank",
    ],
)
def test_impossible_rank_costs_itself(odd):
    document = status(communicator([odd, ras_rank(5, 105)], size=8))
    if isinstance(odd, dict) and odd.get("rank") == 5:
        document["communicators"][0]["ranks"].reverse()
    parsed = parse_ras(RasAnswer(json.dumps(document).encode(), is_json=True))
    assert (1, [5]) == (parsed.garbled, [rank.rank for rank in parsed.communicators[0].ranks])


@pytest.mark.parametrize(
    ("comma", "without"),
    [("},\n    {", "}\n    {"), (',\n     "pid"', '\n     "pid"'), ("},\n    {", "}{")],
)
def test_comma_that_nccl_forgets(comma, without):
    missing = [{"rank": n, "host": ELSEWHERE, "pid": 50 + n} for n in (0, 1)]
    text = json.dumps(status(communicator([ras_rank(2, 104)], missing=missing)), indent=1)
    assert comma in text
    parsed = parse_ras(RasAnswer(text.replace(comma, without).encode(), is_json=True))
    assert [2, 0, 1] == [rank.rank for rank in parsed.communicators[0].ranks]


TEXT = """NCCL version 2.24.3 compiled with CUDA 12.5
CUDA runtime version 12050, driver version 12060

Job summary
===========

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 105 on node 127.0.0.1 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

#0-1 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different {kind} operation counts
  26 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 104 on node 127.0.0.1
  Rank 2 -- GPU 2 managed by process 106 on node 192.0.2.1
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 107 on node 192.0.2.1
"""


@pytest.mark.parametrize(("kind", "launched"), [("collective", 6649), ("AllReduce", None)])
def test_text_of_older_versions(kind, launched):
    answer = ask(FakeRas(TEXT.format(kind=kind).encode(), speaks_json=False))
    (found,) = answer.communicators
    assert [(0, 104), (2, 106), (7, 107)] == [(rank.rank, rank.pid) for rank in found.ranks]
    here = {each.rank: each for each in report_ras(answer, 1000.0, LOCAL, GROUPS)}
    assert (False, True) == (here[5].up, here[4].up)
    assert [("nccl-27a079b828ff1a75", launched)] == [
        (group.group, group.launched) for group in here[4].groups
    ]


def flood(connection):
    while True:
        connection.sendall(b"x" * 65536)


@pytest.mark.parametrize(
    ("server", "error_class"),
    [
        (lambda: FakeRas(b'{"communicators": [{"hash"'), "ras_garbled"),
        (lambda: FakeRas(b""), "ras_garbled"),
        (lambda: FakeRas(b"[]"), "ras_garbled"),
        (lambda: FakeRas(b'{"communicators": {}}'), "ras_garbled"),
        (lambda: FakeRas(b"[" * 100_000), "ras_garbled"),
        (lambda: FakeRas(b"hello", speaks_json=False), "ras_garbled"),
        (lambda: FakeRas(drip), "ras_no_answer"),
        (lambda: FakeRas(lambda connection: time.sleep(60)), "ras_no_answer"),
        (lambda: FakeRas(flood), "ras_too_large"),
        (lambda: FakeRas(b"", greeting=b"SSH-2.0-OpenSSH_9.2\r\n"), "ras_foreign"),
        (lambda: FakeRas(b"", greeting=b"x" * 100_000), "ras_foreign"),
        (lambda: FakeRas(b"", greeting=b""), "ras_no_answer"),
    ],
)
def test_whoever_else_answers_at_the_port(monkeypatch, server, error_class):
    monkeypatch.setattr(ras_client, "LARGEST_ANSWER_BYTES", 1 << 20)
    start = time.monotonic()
    with pytest.raises(CollectiveSourceError) as caught:
        ask(server(), seconds=1.5)
    assert error_class == caught.value.error_class
    assert time.monotonic() - start < 30


def test_nobody_listens():
    server = FakeRas(b"")
    server.close()
    with pytest.raises(CollectiveSourceError, match="NCCL_RAS_ADDR") as caught:
        ask_ras("127.0.0.1", server.port, 5)
    assert "ras_refused" == caught.value.error_class
    # That is no error as long as there is no job.
    ras = Ras("127.0.0.1", server.port, 2)
    try:
        deadline = time.monotonic() + 60
        while not ras.read(LOCAL, {})[1] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert [] != ras.read(LOCAL, {})[1]
        assert ([], []) == ras.read({}, {})
    finally:
        ras.close()


def test_job_of_1024_ranks_is_read_at_once():
    groups = [communicator([ras_rank(n, 10_000 + n, AllReduce=50) for n in range(1024)])]
    groups += [
        communicator([ras_rank(n, 10_000 + 8 * g + n) for n in range(8)], name=f"0x{g}")
        for g in range(128)
    ]
    server = FakeRas(status(*groups))
    here = {10_000 + n: KnownRank("job", n, 10_000 + n, is_alive=True) for n in range(8)}
    infos = {"job": [GroupInfo("0", "default_pg", "0-1023", 1024)]}
    start = time.process_time()
    found = report_ras(ask(server, seconds=60), 1000.0, here, infos)
    # CPU time of both ends, since the machine may be busy.
    assert time.process_time() - start < 30
    assert [{"0", "nccl-0"}] * 8 == [{group.group for group in each.groups} for each in found]
