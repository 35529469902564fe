"""Typed reads below /sys, good and bad."""

from __future__ import annotations

import errno
import gc
import os
import shutil
from pathlib import Path

import pytest

from hardware_cases import FakeClock
from open_files import open_below
from peerwatch_exporter.sources.files.open_files import OpenFiles
from peerwatch_exporter.sources.host.sysfs import Sysfs, UnreadableValues, pci_address


def refuse_reads(monkeypatch, name, code):
    """Let reads of files of this name fail; return the list of refused descriptors."""
    genuine = os.read
    refused = []

    def read(descriptor, size):
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == name:
            refused.append(descriptor)
            raise OSError(code, os.strerror(code))
        return genuine(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    return refused


def refuse_preads(monkeypatch, file, code):
    """Let reads of a file that is open already fail; return where each attempt is noted."""
    genuine, attempts = os.pread, []

    def pread(descriptor, *arguments):
        if os.path.samestat(os.fstat(descriptor), file.stat()):
            attempts.append(descriptor)
            raise OSError(code, os.strerror(code))
        return genuine(descriptor, *arguments)

    monkeypatch.setattr(os, "pread", pread)
    return attempts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:18:00.0", "0000:18:00.0"),
        ("PCI:0000:3B:00", "0000:3b:00.0"),
        ("0000:06:00", "0000:06:00.0"),
        ("0001:C1:00.0", "0001:c1:00.0"),
        ("18:00.1", "0000:18:00.1"),
        ("mlx5_0", None),
        ("", None),
    ],
)
def test_pci_address_is_written_as_sysfs_does(text, expected):
    assert expected == pci_address(text)


@pytest.mark.parametrize("target", ["../../../0000:18:00.0", "../.."])
def test_link_is_named_after_what_it_points_at(tmp_path, target):
    device = tmp_path / "0000:18:00.0/infiniband/mlx5_0"
    device.mkdir(parents=True)
    (device / "device").symlink_to(target)
    sysfs = Sysfs(tmp_path)

    assert "0000:18:00.0" == sysfs.link_name("0000:18:00.0/infiniband/mlx5_0/device")


@pytest.mark.parametrize(
    ("method", "text", "expected"),
    [
        ("integer", "18446744073709551615\n", 2**64 - 1),
        ("state", "4: ACTIVE\n", 4),
        ("state", "5: LinkUp\n", 5),
        ("bytes_per_second", "400 Gb/sec (4X NDR)\n", 50e9),
        ("bytes_per_second", "2.5 Gb/sec (1X SDR)\n", 0.3125e9),
        ("transfers_per_second", "16.0 GT/s PCIe\n", 16e9),
        ("transfers_per_second", "2.5 GT/s\n", 2.5e9),
        ("text", " MT_0000000838 \n", "MT_0000000838"),
        ("counters_by_name", "RxErr 0\nBad TLP 3\n", {"RxErr": 0, "Bad TLP": 3}),
    ],
)
def test_form_is_understood(tmp_path, method, text, expected):
    (tmp_path / "value").write_text(text)

    assert expected == getattr(Sysfs(tmp_path), method)("value")


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("integer", "many\n"),
        ("integer", "1_000\n"),
        ("integer", "9" * 21),
        ("integer", "-1\n"),
        ("integer", ""),
        ("state", "ACTIVE\n"),
        ("bytes_per_second", "fast\n"),
        ("bytes_per_second", "1.2.3 Gb/sec (4X NDR)\n"),
        ("transfers_per_second", "GT/s\n"),
    ],
)
def test_garbage_is_skipped_and_counted(tmp_path, method, text):
    (tmp_path / "value").write_text(text)
    sysfs = Sysfs(tmp_path)

    assert getattr(sysfs, method)("value") is None
    assert {"garbage": 1} == sysfs.skipped


def test_missing_file_is_normal(tmp_path):
    sysfs = Sysfs(tmp_path)

    assert sysfs.integer("no/such/file") is None
    assert [] == sysfs.names("no/such/directory")
    assert sysfs.link_name("no/such/link") is None
    assert {} == sysfs.counters_by_name("no/such/file")
    assert {} == sysfs.skipped


def test_unknown_link_speed_is_no_mistake(tmp_path):
    (tmp_path / "current_link_speed").write_text("Unknown\n")
    sysfs = Sysfs(tmp_path)

    assert sysfs.transfers_per_second("current_link_speed") is None
    assert {} == sysfs.skipped


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_refused_path_rests_for_ten_minutes(tmp_path, monkeypatch, code):
    (tmp_path / "counter").write_text("1\n")
    (tmp_path / "other").write_text("2\n")
    clock = FakeClock()
    sysfs = Sysfs(tmp_path, monotonic=clock)
    refused = refuse_reads(monkeypatch, "counter", code)

    assert [None] * 3 == [sysfs.integer("counter") for _ in range(3)]
    assert 1 == len(refused)
    assert 2 == sysfs.integer("other")
    assert {errno.errorcode[code]: 1} == sysfs.skipped

    clock.now += 601
    sysfs.integer("counter")
    assert 2 == len(refused)

    monkeypatch.undo()
    clock.now += 601
    assert 1 == sysfs.integer("counter")


