"""Typed reads below /sys: one bad file costs one value, never a collector."""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from peerwatch_exporter.errors import PartialData
from peerwatch_exporter.sources.files.open_files import READ_BYTES, OpenFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_LOG = logging.getLogger(__name__)
_PCI_ADDRESS = re.compile(
    r"(?:PCI:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE
)
_Number = TypeVar("_Number", int, float)
_BIT_UNITS = {"kb/sec": 1e3, "mb/sec": 1e6, "gb/sec": 1e9}
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ([KMG]b/sec)\b", re.IGNORECASE | re.ASCII)
_STATE = re.compile(r"(\d{1,3}):.*", re.ASCII)
_SPEED = re.compile(r"(\d{1,4}(?:\.\d{1,3})?) GT/s.*", re.ASCII)
# The kernel's counters have 64 bits.
_MAX_DIGITS = 20
_MAX_COUNTERS = 64  # lines of one file; those of AER have some 20

# A counter that was refused is not asked for again for so long: chosen, drivers and firmware change
# rarely.
_REFUSED_SECONDS = 600.0
# How the kernel says that a device does not have a value.
_NOT_THERE = frozenset({"EINVAL", "EOPNOTSUPP"})
_REFUSALS = frozenset({errno.EINVAL, errno.EIO})
# Of paths, 32 for each of 128 ports; and different texts of states and rates are a few dozen.
_MAX_REMEMBERED = 4096
_MAX_STATES = 256


def pci_address(text: str) -> str | None:
    """Return a PCI address as sysfs writes it (``0000:18:00.0``), or None if it is none.

    NVML writes eight digits of domain, the NVIDIA driver's log leaves the function out.
    """
    match = _PCI_ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or '0'}".lower()


