"""Typed reads below /sys: one bad file costs one value, never a collector."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_READ_BYTES = 4096
_PCI_ADDRESS = re.compile(
    r"(?:PCI:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE
)
_Number = TypeVar("_Number", int, float)
_BIT_UNITS = {"kb/sec": 1e3, "mb/sec": 1e6, "gb/sec": 1e9}


def pci_address(text: str) -> str | None:
    """Return a PCI address as sysfs writes it (``0000:18:00.0``), or None if it is none.

    NVML writes eight digits of domain, the NVIDIA driver's log leaves the function out.
    """
    match = _PCI_ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or '0'}".lower()


class Sysfs:
    """Reads counters, states and link facts below a root.

    Reading some mlx5 registers through a restricted function makes the kernel log a line for
    every attempt and answer EINVAL, so a path that answered so once is not read again.

    Parameters
    ----------
    root
        Where sysfs is mounted.

    Attributes
    ----------
    skipped
        How many values were left out, by reason: an errno name such as ``EIO``, or ``garbage``.
    """

    def __init__(self, root: Path = Path("/sys")) -> None:
        self.root = root
        self.skipped: Counter[str] = Counter()
        self._prefix = f"{root}/"
        self._refused: set[str] = set()
        self._reported: set[str] = set()

    def names(self, path: str) -> list[str]:
        """Return the sorted entries of a directory; none if there is no such directory."""
        try:
            return sorted(os.listdir(self._prefix + path))  # noqa: PTH208 - 4 times faster
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        """Return whether there is such a file, directory or link target."""
        return os.path.exists(self._prefix + path)  # noqa: PTH110 - runs per PCI function

    def link_name(self, path: str) -> str | None:
        """Return the last part of a symbolic link's target, such as a device's PCI address."""
        try:
            return (self.root / path).readlink().name
        except OSError:
            return None

    def text(self, path: str) -> str | None:
        """Return the content of a file without surrounding blanks, or None if it has none.

        A missing file is normal (another kernel or driver); any other error is counted.
        """
        if path in self._refused:
            return None
        try:
            descriptor = os.open(self._prefix + path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                raw = os.read(descriptor, _READ_BYTES)
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._skip(path, errno.errorcode.get(error.errno or 0, "EUNKNOWN"))
            return None
        return raw.decode("utf-8", "replace").strip()

    def integer(self, path: str) -> int | None:
        """Return a counter's value, or None if it is missing, unreadable or not a number."""
        return self._parsed(path, r"(\d+)", int)

    def state(self, path: str) -> int | None:
        """Return the number of a state such as ``4: ACTIVE``."""
        return self._parsed(path, r"(\d+):.*", int)

    def bytes_per_second(self, path: str) -> float | None:
        """Return a port rate such as ``400 Gb/sec (4X NDR)`` in bytes per second."""
        text = self.text(path)
        if text is None:
            return None
        match = re.match(r"([\d.]+) ([KMG]b/sec)\b", text, re.IGNORECASE)
        try:
            bits = float(match[1]) * _BIT_UNITS[match[2].lower()] if match else None
        except ValueError:
            bits = None
        if bits is None:
            self._skip(path, "garbage", text)
            return None
        return bits / 8

    def transfers_per_second(self, path: str) -> float | None:
        """Return a PCIe link speed such as ``32.0 GT/s PCIe`` in transfers per second.

        Functions without a link of their own say ``Unknown``: no value, and no mistake.
        """
        if (self.text(path) or "").startswith("Unknown"):
            return None
        return self._parsed(path, r"(\d+(?:\.\d+)?) GT/s.*", lambda digits: float(digits) * 1e9)

    def named_counters(self, path: str) -> dict[str, int]:
        """Return the ``name value`` lines of a file such as ``aer_dev_correctable``."""
        text = self.text(path)
        counters: dict[str, int] = {}
        for line in (text or "").splitlines():
            name, _, digits = line.rpartition(" ")
            if name and digits.isdigit():
                counters[name.strip()] = int(digits)
            else:
                self._skip(path, "garbage", line)
        return counters

    def _parsed(self, path: str, pattern: str, convert: Callable[[str], _Number]) -> _Number | None:
        text = self.text(path)
        if text is None:
            return None
        match = re.fullmatch(pattern, text)
        if match is None:
            self._skip(path, "garbage", text)
            return None
        return convert(match[1])

    def _skip(self, path: str, reason: str, text: str = "") -> None:
        self.skipped[reason] += 1
        if reason == "EINVAL":
            self._refused.add(path)
        if path not in self._reported:
            self._reported.add(path)
            _LOG.warning("sysfs value skipped path=%s reason=%s text=%r", path, reason, text)
