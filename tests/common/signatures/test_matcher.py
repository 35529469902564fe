"""A log as it grows becomes events: cut anywhere, of many writers, with anything in it."""

from __future__ import annotations

import json

import pytest

from peerwatch_common.signatures.matcher import LONGEST_LINE, LogMatcher
from signature_tables import shipped_table

TABLE = shipped_table()
TIMEOUT = (
    b"[Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=80078, "
    b"OpType=BROADCAST, NumelIn=5056, NumelOut=5056, Timeout(ms)=600000) ran for 600026 "
    b"milliseconds before timing out."
)
# 2026-11-23 12:00:00 UTC
NOW = 1795435200.0


def events_of(*blocks: bytes) -> list:
    matcher = LogMatcher(TABLE, clock=lambda: NOW)
    found = [event for block in blocks for event in matcher.feed(block)]
    return found + matcher.finish()


def ids_of(*blocks: bytes) -> list[str]:
    return [event.signature.id for event in events_of(*blocks)]


def test_a_line_becomes_an_event_with_what_it_says() -> None:
    (event,) = events_of(b"healthy\n" + TIMEOUT + b"\nhealthy\n")
    assert event.signature.id == "collective_timeout"
    assert event.signature.event_class == "D"
    assert event.rank == 7
    assert event.fields == {"sequence": "80078", "operation": "BROADCAST", "timeout": "600000"}
    assert event.text == TIMEOUT


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_blocks_may_be_cut_anywhere(size: int) -> None:
    log = b"a\n" + TIMEOUT + b"\nb\r\n" + TIMEOUT
    blocks = [log[start : start + size] for start in range(0, len(log), size)]
    assert ids_of(*blocks) == ["collective_timeout"] * 2


def test_the_last_line_waits_for_its_end() -> None:
    matcher = LogMatcher(TABLE)
    assert matcher.feed(TIMEOUT) == []
    assert [event.signature.id for event in matcher.feed(b"\n")] == ["collective_timeout"]
    assert matcher.finish() == []


@pytest.mark.parametrize(
    ("prefix", "rank", "local_rank"),
    [
        (b"[rank3]: ", 3, None),
        (b"[default5]:", None, 5),
        (b"[default5]:[rank13]: ", 13, 5),
        (b" 12: ", 12, None),
        (b"12: [rank3]: ", 3, None),
        (b"10.0.0.2: [rank3]: ", 3, None),
        (b"[1,9]<stderr>:", 9, None),
        (b"[rank3]:[E816 01:45:40.183009389 ProcessGroupNCCL.cpp:607] [Rank 7] ", 3, None),
        (b"[PG ID 0 PG GUID 0(default_pg) Rank 7] ", 7, None),
        # The rank in a group of its own is not that of the job.
        (b"[PG ID 2 PG GUID 5(tp) Rank 1] ", None, None),
        (b"(RayTrainWorker pid=123, ip=10.0.0.3) [rank2]: ", 2, None),
        (
            b"  6%|\xe2\x96\x8b   | 3/50 [00:29<1:22:01,  2.83s/it][rank4]:[E602 11:17:52.1 x] ",
            4,
            None,
        ),
        (b"", None, None),
    ],
)
def test_the_rank_is_read_from_what_stands_before(
    prefix: bytes, rank: int | None, local_rank: int | None
) -> None:
    (event,) = events_of(prefix + b"CUDA error: device-side assert triggered\n")
    assert (event.rank, event.local_rank) == (rank, local_rank)


@pytest.mark.parametrize(
    ("prefix", "timestamp"),
    [
        (b"2026-11-23T10:00:00.5Z stderr F ", 1795428000.5),
        (b"2026-11-23T12:00:00.000000000+02:00 stdout P ", 1795428000.0),
        (b"[2026-11-23T10:00:00.5Z] ", 1795428000.5),
        (b"", None),
    ],
)
def test_the_time_is_read_from_what_stands_before(prefix: bytes, timestamp: float | None) -> None:
    (event,) = events_of(prefix + b"CUDA error: device-side assert triggered\n")
    assert event.timestamp == timestamp
    assert event.text == b"CUDA error: device-side assert triggered"


def test_a_record_of_docker_is_read() -> None:
    record = {
        "log": "[rank3]: \x1b[31mCUDA error: device-side assert triggered\x1b[0m\n",
        "stream": "stderr",
        "time": "2026-11-23T10:00:00.5Z",
    }
    (event,) = events_of(json.dumps(record).encode() + b"\n")
    assert (event.signature.id, event.rank) == ("cuda_device_assert", 3)
    assert event.timestamp == 1795428000.5
    assert event.text == b"CUDA error: device-side assert triggered"


def test_progress_bars_colours_and_nul_bytes_hide_nothing() -> None:
    log = (
        b"\x00\x00\x00\r  1%| | 1/9\r  2%| | 2/9\r  \x1b[1;31mCUDA err\x1b[0mor: device-side "
        b"assert triggered\x1b[K\r 3%| | 3/9\xff\xfe\n"
    )
    assert ids_of(log) == ["cuda_device_assert"]


def test_of_a_long_line_only_its_start_is_matched() -> None:
    short = b"x" * (LONGEST_LINE // 2) + b" CUDA error: device-side assert triggered "
    long = b"x" * (1 << 20) + b" CUDA error: device-side assert triggered\n"
    assert ids_of(short + b"y" * (1 << 20) + b"\n" + long) == ["cuda_device_assert"]


def test_any_bytes_are_read_without_an_error() -> None:
    log = bytes(range(256)) * 300 + b"\nTraceback (most recent call last):\n" + bytes(range(256))
    assert all(event.signature.id for event in events_of(log, b'\n{"log": 5}\n{\n[]\n'))
