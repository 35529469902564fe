"""The log: what others wrote cannot forge a line, a pair of one, or move a terminal's cursor."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.logs import JsonFormatter, LogfmtFormatter, one_line

FORGED = "job\ntime=2026-01-01T00:00:00.000Z level=error logger=x all is lost"


def formatted(message, *args, formatter=None, error=None):
    info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("peerwatch", logging.INFO, __file__, 1, message, args, info)
    return (formatter or LogfmtFormatter()).format(record)


def after_head(line):
    return line.split("logger=peerwatch ", 1)[1]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("job-1", "job-1"),
        ("", ""),
        ("a b", '"a b"'),
        ("a level=error", '"a level=error"'),
        ('say "x"=1', '"say \\"x\\"=1"'),
        (FORGED, '"job\\ntime=2026-01-01T00:00:00.000Z level=error logger=x all is lost"'),
        ("\x1b[2J\x1b]0;x\x07", "\\x1b[2J\\x1b]0;x\\x07"),
        ("a\r\x85b", '"a\\r\\x85b"'),
        ("\u202egnp\u2028", '"\\u202egnp\\u2028"'),
        (OSError("a b"), '"a b"'),
        (Path("/a b"), '"/a b"'),
        (3, "3"),
    ],
)
def test_value_is_one_value_of_one_line(value, written):
    assert f"job_found job_id={written} nodes=2" == after_head(
        formatted("job_found job_id=%s nodes=%d", value, 2)
    )


def test_quoted_representation_is_left_as_it_is():
    assert "failed detail='a \\x1b b' error=[1, 2]" == after_head(
        formatted("failed detail=%r error=%s", "a \x1b b", [1, 2])
    )


def test_sentence_of_the_program_is_not_quoted():
    assert "left_out no model for x" == after_head(formatted("left_out %s", "no model for x"))


@given(st.text(max_size=50), st.text(max_size=50))
def test_any_text_stays_in_its_line_and_its_value(first, second):
    line = formatted("event a=%s b=%s", first, second)
    assert 1 == len(line.splitlines())
    assert line.isprintable() or not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in line)


def test_message_that_holds_what_was_sent_is_one_line_too():
    assert 1 == len(formatted(f"answered {FORGED}").splitlines())


def test_long_values_are_cut():
    line = formatted("job_found job_id=%s", 1_000_000 * "x")
    assert len(line) < 1200
    assert "1000000 bytes" in line
    assert len(formatted(1_000_000 * "x")) < 10_000


def test_traceback_is_indented_so_that_no_line_of_it_is_one_of_the_log():
    try:
        raise ValueError(FORGED + "\x1b[2J")
    except ValueError as error:
        first, *others = formatted("failed", error=error).split("\n")
    assert first.startswith("time=")
    assert others
    assert all(line.startswith("  ") for line in others)
    assert not any("\x1b" in line for line in others)


def test_json_is_one_object_in_one_line():
    line = formatted("job_found job_id=%s", FORGED, formatter=JsonFormatter())
    (entry,) = map(json.loads, line.splitlines())
    assert f'job_found job_id="{FORGED}"' == entry["message"]
    assert "info" == entry["level"]


def test_one_line_leaves_other_languages_alone():
    assert "größe 温度 ✓ 💥" == one_line("größe 温度 ✓ 💥")


def test_half_a_character_is_written_as_its_escape():
    # Of JSON that a program cut within a character, and of a path whose bytes are not UTF-8.
    assert r"a\ud83db\udcff" == one_line("a\ud83db\udcff")


def test_record_is_left_as_it_was_for_other_handlers():
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "a=%s", ("b c",), None)
    LogfmtFormatter().format(record)
    assert ("a=%s", ("b c",)) == (record.msg, record.args)
    assert sys.exc_info() == (None, None, None)
