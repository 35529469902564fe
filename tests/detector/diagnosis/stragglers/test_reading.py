"""Tables are read alike whatever their format; a broken one is refused with what is wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from detector.diagnosis.stragglers.pipeline_job import NAMES, Job, write_table
from peerwatch_detector.diagnosis.stragglers import columns
from peerwatch_detector.diagnosis.stragglers.layout import arrange
from peerwatch_detector.diagnosis.stragglers.operations import Trace
from peerwatch_detector.diagnosis.stragglers.read import read_trace
from peerwatch_detector.errors import TraceError

ROWS = Job(2, 2, 2, 2).rows()


def same(left: Trace, right: Trace) -> bool:
    fields = ("step", "replica", "stage", "rank", "kind", "start", "duration", "sequence")
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in fields)


def test_csv_parquet_and_gzip_are_the_same(tmp_path: Path) -> None:
    table = write_table(tmp_path / "trace.csv", ROWS)
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    # Another order of columns, a mark of UTF-8, lines of Windows, a column that is not used.
    other = tmp_path / "other.table"
    text = "\r\n".join(
        ",".join([*(str(row[name]) for name in reversed(NAMES)), "x"]) for row in ROWS
    )
    other.write_text("\ufeff" + ",".join([*reversed(NAMES), "more"]) + "\r\n" + text)
    # The narrow types and the dictionary of the published traces.
    parquet = tmp_path / "trace"
    arrays = {name: pa.array([row[name] for row in ROWS]) for name in NAMES}
    arrays["optype"] = arrays["optype"].dictionary_encode()
    arrays["stage"] = arrays["stage"].cast(pa.int8())
    pq.write_table(pa.table(arrays), parquet)
    first = read_trace(table, None)
    assert len(ROWS) == len(first)
    assert all(same(first, read_trace(path, None)) for path in (packed, other, parquet))


@pytest.mark.parametrize("begin", ["\n", "\r\n \r\n", "\ufeff\n"], ids=repr)
def test_blank_lines_before_a_trace_are_passed_over(begin: str, tmp_path: Path) -> None:
    table = write_table(tmp_path / "trace.csv", ROWS)
    other = tmp_path / "other.csv"
    other.write_text(begin + table.read_text(), newline="")
    assert same(read_trace(table, None), read_trace(other, None))
    spans = tmp_path / "spans.json"
    span = {"rank": 0, "segment": "step", "start": 1, "duration": 2, "step": 3}
    spans.write_text(begin + json.dumps(span), newline="")
    assert 1 == len(read_trace(spans, None))


def test_what_applies_to_some_rows_may_be_missing_in_the_others(tmp_path: Path) -> None:
    """As where a table of parquet with missing values is written as CSV."""
    arrays: dict[str, Any] = {name: pa.array([row[name] for row in ROWS]) for name in NAMES}
    arrays["mc"] = pa.array([0, None] * (len(ROWS) // 2), pa.int8())
    table = pa.table(arrays)
    pq.write_table(table, tmp_path / "trace")
    pa_csv.write_csv(table, tmp_path / "trace.csv")
    trace = read_trace(tmp_path / "trace.csv", None)
    assert same(trace, read_trace(tmp_path / "trace", None))
    assert [0, -1] == trace.chunk[:2].tolist()


def test_steps_are_chosen_and_bytes_counted(tmp_path: Path) -> None:
    table = write_table(tmp_path / "trace.csv", ROWS)
    told: list[int] = []
    trace = read_trace(table, (101, 200), told.append)
    assert {101} == set(trace.step.tolist())
    assert table.stat().st_size == sum(told)
    with pytest.raises(TraceError, match=r"none of its .* operations is in the steps 7 to 9"):
        read_trace(table, (7, 9))


def test_an_incomplete_step_is_left_out(tmp_path: Path) -> None:
    rows = Job(2, 2, 2, 3).rows()
    lost = next(row for row in rows if row["step"] == 101 and row["optype"] == "forward-compute")
    rows.remove(lost)
    rows.append({**rows[0], "optype": "separate-grads-all-reduce"})
    layout = arrange(read_trace(write_table(tmp_path / "trace.csv", rows), None))
    assert (100, 102) == layout.steps
    assert (1, 1) == (layout.dropped_steps, layout.dropped_operations)


def changed(name: str, value: object) -> Callable[[], list[dict[str, object]]]:
    return lambda: [*ROWS[:6], {**ROWS[6], name: value}, *ROWS[7:]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (changed("duration", "nan"), "row 7: duration is nan; it must be a number of seconds"),
        (changed("duration", "-0.5"), "row 7: duration is -0.5; it must be 0 s or more"),
        (changed("start_ts", "inf"), "row 7: start_ts is inf; it must be a number of seconds"),
        (changed("start_ts", ""), "row 7: start_ts is ''; it must be a number"),
        (changed("rank", "1.5"), "row 7: rank is 1.5; it must be a whole number from 0 to 1048575"),
        (changed("stage", "-1"), "row 7: stage is -1.0; it must be a whole number"),
        (changed("dp_rank", "x\x1b[2J"), r"row 7: dp_rank is 'x\x1b[2J'; it must be a number"),
        (changed("optype", "forward"), "row 7: optype is forward; it must be among backward-comp"),
        (changed("seq_id", "9" * 70), "row 7: seq_id is 1e+70; it must be a whole number"),
        (changed("step", "1e300"), "row 7: step is 1e+300; it must be a whole number"),
        (lambda: [*ROWS, ROWS[9]], "is in step 100 twice (1 such operations)"),
        (lambda: [*ROWS, {**ROWS[0], "rank": 77}], "stage 0 is more than one rank; keep"),
        (lambda: [*ROWS, {**ROWS[0], "stage": 1}], "is on more than one (dp_rank, stage)"),
        (
            lambda: [
                row
                for number, row in enumerate(ROWS)
                if not (row["optype"] == "optimizer" and row["rank"] == number % 2)
            ],
            "No step is complete: optimizer 0 of stage 0, dp_rank",
        ),
    ],
)
def test_a_broken_table_is_refused(
    rows: Callable[[], list[dict[str, object]]], message: str, tmp_path: Path
) -> None:
    path = write_table(tmp_path / "trace.csv", rows())
    with pytest.raises(TraceError) as caught:
        arrange(read_trace(path, None))
    assert message in str(caught.value)


HEADER = ",".join(NAMES).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"1,2\n", "the columns dp_rank, stage"),
        (HEADER, "has no rows"),
        (
            b"a,b\n1,2\n",
            "the columns dp_rank, stage, rank, step, optype, start_ts, duration, seq_id",
        ),
        (HEADER + b"\n1,2,3\n", "row 1: has 3 fields where the first line names 8;"),
        (b"\x89PNG\r\n\x1a\n", "is no text in UTF-8, and no parquet file"),
        (b"\x00" * 100, "the columns dp_rank"),
        (b"PAR1 and no more", "cannot be read as parquet"),
        (gzip.compress(HEADER, mtime=0)[:-9], "is no complete gzip file"),
        (b"\x1f\x8b and no more", "cannot be read"),
    ],
)
def test_what_is_no_trace_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path, None)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_parquet_lacking_columns_or_values_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    arrays: dict[str, Any] = {name: [row[name] for row in ROWS] for name in NAMES}
    arrays["duration"][3] = None
    pq.write_table(pa.table(arrays), path)
    with pytest.raises(TraceError, match="row 4: duration is nan"):
        read_trace(path, None)
    del arrays["duration"]
    pq.write_table(pa.table(arrays), path)
    with pytest.raises(TraceError, match="the columns duration are missing; it has dp_rank"):
        read_trace(path, None)


def test_more_than_fits_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MOST_OPERATIONS", len(ROWS) - 1)
    path = write_table(tmp_path / "trace.csv", ROWS)
    with pytest.raises(TraceError, match="choose some steps with --steps FIRST-LAST"):
        read_trace(path, None)
    assert len(ROWS) / 2 == len(read_trace(path, (100, 100)))
