"""What is remembered of earlier attempts, and how it is kept."""

import json

import pytest

from peerwatch_responder.retry.adviser import Adviser
from peerwatch_responder.retry.history.recurrence import recurrence
from peerwatch_responder.retry.history.row import HistoryRow, parse_row
from peerwatch_responder.retry.history.store import History, HistoryError
from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.retry.reading.log_text import LogText
from retry_cases import KNOWLEDGE, traceback

OWN = traceback("RuntimeError: of its own")


def row(attempt, step=None, root="r", job="j", advice="retry", kind="advice"):
    reason = "correction" if kind == "correction" else "unknown"
    return HistoryRow(kind, 1.0, "id", job, attempt, root, advice, reason, step)


# Earlier attempts, the step that this one came to, and how often in a row none came further.
STUCK = [
    ([], None, 0),
    ([row("1")], None, 1),
    ([row("1"), row("2")], None, 2),
    ([row("1", 100), row("2", 100)], 100, 2),
    ([row("1", 100), row("2", 100)], 90, 2),
    ([row("1", 100), row("2", 100)], 101, 0),
    ([row("1", 50), row("2", 100)], 100, 1),
    ([row("1", 100), row("2", None)], None, 2),
    ([row("1"), row("2", root="other"), row("3")], None, 1),
    ([row("1"), row("2", root="other")], None, 0),
    ([row("1", job="other")], None, 0),
    # One that was assessed twice; this attempt itself, and what came after it.
    ([row("1"), row("1")], None, 1),
    ([row("1"), row("now"), row("2")], None, 1),
]


@pytest.mark.parametrize(("rows", "step", "count"), STUCK)
def test_only_a_step_that_was_not_reached_before_is_progress(rows, step, count):
    assert recurrence(rows, "j", "now", "r", step).stuck == count


def test_a_correction_counts_for_the_root_whatever_the_job():
    rows = [row("1", job="other", advice="retry", kind="correction")]
    assert recurrence(rows, "j", "now", "r", None).correction == "retry"
    assert recurrence(rows, "j", "now", "other root", None).correction is None


def advise(path, attempt, text=OWN, job="j"):
    adviser = Adviser(KNOWLEDGE, History(path), clock=lambda: 5.0)
    return adviser.advise([LogText("a.log", text.encode())], JobFacts(job=job, attempt=attempt))


def test_the_third_attempt_without_progress_is_stopped(tmp_path):
    path = tmp_path / "history.jsonl"
    kinds = [advise(path, str(number)).kind for number in range(3)]
    assert kinds == ["retry", "retry", "do_not_retry"]
    # The same attempt asked about again is no recurrence.
    assert advise(path, "1").kind == "retry"


def test_progress_begins_the_count_anew(tmp_path):
    path = tmp_path / "history.jsonl"
    for number in range(1, 6):
        steps = "".join(f"step {number * 100 + k}\n" for k in range(4))
        assert advise(path, str(number), steps + OWN).kind == "retry"


def test_a_correction_is_heeded_and_keeps_the_lines_for_learning(tmp_path):
    path = tmp_path / "history.jsonl"
    adviser = Adviser(KNOWLEDGE, History(path), clock=lambda: 5.0)
    logs = [LogText("a.log", ("token=hunter2abc\n" + OWN).encode())]
    found = adviser.correct(logs, JobFacts(job="j"), "do_not_retry", "a typo")
    assert (found.kind, found.reason) == ("do_not_retry", "correction")
    (corrected,) = [each for each in History(path).rows() if each.kind == "correction"]
    assert (corrected.advice, corrected.note) == ("do_not_retry", "a typo")
    assert "of its own" in corrected.text
    assert "hunter2" not in corrected.text
    assert advise(path, "9", job="another").kind == "do_not_retry"


DAMAGED = [
    b"",
    b"nonsense\n",
    b'{"kind": "advice"}\n',
    b'[1, 2]\n',
    b'{"kind":"advice","time":true,"id":"","job":"","attempt":"","fingerprint":"","advice":"retry","reason":"exit"}\n',
    b'{"kind":"advice","time":1,"id":"","job":"","attempt":"","fingerprint":"","advice":"jump","reason":"exit"}\n',
    b"\xff\xfe\n",
]  # fmt: skip


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_left_out_and_told(tmp_path, line):
    assert parse_row(line) is None
    path = tmp_path / "history.jsonl"
    advise(path, "1")
    with path.open("ab") as file:
        file.write(line)
    found = advise(path, "2")
    assert len(found.before) == 1
    assert any("damaged" in note for note in found.notes) == bool(line)


def test_a_row_that_was_not_written_to_its_end_takes_no_other_with_it(tmp_path):
    path = tmp_path / "history.jsonl"
    advise(path, "1")
    with path.open("ab") as file:
        file.write(b'{"kind": "advi')
    advise(path, "2")
    assert [each.attempt for each in History(path).rows()] == ["1", "2"]


def test_names_of_later_versions_are_left_out():
    line = row("1").line()
    later = json.dumps({**json.loads(line), "colour": "blue"}).encode()
    assert parse_row(later) == row("1")


def test_a_history_that_cannot_be_written_costs_no_advice(tmp_path):
    found = advise(tmp_path / "missing" / "history.jsonl", "1")
    assert found.kind == "retry"
    assert any("written down" in note for note in found.notes)
    with pytest.raises(HistoryError, match="--history"):
        History(tmp_path / "missing" / "h").append(row("1"))