def test_other_failures_are_tried_again_at_once(tmp_path, monkeypatch):
    (tmp_path / "counter").write_text("1\n")
    refused = refuse_reads(monkeypatch, "counter", errno.ETIMEDOUT)
    sysfs = Sysfs(tmp_path)
    for _ in range(3):
        sysfs.integer("counter")

    assert 3 == len(refused)


def test_counter_that_the_driver_does_not_have_is_no_mistake(tmp_path):
    (tmp_path / "counter").write_text("N/A (no PMA)\n")
    sysfs = Sysfs(tmp_path)

    assert sysfs.integer("counter") is None
    assert {} == sysfs.skipped


def test_file_descriptors_are_closed_when_reading_fails(tmp_path):
    (tmp_path / "directory").mkdir()
    sysfs = Sysfs(tmp_path)
    before = open_below(tmp_path)
    for _ in range(5):
        sysfs.integer("directory")

    assert before == open_below(tmp_path)
    assert {"EISDIR": 5} == sysfs.skipped


def test_each_bad_path_is_logged_once(tmp_path, caplog):
    (tmp_path / "value").write_text("none\n")
    sysfs = Sysfs(tmp_path)
    for _ in range(3):
        sysfs.integer("value")

    assert ["sysfs value skipped path=value reason=garbage text='none'"] == caplog.messages


def test_kept_file_shows_what_is_written_into_it(tmp_path):
    file = tmp_path / "counter"
    file.write_text("1\n")
    sysfs = Sysfs(tmp_path, keep_open=4)
    seen = []
    for value in (1, 22, 3):
        file.write_text(f"{value}\n")
        seen.append(sysfs.integer("counter"))

    assert [1, 22, 3] == seen


@pytest.mark.parametrize("way", ["renamed over", "directory made anew"])
def test_kept_file_that_was_replaced_is_opened_anew(tmp_path, way):
    folder = tmp_path / "mlx5_0"
    folder.mkdir()
    (folder / "counter").write_text("1\n")
    sysfs = Sysfs(tmp_path, keep_open=4)
    before = sysfs.integer("mlx5_0/counter")
    if way == "renamed over":
        (folder / "new").write_text("2\n")
        (folder / "new").rename(folder / "counter")
    else:
        shutil.rmtree(folder)
        assert sysfs.integer("mlx5_0/counter") is None
        folder.mkdir()
        (folder / "counter").write_text("2\n")

    assert (1, 2) == (before, sysfs.integer("mlx5_0/counter"))


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ESTALE])
def test_kept_file_whose_device_went_away_is_opened_anew(tmp_path, monkeypatch, code):
    file = tmp_path / "counter"
    file.write_text("1\n")
    files = OpenFiles(4)
    files.read(str(file))
    genuine = os.pread
    failures = iter([OSError(code, os.strerror(code))])

    def pread(*arguments):
        for error in failures:
            raise error
        return genuine(*arguments)

    monkeypatch.setattr(os, "pread", pread)

    assert b"1\n" == files.read(str(file))
    assert 1 == len(files)


@pytest.mark.parametrize("keep_open", [0, 2, 9])
def test_many_counters_are_read_as_one_by_one(tmp_path, keep_open):
    texts = {
        "a": "1",
        "b": " 22\n",
        "c": "N/A\n",
        "d": "-3\n",
        "e": "",
        "f": "18446744073709551615",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    sysfs = Sysfs(tmp_path, keep_open=keep_open)
    paths = [*texts, "missing", "a/missing"]
    expected = [1, 22, None, None, None, 2**64 - 1, None, None]
    assert [expected] * 3 == [sysfs.integers(paths) for _ in range(3)]


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ESTALE])
def test_of_many_counters_those_of_a_device_that_is_back_are_read_anew(tmp_path, monkeypatch, code):
    (tmp_path / "gone").write_text("1\n")
    (tmp_path / "other").write_text("2\n")
    sysfs = Sysfs(tmp_path, keep_open=4)
    sysfs.integers(["gone", "other"])
    genuine = os.pread
    failures = iter([OSError(code, os.strerror(code))] * 2)

    def pread(*arguments):
        for error in failures:
            raise error
        return genuine(*arguments)

    monkeypatch.setattr(os, "pread", pread)

    assert [1, 2] == sysfs.integers(["gone", "other"])


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_of_many_counters_a_refused_one_is_asked_once_and_rests(tmp_path, monkeypatch, code):
    for name, text in {"bad": "1\n", "good": "2\n"}.items():
        (tmp_path / name).write_text(text)
    sysfs = Sysfs(tmp_path, keep_open=4)
    sysfs.integers(["bad", "good"])
    refused = refuse_preads(monkeypatch, tmp_path / "bad", code)

    assert [[None, 2]] * 3 == [sysfs.integers(["bad", "good"]) for _ in range(3)]
    assert 1 == len(refused)
    assert {errno.errorcode[code]: 1} == sysfs.skipped


