"""torchrun's table says which rank failed, and which of them first."""

from __future__ import annotations

from datetime import datetime

import pytest

from peerwatch_common.signatures.matcher import LogMatcher
from signature_tables import shipped_table

TABLE = shipped_table("job")


def rows(number: int, rank: int, exit_code: int, traceback: str = "<N/A>") -> str:
    return (
        f"[{number}]:\n"
        f"  time      : 2026-03-01_10:20:3{number}\n"
        "  host      : gpu-017\n"
        f"  rank      : {rank} (local_rank: {rank % 8})\n"
        f"  exitcode  : {exit_code} (pid: 42{rank})\n"
        f"  error_file: /tmp/x/{rank}/error.json\n"
        f"  traceback : {traceback}\n"
    )


LINE = "-" * 60
END = "=" * 60
TABLE_TEXT = (
    f"{END}\ntrain.py FAILED\n{LINE}\nFailures:\n{rows(1, 9, 1)}{rows(2, 10, -6)}{LINE}\n"
    f"Root Cause (first observed failure):\n{rows(0, 11, -9, 'Signal 9 (SIGKILL) received')}{END}\n"
)


def facts(log: str) -> list[tuple]:
    matcher = LogMatcher(TABLE)
    return [
        (event.signature.id, event.rank, event.local_rank, event.fields.get("exit_code"))
        for event in matcher.feed(log.encode()) + matcher.finish()
    ]


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "2026-03-01 10:20:40,123 "])
def test_each_rank_is_named_and_the_first_is_the_root(prefix: str) -> None:
    log = "".join(f"{prefix}{line}\n" for line in TABLE_TEXT.splitlines())

    assert [
        ("elastic_worker_failed", 9, 1, "1"),
        ("elastic_worker_failed", 10, 2, "-6"),
        ("elastic_root_cause", 11, 3, "-9"),
    ] == facts(log)


def test_its_time_is_that_of_the_failure() -> None:
    *_, event = LogMatcher(TABLE).feed(TABLE_TEXT.encode())

    assert datetime(2026, 3, 1, 10, 20, 30).timestamp() == event.timestamp  # noqa: DTZ001
    assert event.cascade


def test_a_traceback_in_the_table_is_followed() -> None:
    traceback = (
        'Traceback (most recent call last):\n    File "x.py", line 1, in f\n      g()\n'
        "  KeyError: 'x'"
    )
    log = f"Root Cause (first observed failure):\n{rows(0, 3, 1, traceback)}{END}\n"
    assert [("elastic_root_cause", 3, 3, "1"), ("program_error", None, None, None)] == facts(log)


def test_a_table_that_does_not_end_swallows_nothing() -> None:
    log = "Failures:\n" + "step\n" * 5000 + "CUDA error: device-side assert triggered\n"
    assert [("cuda_device_assert", None, None, None)] == facts(log)


def test_a_row_outside_of_a_table_is_a_failure_of_nobody_known() -> None:
    assert [("elastic_worker_failed", None, None, "-9")] == facts("  exitcode  : -9 (pid: 14750)\n")
    broken = "Failures:\n[0]:\n  rank      : ? (local_rank: ?)\n  exitcode  : -9 (pid: 14750)\n"
    assert [("elastic_worker_failed", None, None, "-9")] == facts(broken)
