"""The kernel log follower: a growing file, and a device that is never waited for."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import FIXTURES
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.kernel.kmsg import KernelMessage, Kmsg, parse_record


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("6,1234,5678901,-;NVRM: hello; world", KernelMessage(5.678901, "NVRM: hello; world")),
        ("4,7,1000000,-,caller=T1;text", KernelMessage(1.0, "text")),
        ("3,7,1000000,-;one\\x0atwo", KernelMessage(1.0, "one\ntwo")),
        ("[   12.000345] text", KernelMessage(12.000345, "text")),
        ("bare text", KernelMessage(None, "bare text")),
        (" SUBSYSTEM=pci", None),
        ("", None),
    ],
)
def test_record_forms(line, expected):
    assert expected == parse_record(line)


@given(st.text() | st.from_regex(r"[0-9]*,[0-9]*,[0-9]*,.*;.*|\[ *[0-9]*\.[0-9]*\] .*"))
def test_no_line_raises(line):
    message = parse_record(line)

    assert message is None or isinstance(message.text, str)


def test_number_too_long_for_a_time_is_text():
    line = f"6,1,{'9' * 5000},-;text"

    assert KernelMessage(None, line) == parse_record(line)


def texts(kmsg):
    """Return the texts of the new messages."""
    return [message.text for message in kmsg.read()]


def test_file_is_read_from_its_start_and_then_only_what_is_new(tmp_path):
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;one\n6,2,2,-;two\n")
    kmsg = Kmsg(path)
    assert ["one", "two"] == texts(kmsg)
    assert [] == texts(kmsg)
    with path.open("a") as log:
        log.write("6,3,3,-;three\n")

    assert ["three"] == texts(kmsg)


def test_line_without_an_end_waits_for_it(tmp_path):
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;one\n6,2,2,-;Xid (PCI:0000:18:00): 7")
    kmsg = Kmsg(path)
    assert ["one"] == texts(kmsg)
    assert [] == texts(kmsg)
    with path.open("a") as log:
        log.write("9, lost\n")

    assert ["Xid (PCI:0000:18:00): 79, lost"] == texts(kmsg)


def test_character_cut_in_two_is_put_together(tmp_path):
    path = tmp_path / "kmsg"
    path.write_bytes(b"6,1,1,-;gr\xc3")
    kmsg = Kmsg(path)
    texts(kmsg)
    with path.open("ab") as log:
        log.write(b"\xbc\xc3\x9fe\n")

    assert ["gr\u00fc\u00dfe"] == texts(kmsg)


def test_truncated_file_is_read_from_its_start_again(tmp_path):
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;a long line that will be gone\n6,2,2,-;half")
    kmsg = Kmsg(path)
    texts(kmsg)
    path.write_text("6,1,1,-;new\n")

    assert ["new"] == texts(kmsg)


def test_rotated_file_is_followed_to_the_new_one(tmp_path):
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;old\n")
    kmsg = Kmsg(path)
    texts(kmsg)
    path.rename(tmp_path / "kmsg.1")
    path.write_text("6,1,1,-;new file, longer than the old one\n")

    assert ["new file, longer than the old one"] == texts(kmsg)


def test_missing_log_is_no_data_until_it_appears(tmp_path):
    path = tmp_path / "kmsg"
    kmsg = Kmsg(path)
    with pytest.raises(NoData, match="no kernel log"):
        kmsg.read()
    path.write_text("6,1,1,-;here\n")

    assert ["here"] == texts(kmsg)


def test_log_that_vanishes_is_no_data_again(tmp_path):
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;one\n")
    kmsg = Kmsg(path)
    kmsg.read()
    path.unlink()

    with pytest.raises(NoData):
        kmsg.read()


def test_refused_log_is_a_permission_error(tmp_path, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(PermissionError):
        Kmsg(tmp_path / "kmsg").read()


class FakeDevice:
    """Answers one record per read, as /dev/kmsg does; exceptions are raised in their turn."""

    def __init__(self, monkeypatch, answers):
        self.answers = list(answers)
        self.opened = 0
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "read", self.read)
        monkeypatch.setattr("stat.S_ISCHR", lambda mode: True)

    def open(self, path, flags):
        """Return a real descriptor, so that fstat and close work."""
        assert flags & os.O_NONBLOCK
        self.opened += 1
        return os.dup(0)

    def read(self, descriptor, size):
        """Return the next record."""
        answer = self.answers.pop(0) if self.answers else BlockingIOError()
        if isinstance(answer, Exception):
            raise answer
        assert len(answer) <= size
        return answer


def test_device_is_read_record_by_record_until_it_would_block(tmp_path, monkeypatch):
    device = FakeDevice(
        monkeypatch,
        [b"6,1,1000000,-;one\n SUBSYSTEM=pci\n", b"6,2,2000000,-;two\n", BlockingIOError()],
    )
    kmsg = Kmsg(tmp_path)

    assert [KernelMessage(1.0, "one"), KernelMessage(2.0, "two")] == kmsg.read()
    device.answers = [b"6,3,3000000,-;three\n"]
    assert ["three"] == texts(kmsg)
    assert 1 == device.opened


def test_overrun_of_the_ring_buffer_is_counted_and_read_over(tmp_path, monkeypatch):
    FakeDevice(monkeypatch, [OSError(errno.EPIPE, "Broken pipe"), b"6,9,9000000,-;oldest left\n"])
    kmsg = Kmsg(tmp_path)

    assert ["oldest left"] == texts(kmsg)
    assert 1 == kmsg.lost


def test_other_error_of_the_device_is_raised_and_the_device_opened_again(tmp_path, monkeypatch):
    device = FakeDevice(monkeypatch, [OSError(errno.EIO, "Input/output error")])
    kmsg = Kmsg(tmp_path)
    with pytest.raises(OSError, match="Input/output error"):
        kmsg.read()
    device.answers = [b"6,1,1000000,-;one\n"]

    assert ["one"] == texts(kmsg)
    assert 2 == device.opened


def test_fixture_log_is_understood_line_by_line():
    messages = Kmsg(FIXTURES / "h100_node" / "kmsg").read()

    assert all(message.boot_seconds is not None for message in messages)
    assert 9600.0 == messages[-1].boot_seconds
