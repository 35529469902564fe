"""Records of checks: what is written is read back, and nothing else is taken for one."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.check_results.metrics import families
from peerwatch_common.check_results.record import (
    STATUSES,
    Record,
    RecordError,
    exit_status,
    parse_record,
)
from peerwatch_common.metrics.exposition import Renderer

RECORD = Record(
    check="memory_copy",
    scope="host",
    device="numa0",
    status="fail",
    severity="low",
    message="Copying memory: 4.1 GB/s.",
    started=1_700_000_000.5,
    duration_seconds=1.25,
    node="n1",
    value=4.1e9,
    unit="bytes/s",
    expected=8.2e9,
    value_ratio=0.5,
    attempts=2,
    mode="epilog",
    job_id="17",
    versions={"torch": "2.13", "gpu": "H100", "cpu": "EPYC"},
)


def test_a_record_is_one_line_that_is_read_back() -> None:
    line = replace(RECORD, message='two\nlines, "quoted", é').to_json()

    assert 1 == len(line.splitlines())
    assert replace(RECORD, message='two\nlines, "quoted", é') == parse_record(line)


def test_keys_of_later_versions_are_left_out() -> None:
    assert RECORD == parse_record(json.dumps(asdict(RECORD) | {"new": 1}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "ok"}, "status is 'ok'"),
        ({"scope": "cluster"}, "scope is 'cluster'"),
        ({"severity": None}, "severity is None"),
        ({"check": ""}, "no name"),
        ({"check": "x" * 101}, "check is no text"),
        ({"message": "x" * 1001}, "message is no text"),
        ({"device": 3}, "device is no text"),
        ({"started": "now"}, "started is 'now'"),
        ({"duration_seconds": -1}, "duration_seconds is -1"),
        ({"value": float("nan")}, "value is nan"),
        ({"value_ratio": True}, "value_ratio is True"),
        ({"attempts": "1"}, "attempts are '1'"),
        ({"versions": ["torch"]}, "versions are no object"),
        ({"versions": {"torch": 2}}, "version of 'torch'"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(next(iter(value))),
)
def test_what_cannot_be_published_is_no_record(change: dict[str, object], said: str) -> None:
    with pytest.raises(RecordError, match=said):
        parse_record(json.dumps(asdict(RECORD) | change))


@pytest.mark.parametrize("line", ["", "{", "[]", "3", "{}", "[" * 100_000, '{"check": "x"}'])
def test_other_lines_are_no_records(line: str) -> None:
    with pytest.raises(RecordError):
        parse_record(line)


@given(st.text(max_size=200))
def test_no_text_does_harm(line: str) -> None:
    with pytest.raises(RecordError):
        parse_record(line)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["pass", "pass"], 0),
        (["pass", "warn", "error"], 1),
        (["fail", "warn", "error", "skipped"], 2),
        (["pass", "error"], 3),
        (["pass", "skipped"], 3),
        ([], 3),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_the_exit_status(found: list[str], expected: int) -> None:
    assert expected == exit_status(replace(RECORD, status=each) for each in found)  # type: ignore[arg-type]


def test_values_of_the_status() -> None:
    values = {each: replace(RECORD, status=each).status_value for each in STATUSES}
    assert {"pass": 0, "warn": 1, "fail": 2, "error": 3, "skipped": 4} == values


def test_the_families_of_records() -> None:
    other = replace(
        RECORD, check="mounts", device="", severity="high", value=None, value_ratio=None
    )
    text = Renderer().render(families([RECORD, other]), openmetrics=False).decode()

    samples = [line for line in text.splitlines() if not line.startswith("#")]
    first = 'check="memory_copy",device="numa0",scope="host",severity="low"'
    second = 'check="mounts",device="",scope="host",severity="high"'
    assert [
        f"peerwatch_check_status{{{first}}} 2",
        f"peerwatch_check_status{{{second}}} 2",
        f"peerwatch_check_value_ratio{{{first}}} 0.5",
        'peerwatch_check_value{check="memory_copy",cpu_model="EPYC",device="numa0",gpu_model="H100",'
        'scope="host",severity="low",unit="bytes/s"} 4100000000.0',
        f"peerwatch_check_duration_seconds{{{first}}} 1.25",
        f"peerwatch_check_duration_seconds{{{second}}} 1.25",
        f"peerwatch_check_last_run_timestamp_seconds{{{first}}} 1700000000.5",
        f"peerwatch_check_last_run_timestamp_seconds{{{second}}} 1700000000.5",
    ] == samples
