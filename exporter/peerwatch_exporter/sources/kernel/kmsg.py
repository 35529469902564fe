"""Follows the kernel log: the character device in production, a growing file elsewhere."""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from peerwatch_exporter.errors import SourceMissing

# One read of /dev/kmsg returns one record; the kernel refuses smaller buffers than a record, which
# has 8 KiB at most.
_RECORD_BYTES = 16384
# Bounds one call: the largest ring buffers hold fewer records than this.
_MAX_RECORDS = 50_000
# Digits are bounded: Python refuses to make a number of thousands of them.
_PREFIX = re.compile(r"\d{1,20},\d{1,20},(\d{1,20}),[^;]*;(.*)")
_DMESG = re.compile(r"\[\s*(\d{1,15})\.(\d{6})\] ?(.*)")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class KernelMessage:
    """One record of the kernel log.

    Parameters
    ----------
    boot_seconds
        When it was logged, in seconds since boot; None if the line does not say.
    text
        The message; records of several lines keep their line breaks.
    """

    boot_seconds: float | None
    text: str


def parse_record(line: str) -> KernelMessage | None:
    """Return the message of one line, or None for the key=value lines that follow a record.

    Understood are ``/dev/kmsg`` records (``6,1234,5678901,-;text``), lines of ``dmesg``
    (``[    5.678901] text``) and bare text.
    """
    if not line or line.startswith(" "):
        return None
    match = _PREFIX.fullmatch(line)
    if match is not None:
        text = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), match[2])
        return KernelMessage(int(match[1]) / 1e6, text)
    match = _DMESG.fullmatch(line)
    if match is not None:
        return KernelMessage(int(match[1]) + int(match[2]) / 1e6, match[3])
    return KernelMessage(None, line)


class Kmsg:
    """Reads what the kernel logged since the last call, from the oldest record it still has.

    Never waits: a device is opened non-blocking, a file is read up to its last full line.

    Parameters
    ----------
    path
        A kmsg character device, or a file in its format.

    Attributes
    ----------
    lost
        How often the kernel overwrote records before they were read.
    """

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self.path = path
        self.lost = 0
        self._descriptor: int | None = None
        self._is_device = False
        self._inode = 0
        self._offset = 0
        self._partial = b""

    def read(self) -> list[KernelMessage]:
        """Return the messages logged since the last call.

        Raises
        ------
        SourceMissing
            If there is no kernel log at the path.
        PermissionError
            If the process may not read it (it needs CAP_SYSLOG or root).
        """
        if self._descriptor is None or self._replaced():
            self._open()
        lines = self._device_lines() if self._is_device else self._file_lines()
        return [message for line in lines if (message := parse_record(line)) is not None]

    def close(self) -> None:
        """Close the log; the next read starts from its oldest record again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        self.close()
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise SourceMissing(f"There is no kernel log at {str(self.path)!r}.") from error
        status = os.fstat(descriptor)
        self._descriptor = descriptor
        self._is_device = stat.S_ISCHR(status.st_mode)
        self._inode = status.st_ino
        self._offset = 0
        self._partial = b""

    def _replaced(self) -> bool:
        """Return whether a file was rotated or cut; a device never is."""
        if self._is_device:
            return False
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return True
        return status.st_ino != self._inode or status.st_size < self._offset

    def _device_lines(self) -> list[str]:
        assert self._descriptor is not None
        lines: list[str] = []
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EPIPE:
                    self.close()
                    raise
                # The ring buffer overtook us; the next read gives the oldest record left.
                self.lost += 1
                continue
            if not record:
                break
            lines.append(record.decode("utf-8", "replace").partition("\n")[0])
        return lines

    def _file_lines(self) -> list[str]:
        assert self._descriptor is not None
        chunks = [self._partial]
        while chunk := os.pread(self._descriptor, 1 << 20, self._offset):
            self._offset += len(chunk)
            chunks.append(chunk)
        *lines, self._partial = b"".join(chunks).split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]
