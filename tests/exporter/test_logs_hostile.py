"""Files that pose as logs: links in circles, too many, odd sizes; lines that pose as metrics."""

from __future__ import annotations

import os

import pytest

from log_cases import CUDA, GLOO, OWNER, TABLE, OpenGuard, Reading, rank_target
from peerwatch_common.signatures.matcher import LogMatcher
from peerwatch_exporter.catalog import family
from peerwatch_exporter.sources.logs.found import Claim, Unread
from peerwatch_exporter.sources.logs.providers.matching import MOST_PATHS, matching
from peerwatch_exporter.sources.logs.providers.paths import ConfiguredPaths
from peerwatch_exporter.sources.logs.tail import Position, Tail
from peerwatch_exporter.sources.logs.tally import RanksHere, Tally
from peerwatch_exporter.sources.logs.targets import Targets


def found(*patterns, most_files=100):
    """Return the paths that are read of some patterns, and why others are not."""
    targets = Targets((rank_target(),))
    everything = list(ConfiguredPaths(patterns, most_files).find(targets, OpenGuard()))
    paths = [each.path for each in everything if isinstance(each, Claim)]
    return paths, [each.reason for each in everything if isinstance(each, Unread)]


def test_links_that_lead_round_in_circles_are_not_followed(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.log").write_bytes(b"")
    for name in ("one", "two", "three"):
        (tmp_path / "a" / "b" / name).symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "self.log").symlink_to(tmp_path / "self.log")

    assert ([f"{tmp_path}/a/b/x.log"], ["unreadable"]) == found(f"{tmp_path}/**/*.log")


def test_recursive_patterns_find_what_a_shell_finds(tmp_path):
    for name in ("x.log", "a/x.log", "a/b/x.log", "a/.hidden/x.log", "a/b/y.out", "c/[1]/x.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")

    expected = {f"{tmp_path}/{name}" for name in ("x.log", "a/x.log", "a/b/x.log", "c/[1]/x.log")}
    assert expected == set(matching(f"{tmp_path}/**/x.log"))
    assert expected == set(matching(f"{tmp_path}/**/**/x.log"))
    assert {f"{tmp_path}/a/b/x.log"} == set(matching(f"{tmp_path}/a/**/b/*.log"))
    assert f"{tmp_path}/a/b/y.out" in set(matching(f"{tmp_path}/**"))


def test_of_too_many_files_the_newest_are_read(tmp_path):
    for number in range(30):
        path = tmp_path / f"{number:02}.out"
        path.write_bytes(b"")
        os.utime(path, (number, number))

    paths, reasons = found(f"{tmp_path}/*.out", most_files=2)
    assert [f"{tmp_path}/29.out", f"{tmp_path}/28.out"] == paths
    assert ["too_many"] * 28 == reasons


def test_a_pattern_that_matches_everything_has_an_end(tmp_path, monkeypatch):
    module = "peerwatch_exporter.sources.logs.providers.matching.glob.iglob"
    monkeypatch.setattr(module, lambda _: (f"/logs/{number}" for number in range(10**9)))

    assert MOST_PATHS == len(list(matching("/logs/*")))


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
def test_devices_are_not_read(tmp_path, name):
    (tmp_path / "x.log").symlink_to(name)
    assert ([], ["terminal"]) == found(f"{tmp_path}/*.log")


def test_a_file_with_a_size_that_it_does_not_have_is_read_to_its_end(tmp_path, monkeypatch):
    path = tmp_path / "x.log"
    path.write_bytes(CUDA)
    reading = Reading()
    reading.follow(path)
    # As an attribute of sysfs says 4096 and has a word.
    real = os.fstat

    def larger(descriptor):
        status = list(real(descriptor))
        status[6] += 4096
        return os.stat_result(status, {"st_mtime_ns": real(descriptor).st_mtime_ns})

    monkeypatch.setattr("peerwatch_exporter.sources.logs.tail.os.fstat", larger)
    assert len(reading.events(20)) == 1
    reading.follower.close()


def test_a_file_with_other_content_of_the_same_size_is_read_again(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(b"x" * (len(CUDA) - 1) + b"\n")
    reading = Reading()
    reading.follow(path)
    first = reading.events(1)
    path.write_bytes(CUDA)
    os.utime(path, (5, 5))
    assert [] == first
    assert len(reading.events(20)) == 1
    os.utime(path, (6, 6))
    assert [] == reading.events(20)
    reading.follower.close()


def test_a_file_whose_permission_was_lost_is_read_on(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(b"")
    reading = Reading()
    reading.follow(path)
    path.chmod(0)
    with path.open("ab") as file:
        file.write(GLOO)

    assert len(reading.events(20)) == 1
    reading.follower.close()


def test_a_file_that_cannot_be_read_any_more_is_given_up(tmp_path, monkeypatch):
    path = tmp_path / "x.log"
    path.write_bytes(CUDA)
    reading = Reading()
    reading.follow(path)

    def fail(*_):
        raise OSError(116, "Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr("peerwatch_exporter.sources.logs.tail.os.pread", fail)
        assert [] == reading.events(20)
    assert {} == reading.follower.files
    reading.follow(path)
    assert len(reading.events(20)) == 1
    reading.follower.close()


def test_an_empty_file_is_nothing_new(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(CUDA)
    status = path.stat()
    tail = Tail(str(path), (status.st_dev, status.st_ino), Position(0, b""))
    assert tail.read(1000, 1000).data == CUDA
    path.write_bytes(b"")
    cut = tail.read(1000, 1000)
    assert (b"", True, 0) == (cut.data, cut.restarted, cut.pending)
    assert tail.read(1000, 1000) is None
    tail.close()


@pytest.mark.parametrize(
    "text",
    [
        b'CUDA error: device-side assert triggered"} 1\\nfake_total{job="x"} 5',
        b"CUDA error: device-side assert triggered \x9b31m\x07\x08\x7f\xe2\x80\xa8\xe2\x80\xae",
        b"CUDA error: device-side assert triggered \x1b\x1b[2J\xff\xfe\x00 token=hunter2hunter2",
    ],
)
def test_a_line_that_poses_as_metrics_stays_one_label(text):
    tally = Tally(keeps_texts=True)
    for event in LogMatcher(TABLE).feed(text + b"\n"):
        tally.add(event, OWNER, RanksHere({}, ()), 1.0)
    (first,) = tally.firsts.values()
    metric = family("log_first_error_info")
    metric.add_metric(("job", "0", first.event_class, first.signature, first.text), 1)

    assert first.text.isprintable()
    assert "hunter2" not in first.text
    assert len(first.text) <= 200
    assert 1 == len(metric.rows)
