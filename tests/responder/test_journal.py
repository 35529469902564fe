"""Nothing that was written down is lost, and nothing damaged is believed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from peerwatch_responder.audit.journal import MAX_BYTES, Journal, JournalError
from peerwatch_responder.audit.replay import after, state_of
from peerwatch_responder.audit.row import KINDS
from peerwatch_responder.policy.state import DoneStep, State

PLANNED = {
    "key": "k1",
    "cluster": "",
    "node": "n1",
    "job_id": "j1",
    "actions": ["drain"],
    "fingerprint": "f" * 16,
    "starts_at": 100.0,
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def rows_of(path):
    with Journal(path) as journal:
        return journal.rows


def test_rows_are_there_again(path):
    with Journal(path, clock=lambda: 12.5) as journal:
        assert journal.rows == ()
        written = [
            journal.append("planned", **PLANNED),
            journal.append("paused", reason='a "quoted"\nreason é'),
        ]
    assert rows_of(path) == tuple(written)
    assert path.stat().st_mode & 0o777 == 0o600
    with Journal(path) as journal:
        assert journal.append("resumed").number == 3
    assert [each.kind for each in rows_of(path)] == ["planned", "paused", "resumed"]


def test_a_row_is_on_the_disk_before_the_program_goes_on(path):
    program = (
        "import os, sys, pathlib\n"
        "from peerwatch_responder.audit.journal import Journal\n"
        "journal = Journal(pathlib.Path(sys.argv[1]))\n"
        "for number in range(5):\n"
        "    journal.append('paused', reason=str(number))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, path], check=False, timeout=120)
    assert ended.returncode == -9
    assert [each.data["reason"] for each in rows_of(path)] == ["0", "1", "2", "3", "4"]


def test_a_row_is_synced(path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    with Journal(path) as journal:
        synced.clear()
        journal.append("resumed")
    assert synced == [path.stat().st_size]


def test_a_row_that_was_cut_anywhere_is_dropped_and_only_that(path):
    with Journal(path) as journal:
        journal.append("paused", reason="first")
        whole = path.stat().st_size
        journal.append("paused", reason="second")
    content = path.read_bytes()
    for end in range(whole, len(content)):
        path.write_bytes(content[:end])
        with Journal(path) as journal:
            assert [each.data["reason"] for each in journal.rows] == ["first"]
            journal.append("resumed")
        assert [each.kind for each in rows_of(path)] == ["paused", "resumed"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [lines[0].replace(b"first", b"forst"), *lines[1:]], "line 1: .*checksum"),
        (lambda lines: lines[1:], "line 1: has number 2, not 1"),
        (lambda lines: [lines[0], *lines[2:]], "line 2: has number 3, not 2"),
        (lambda lines: [lines[0], lines[0], *lines[1:]], "line 2: has number 1, not 2"),
        (lambda lines: [lines[0], b"\n", *lines[1:]], "line 2: is no JSON"),
        (lambda lines: [lines[0], b"\0" * 50 + b"\n", *lines[1:]], "line 2: is no JSON"),
        (lambda lines: [lines[0], b"[]\n", *lines[1:]], "line 2: is no JSON object"),
        (lambda lines: [*lines[:2], b"[" * 99_999 + b"\n"], "line 3: is no JSON"),
    ],
    ids=range(8),
)
def test_any_other_damage_stops_it(path, damage, message):
    with Journal(path) as journal:
        for reason in ("first", "second", "third"):
            journal.append("paused", reason=reason)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    before = path.read_bytes()
    with pytest.raises(JournalError, match=message) as raised:
        Journal(path)
    assert "move the file away" in str(raised.value)
    assert path.read_bytes() == before


def test_a_kind_of_a_newer_version_stops_it(path, monkeypatch):
    with Journal(path) as journal:
        journal.append("resumed")
    monkeypatch.setattr("peerwatch_responder.audit.row.KINDS", ("paused",))
    with pytest.raises(JournalError, match="does not know"):
        Journal(path)


def test_one_journal_has_one_responder(path):
    with Journal(path), pytest.raises(JournalError, match="another responder"):
        Journal(path)
    rows_of(path)


def test_what_cannot_be_used_is_told(tmp_path, path):
    with pytest.raises(JournalError, match="cannot be opened: No such file or directory"):
        Journal(tmp_path / "none" / "journal.jsonl")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(tmp_path / "link")
    path.touch()
    os.truncate(path, MAX_BYTES + 1)
    with pytest.raises(JournalError, match="when nothing is under way"):
        Journal(path)


def test_after_a_row_that_failed_nothing_more_is_written(path, monkeypatch):
    journal = Journal(path)

    def full(_file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match="No space left"):
        journal.append("resumed")
    monkeypatch.undo()
    with pytest.raises(JournalError, match="start anew"):
        journal.append("resumed")
    journal.close()


def test_what_the_rows_add_up_to(path):
    with Journal(path, clock=iter(range(1000, 2000)).__next__) as journal:
        journal.append("wanted", key="k1", cluster="", node="n1")
        journal.append("planned", **PLANNED)
        step = {"key": "k1", "action": "drain", "step": "cordon", "before": {"mark": None}}
        journal.append("step", **step, phase="begins", text="")
        journal.append("step", **step, phase="done", text="200")
        journal.append("ended", key="k1", status="done", text="All steps are done.")
    state = state_of(rows_of(path))
    (response,) = state.responses.values()
    assert (response.status, response.planned_at, response.ended_at) == ("done", 1001, 1004)
    assert response.text == "All steps are done."
    assert response.steps == (DoneStep("drain", "cordon", True, {"mark": None}),)
    assert response.actions == ("drain",)
    assert response.is_out
    assert [(each.key, each.at) for each in state.wants] == [("k1", 1000)]


def test_alerts_are_kept_as_last_heard_of_for_two_days(path):
    alert = {"labels": {"node": "n1"}, "annotations": {}, "ends_at": None}
    day = 86_400.0
    with Journal(path, clock=iter([1.0, 2.0, 2.5 * day]).__next__) as journal:
        rows = [
            journal.append("received", fingerprint="a", starts_at=1.0, **alert),
            journal.append("received", fingerprint="a", starts_at=1.0, **{**alert, "ends_at": 2.0}),
        ]
        (kept,) = state_of(rows).alerts.values()
        assert (kept.ends_at, kept.node) == (2.0, "n1")
        rows.append(journal.append("received", fingerprint="b", starts_at=2 * day, **alert))
    assert list(state_of(rows).alerts) == ["b"]


def test_a_node_is_back_when_somebody_put_it_back(path):
    with Journal(path, clock=iter(range(1000, 2000)).__next__) as journal:
        journal.append("planned", **PLANNED)
        journal.append("planned", **{**PLANNED, "key": "k2", "node": "n2"})
        journal.append("refused", **{**PLANNED, "key": "k3", "node": "n3"})
        journal.append("returned", key="k1")
        journal.append("released", cluster="", node="n2")
    state = state_of(rows_of(path))
    assert [each.is_out for each in state.responses.values()] == [False, False, False]
    assert state.responses["k2"].returned_at == 1004
    assert state.responses["k3"].status == "refused"
    assert state.released == {("", "n2"): 1004}


def test_pause_breaker_and_their_end(path):
    with Journal(path, clock=lambda: 5.0) as journal:
        rows = [journal.append("paused", reason="upgrade"), journal.append("tripped", why="5")]
        assert (state_of(rows).paused, state_of(rows).tripped_at) == ("upgrade", 5.0)
        rows.append(journal.append("resumed"))
    assert (state_of(rows).paused, state_of(rows).tripped_at) == (None, None)


def test_wants_are_kept_for_a_day(path):
    times = iter([0.0, 86_399.0, 86_401.0])
    with Journal(path, clock=times.__next__) as journal:
        rows = [journal.append("wanted", key=f"k{n}", cluster="", node="n") for n in range(3)]
    assert [each.key for each in state_of(rows).wants] == ["k1", "k2"]


def test_the_documentation_has_every_kind_of_row():
    document = (Path(__file__).parents[2] / "docs/responder.md").read_text()
    told = document.split("| kind | says | fields |\n")[1].split("\n\n")[0].splitlines()[1:]
    kinds = [name for line in told for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(kinds) == sorted(KINDS)


def test_rows_read_at_once_say_what_they_say_one_by_one(path):
    day = 86_400.0
    times = iter([0.0, 1.0, day, 2.0, 3.0, 3 * day, 4.0, 5.0, 6.0, 7.0])
    alert = {"labels": {}, "annotations": {}, "ends_at": None}
    want = {"cluster": "", "node": "n1"}
    with Journal(path, clock=lambda: next(times)) as journal:
        journal.append("wanted", key="k1", **want)
        journal.append("planned", **PLANNED)
        # The clock is set back and forth.
        journal.append("wanted", key="k2", **want)
        journal.append("wanted", key="k3", **want)
        journal.append("received", fingerprint="a", starts_at=1.0, **alert)
        journal.append("received", fingerprint="b", starts_at=2 * day, **alert)
        journal.append("received", fingerprint="c", starts_at=5.0, **alert)
        journal.append("released", cluster="", node="n1")
        journal.append("planned", **{**PLANNED, "key": "k4"})
        journal.append("released", cluster="", node="n1")
    known = [State()]
    for row in rows_of(path):
        known.append(after(known[-1], row))

    state = state_of(rows_of(path))

    assert known[-1] == state
    assert known[0] == State()
    assert ["k2", "k3"] == [each.key for each in state.wants]
    assert ["b", "c"] == list(state.alerts)
    assert [5.0, 7.0] == [each.returned_at for each in state.responses.values()]
