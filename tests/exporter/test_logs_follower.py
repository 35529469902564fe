"""Files that grow, are cut, renamed, deleted, flooded and full of garbage."""

from __future__ import annotations

import os

import pytest

from log_cases import GLOO, OWNER, Reading, claim_of
from peerwatch_exporter.sources.logs.tail import NotRegularError, Position, Tail, end_of

NOTHING = b"step 1 loss 2.5\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "rank-0.log"
    path.write_bytes(b"")
    return path


@pytest.fixture
def reading():
    made = Reading()
    yield made
    made.follower.close()


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def test_what_is_appended_is_read_once(reading, log):
    append(log, NOTHING)
    assert reading.follow(log) is None
    assert reading.events() == []
    append(log, GLOO)
    assert len(reading.events(20)) == 1
    assert reading.events(20) == []


def test_half_a_line_waits_for_its_end(reading, log):
    reading.follow(log)
    append(log, GLOO[:40])
    first = reading.events(1)
    append(log, GLOO[40:])
    assert [] == first
    assert len(reading.events(10)) == 1


def test_a_last_line_without_an_end_counts_when_nobody_goes_on_writing(reading, log):
    append(log, GLOO.rstrip(b"\n"))
    reading.follow(log)
    assert len(reading.events(20)) == 1


def test_a_file_that_was_cut_is_read_from_its_beginning(reading, log):
    append(log, NOTHING * 100)
    reading.follow(log)
    reading.events()
    log.write_bytes(GLOO)
    assert len(reading.events(20)) == 1


def test_a_file_that_was_cut_and_has_grown_beyond_is_read_from_its_beginning(reading, log):
    append(log, NOTHING)
    reading.follow(log)
    reading.events()
    log.write_bytes(GLOO + NOTHING * 10)
    assert len(reading.events(20)) == 1


def test_holes_and_binary_garbage_hide_nothing(reading, log):
    append(log, bytes(5000) + os.urandom(50_000).replace(b"\n", b"") + b"\n" + GLOO)
    reading.follow(log)
    assert len(reading.events(20)) == 1


def test_a_line_of_a_megabyte_is_passed_over(reading, log):
    append(log, b"x" * 1_000_000 + b"\n" + GLOO)
    reading.follow(log)
    assert len(reading.events(20)) == 1


def test_a_renamed_file_is_read_to_its_end_and_the_new_one_too(reading, log):
    reading.follow(log)
    reading.events()
    log.rename(log.with_suffix(".1"))
    append(log.with_suffix(".1"), GLOO)
    log.write_bytes(GLOO)
    reading.follow(log)
    assert len(reading.events(20)) == 2
    assert len(reading.follower.files) == 2


def test_a_file_that_nobody_claims_is_closed_after_a_while(reading, log):
    reading.follow(log)
    log.unlink()
    reading.events(200)
    assert {} == reading.follower.files


def test_a_flood_is_read_at_the_rate_allowed_and_the_rest_is_counted(log):
    reading = Reading(max_bytes_per_second=65536)
    size = 8_000_000
    append(log, NOTHING * (size // len(NOTHING)) + GLOO)
    reading.follow(log)
    found = reading.events(30)
    amounts = reading.follower.amounts
    reading.follower.close()
    assert len(found) == 1
    assert amounts.read["job"] <= 31 * 65536
    assert amounts.read["job"] + amounts.skipped["job"] == log.stat().st_size


def test_files_share_what_may_be_read(tmp_path):
    reading = Reading(max_bytes_per_second=65536)
    paths = [tmp_path / f"rank-{rank}.log" for rank in range(4)]
    for path in paths:
        append(path, NOTHING * 2000 + GLOO)
        reading.follow(path)
    found = reading.events(10)
    reading.follower.close()
    assert len(found) == 4


def test_more_files_than_allowed_are_refused(tmp_path):
    reading = Reading(max_files=2)
    reasons = []
    for rank in range(3):
        path = tmp_path / f"rank-{rank}.log"
        path.write_bytes(b"")
        reasons.append(reading.follow(path))
    reading.follower.close()
    assert [None, None, "too_many"] == reasons


def test_of_an_old_file_only_the_end_is_read_at_the_time_of_its_last_change(reading, log):
    append(log, GLOO + NOTHING * 10_000 + GLOO)
    os.utime(log, (1_000_000, 1_000_000))
    reading.follow(log, end_of(log.stat().st_size, 65536), old=True)
    reading.clock.now += 1
    found = list(reading.follower.tick())
    assert [1_000_000.0] == [time for _, _, time in found]


def test_another_process_goes_on_where_one_ended(reading, log):
    append(log, GLOO)
    reading.follow(log)
    reading.events()
    (position,) = [each.tail.position for each in reading.follower.files.values()]
    append(log, GLOO)
    other = Reading()
    other.follow(log, position)
    found = other.events()
    other.follower.close()
    assert len(found) == 1


def test_nothing_of_a_group_that_hung_is_touched(reading, log):
    reading.follow(log)
    append(log, GLOO)
    reading.guard.hung.add("group")
    assert reading.events() == []
    reading.guard.hung.clear()
    assert len(reading.events(20)) == 1


def test_a_file_that_may_not_be_read_says_so(reading, log, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    claim = claim_of(log)
    monkeypatch.setattr("peerwatch_exporter.sources.logs.tail.os.open", refuse)
    reason = reading.follower.follow(claim, OWNER, Position(0, b""), old=False)
    assert reason == "permission_denied"


def test_what_became_a_pipe_is_not_opened_for_reading(tmp_path, log):
    key = (log.stat().st_dev, log.stat().st_ino)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotRegularError):
        Tail(str(pipe), key, Position(0, b""))
