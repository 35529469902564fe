"""Typed reads below /sys, good and bad."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from peerwatch_exporter.sources.sysfs import Sysfs, pci_address


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
        ("named_counters", "RxErr 0\nBad TLP 3\n", {"RxErr": 0, "Bad TLP": 3}),
    ],
)
def test_form_is_understood(tmp_path, method, text, expected):
    (tmp_path / "value").write_text(text)

    assert expected == getattr(Sysfs(tmp_path), method)("value")


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("integer", "N/A\n"),
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
    assert {} == sysfs.named_counters("no/such/file")
    assert {} == sysfs.skipped


def test_unknown_link_speed_is_no_mistake(tmp_path):
    (tmp_path / "current_link_speed").write_text("Unknown\n")
    sysfs = Sysfs(tmp_path)

    assert sysfs.transfers_per_second("current_link_speed") is None
    assert {} == sysfs.skipped


@pytest.mark.parametrize(("code", "reads"), [(errno.EINVAL, 1), (errno.EIO, 3)])
def test_only_a_path_that_answered_einval_is_not_read_again(tmp_path, monkeypatch, code, reads):
    (tmp_path / "counter").write_text("1\n")
    (tmp_path / "other").write_text("2\n")
    sysfs = Sysfs(tmp_path)
    genuine = os.read
    refused = []

    def read(descriptor, size):
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "counter":
            refused.append(descriptor)
            raise OSError(code, os.strerror(code))
        return genuine(descriptor, size)

    monkeypatch.setattr(os, "read", read)

    assert [None] * 3 == [sysfs.integer("counter") for _ in range(3)]
    assert reads == len(refused)
    assert 2 == sysfs.integer("other")
    assert {errno.errorcode[code]: reads} == sysfs.skipped


def test_file_descriptors_are_closed_when_reading_fails(tmp_path):
    (tmp_path / "directory").mkdir()
    sysfs = Sysfs(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        sysfs.integer("directory")

    assert before == len(list(Path("/proc/self/fd").iterdir()))
    assert {"EISDIR": 5} == sysfs.skipped


def test_each_bad_path_is_logged_once(tmp_path, caplog):
    (tmp_path / "value").write_text("N/A\n")
    sysfs = Sysfs(tmp_path)
    for _ in range(3):
        sysfs.integer("value")

    assert ["sysfs value skipped path=value reason=garbage text='N/A'"] == caplog.messages