def test_files_beyond_the_limit_are_read_without_being_kept(tmp_path):
    for number in range(6):
        (tmp_path / str(number)).write_text(f"{number}\n")
    before = open_below(tmp_path)
    files = OpenFiles(4)
    for _ in range(2):
        contents = [files.read(str(tmp_path / str(number))) for number in range(6)]

    assert [f"{number}\n".encode() for number in range(6)] == contents
    assert 4 == len(files)
    assert before + 4 == open_below(tmp_path)
    files.close()
    assert before == open_below(tmp_path)


def test_descriptors_end_with_their_reader(tmp_path):
    (tmp_path / "counter").write_text("1\n")
    gc.collect()
    before = open_below(tmp_path)
    sysfs = Sysfs(tmp_path, keep_open=4)
    sysfs.integer("counter")
    assert before + 1 == open_below(tmp_path)
    del sysfs
    gc.collect()

    assert before == open_below(tmp_path)


def test_unreadable_kept_file_leaves_no_descriptor(tmp_path):
    (tmp_path / "directory").mkdir()
    before = open_below(tmp_path)
    sysfs = Sysfs(tmp_path, keep_open=4)

    assert sysfs.integer("directory") is None
    assert {"EISDIR": 1} == sysfs.skipped
    assert before == open_below(tmp_path)


def test_only_wanted_files_stay_open(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("1\n")
    sysfs = Sysfs(tmp_path, keep_open=4)
    before = open_below(tmp_path)
    sysfs.integer("a")
    sysfs.integer("b")
    sysfs.keep_only(["b"])

    assert before + 1 == open_below(tmp_path)
    assert 1 == sysfs.integer("a")


@pytest.mark.parametrize(
    "name", ["cpu/present", "kernel/mm/transparent_hugepage/enabled"], ids=["cpu", "memory"]
)
def test_kernel_files_stay_open_and_are_read_anew(name):
    path = {"cpu/present": "devices/system/cpu/present"}.get(name, name)
    if not Path("/sys", path).exists():
        pytest.skip(f"/sys/{path} is not on this machine")
    sysfs = Sysfs(keep_open=1)
    before = open_below(Path("/sys", path))

    assert sysfs.text(path) == sysfs.text(path) == Path("/sys", path).read_text().strip()
    assert before + 1 == open_below(Path("/sys", path))


def test_unreadable_counter_is_told_until_it_can_be_read_again(tmp_path):
    for name in ("good", "text", "folder", "huge", "refused"):
        (tmp_path / name).write_text("7\n")
    (tmp_path / "text").write_text("garbage\n")
    (tmp_path / "huge").write_bytes(b"1" * 10_000_000)
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    sysfs = Sysfs(tmp_path)
    names = ["folder", "good", "huge", "missing", "text"]

    assert [None, 7, None, None, None] == sysfs.integers(names)
    with pytest.raises(UnreadableValues, match=r"3 values .* such as 'folder'") as said:
        sysfs.end()
    assert "garbled_file" == said.value.error_class

    (tmp_path / "text").write_text("8\n")
    (tmp_path / "huge").write_text("9\n")
    assert [None, 7, 9, None, 8] == sysfs.integers(names)
    with pytest.raises(UnreadableValues, match="EISDIR") as said:
        sysfs.end()
    assert "os_error" == said.value.error_class

    (tmp_path / "folder").rmdir()
    sysfs.integers(names)
    sysfs.end()


def test_refused_counter_is_told_while_it_rests(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "counter").write_text("7\n")
    sysfs = Sysfs(tmp_path, monotonic=lambda: 0.0)
    monkeypatch.setattr(os, "read", refuse)
    for _ in range(3):
        assert sysfs.integer("counter") is None
        with pytest.raises(UnreadableValues, match="EIO"):
            sysfs.end()


def test_states_of_many_files_are_what_each_says_alone(tmp_path):
    texts = {"good": "4: ACTIVE\n", "plain": "4\n", "none": "N/A\n", "again": "1: DOWN\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    names = [*texts, "missing"]
    for keep_open in (0, 16):
        sysfs = Sysfs(tmp_path, keep_open=keep_open)
        for _ in range(2):
            assert [4, None, None, 1, None] == sysfs.states(names)
            assert [4, None, None, 1, None] == [sysfs.state(name) for name in names]
        with pytest.raises(UnreadableValues, match="'plain': garbage"):
            sysfs.end()
        (tmp_path / "plain").write_text("5: ACTIVE_DEFER\n")
        assert [4, 5, None, 1, None] == sysfs.states(names)
        sysfs.end()
        (tmp_path / "plain").write_text("4\n")