class UnreadableValues(PartialData):
    """Files are there and give no value: the series of those, and no others, are missing.

    Parameters
    ----------
    reasons
        By path below the root: the name of an errno, or ``garbage``.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        found = set(reasons.values())
        if "garbage" in found:
            self.error_class = "garbled_file"
        else:
            self.error_class = "permission_denied" if found & {"EACCES", "EPERM"} else "os_error"
        path = min(reasons)
        super().__init__(
            f"{len(reasons)} values could not be read, such as {path[:200]!r}: {reasons[path]}."
        )


class Sysfs:
    """Reads counters, states and link facts below a root.

    Reading some mlx5 registers through a restricted function makes the kernel log a line for
    every attempt and answer EINVAL, so a path that answered so, or EIO, rests for 10 minutes.

    Parameters
    ----------
    root
        Where sysfs is mounted.
    monotonic
        Clock for the 10 minutes.
    keep_open
        How many files may stay open between reads; for those read every second.
    rest_seconds
        How long a refused path rests.

    Attributes
    ----------
    skipped
        How many values were left out, by reason: an errno name such as ``EIO``, or ``garbage``.
    """

    def __init__(
        self,
        root: Path = Path("/sys"),
        *,
        monotonic: Callable[[], float] = time.monotonic,
        keep_open: int = 0,
        rest_seconds: float = _REFUSED_SECONDS,
    ) -> None:
        self.root = root
        self.skipped: Counter[str] = Counter()
        self._monotonic = monotonic
        self._prefix = f"{root}/"
        self._kept = OpenFiles(keep_open) if keep_open else None
        self._rest_seconds = rest_seconds
        self._refused: dict[str, float] = {}
        self._reported: set[str] = set()
        self._unreadable: dict[str, str] = {}

    def end(self) -> None:
        """End a collection.

        Raises
        ------
        UnreadableValues
            If files are there that could not be read when they were read last.
        """
        for path in [path for path in self._unreadable if not self.exists(path)]:
            del self._unreadable[path]
        if self._unreadable:
            raise UnreadableValues(self._unreadable)

    def names(self, path: str) -> list[str]:
        """Return the sorted entries of a directory; none if it is not there or unreadable."""
        try:
            return sorted(os.listdir(self._prefix + path))  # noqa: PTH208 - 4 times faster
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._skip(path, _reason(error))
            return []

    def exists(self, path: str) -> bool:
        """Return whether there is such a file, directory or link target."""
        return os.path.exists(self._prefix + path)  # noqa: PTH110 - runs per PCI function

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link as it is written, or None if there is none."""
        try:
            return os.readlink(self._prefix + path)  # noqa: PTH115 - runs per PCI function
        except OSError:
            return None

    def link_name(self, path: str) -> str | None:
        """Return the last part of a symbolic link's target, such as a device's PCI address."""
        target = self.link(path)
        if target is None:
            return None
        name = target.rpartition("/")[2]
        # The kernel always writes the name; a tree made by hand may only climb to it.
        return os.path.basename(os.path.realpath(self._prefix + path)) if name == ".." else name  # noqa: PTH119

    def content(self, path: str, size: int = READ_BYTES) -> bytes | None:
        """Return the first bytes of a file as they are, or None if it cannot be read.

        A missing file is normal (another kernel or driver); any other error is counted.
        """
        if self._refused and self._is_refused(path):
            return None
        try:
            return self._read(self._prefix + path, size)
        except OSError as error:
            self._failed(path, error)
            return None

    def text(self, path: str) -> str | None:
        """Return the content of a file without surrounding blanks, or None if it has none."""
        raw = self.content(path)
        if raw is None:
            return None
        self._is_read(path)
        return _decoded(raw)

    def integer(self, path: str) -> int | None:
        """Return a counter's value, or None if it is missing, unreadable or not a number.

        Drivers without a counter say ``N/A``: no value, and no mistake.
        """
        raw = self.content(path)
        return None if raw is None else self._number(path, raw)

    def integers(self, paths: Sequence[str]) -> list[int | None]:
        """Return what ``integer`` does, for each of the files."""
        values: list[int | None] = []
        for path, raw in zip(paths, self._contents(paths), strict=True):
            if raw is None:
                values.append(None)
            # As _number does it, without the call: some hundred times a second.
            elif len(raw) <= _MAX_DIGITS and not self._unreadable and raw.rstrip(b"\n").isdigit():
                values.append(int(raw))
            else:
                values.append(self._number(path, raw))
        return values

    def state(self, path: str) -> int | None:
        """Return the number of a state such as ``4: ACTIVE``."""
        raw = self.content(path)
        return None if raw is None else self._state(path, raw)

    def states(self, paths: Sequence[str]) -> list[int | None]:
        """Return what ``state`` does, for each of the files."""
        found = zip(paths, self._contents(paths), strict=True)
        return [None if raw is None else self._state(path, raw) for path, raw in found]

    def bytes_per_second(self, path: str) -> float | None:
        """Return a port rate such as ``400 Gb/sec (4X NDR)`` in bytes per second."""

        def convert(match: re.Match[str]) -> float:
            return float(match[1]) * _BIT_UNITS[match[2].lower()] / 8

        return self._parsed(path, _RATE, convert)

    def transfers_per_second(self, path: str) -> float | None:
        """Return a PCIe link speed such as ``32.0 GT/s PCIe`` in transfers per second.

        Functions without a link of their own say ``Unknown``: no value, and no mistake.
        """
        return self._parsed(path, _SPEED, lambda match: float(match[1]) * 1e9, "Unknown")

    def counters_by_name(self, path: str) -> dict[str, int]:
        """Return the ``name value`` lines of a file such as ``aer_dev_correctable``, 64 at most."""
        text = self.text(path)
        counters: dict[str, int] = {}
        for line in (text or "").splitlines()[:_MAX_COUNTERS]:
            name, _, digits = line.rpartition(" ")
            if name and digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS:
                counters[name.strip()] = int(digits)
            else:
                self._skip(path, "garbage", line)
        return counters

    def keep_only(self, paths: Iterable[str]) -> None:
        """Close the kept files that are none of these."""
        if self._kept is not None:
            self._kept.retain({self._prefix + path for path in paths})

    def _number(self, path: str, raw: bytes) -> int | None:
        digits = raw.strip()
        if digits.isdigit() and len(digits) <= _MAX_DIGITS:
            if self._unreadable:
                self._is_read(path)
            return int(digits)
        if digits.startswith(b"N/A"):
            self._is_read(path)
            self._refuse(path)
        else:
            self._skip(path, "garbage", digits.decode("utf-8", "replace"))
        return None

    def _contents(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return what ``content`` does, for each of the files, which are kept open if any are."""
        if self._kept is None or self._refused:
            return [self.content(path) for path in paths]
        contents: list[bytes | None] = []
        for path, raw in zip(
            paths, self._kept.read_all([self._prefix + path for path in paths]), strict=True
        ):
            if isinstance(raw, OSError):
                self._failed(path, raw)
                contents.append(None)
            else:
                contents.append(raw)
        return contents

    def _state(self, path: str, raw: bytes) -> int | None:
        return self._converted(path, raw, _STATE, _first_number)

    def _failed(self, path: str, error: OSError) -> None:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return
        self._skip(path, _reason(error))
        if error.errno in _REFUSALS:
            self._refuse(path)

    def _read(self, path: str, size: int) -> bytes:
        if self._kept is not None:
            return self._kept.read(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)

    def _parsed(
        self,
        path: str,
        pattern: re.Pattern[str],
        convert: Callable[[re.Match[str]], _Number],
        absent: str = "N/A",
    ) -> _Number | None:
        raw = self.content(path)
        return None if raw is None else self._converted(path, raw, pattern, convert, absent)

    def _converted(
        self,
        path: str,
        raw: bytes,
        pattern: re.Pattern[str],
        convert: Callable[[re.Match[str]], _Number],
        absent: str = "N/A",
    ) -> _Number | None:
        self._is_read(path)
        match = _matched(pattern, raw)
        if match is not None:
            return convert(match)
        text = _decoded(raw)
        if not text.startswith(absent):
            self._skip(path, "garbage", text)
        return None

    def _is_read(self, path: str) -> None:
        self._unreadable.pop(path, None)

    def _is_refused(self, path: str) -> bool:
        until = self._refused.get(path)
        if until is None:
            return False
        if self._monotonic() < until:
            return True
        del self._refused[path]
        return False

    def _refuse(self, path: str) -> None:
        if len(self._refused) < _MAX_REMEMBERED:
            self._refused[path] = self._monotonic() + self._rest_seconds

    def _skip(self, path: str, reason: str, text: str = "") -> None:
        self.skipped[reason] += 1
        if reason not in _NOT_THERE and len(self._unreadable) < _MAX_REMEMBERED:
            self._unreadable[path] = reason
        if path not in self._reported and len(self._reported) < _MAX_REMEMBERED:
            self._reported.add(path)
            _LOG.warning("sysfs value skipped path=%s reason=%s text=%r", path, reason, text[:80])


@lru_cache(maxsize=_MAX_STATES)
def _matched(pattern: re.Pattern[str], raw: bytes) -> re.Match[str] | None:
    """Return what a file's content matches: states and rates are the same for months."""
    return pattern.match(_decoded(raw))


def _first_number(match: re.Match[str]) -> int:
    return int(match[1])


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()


def _reason(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "EUNKNOWN")
