"""XID errors of the NVIDIA driver, counted from the kernel log.

NVML's own events miss some codes (62, 79, 119, 120); the kernel log has them all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import NoData, register
from peerwatch_exporter.sources.kmsg import Kmsg
from peerwatch_exporter.sources.nvml import NvmlError, shared_nvml
from peerwatch_exporter.sources.procfs import Procfs
from peerwatch_exporter.sources.sysfs import pci_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.kmsg import KernelMessage

# Published as 0 from the start, so that increase() sees the first one.
CRITICAL_XIDS = (48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140, 143)
_FALLEN_OFF_THE_BUS = 79
# One fault logs a burst of lines of the same code (13 logs one per GPC, TPC and SM).
_BURST_SECONDS = 5.0

_BUS = r"((?:PCI:)?(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(rf"NVRM: Xid \({_BUS}\).*?: (\d+)(?:,|\s*$)")
_FALLEN = re.compile(rf"NVRM: GPU (?:at )?{_BUS}:? (?:GPU )?has fallen off the bus")
# The same in three lines: which GPU, its PCI id, what happened.
_FALLEN_GPU = re.compile(rf"NVRM: The NVIDIA GPU {_BUS}")
_FALLEN_END = re.compile(r"fallen off the bus and is not responding")


@dataclass(slots=True)
class _Occurrences:
    """What happened to one GPU with one code, in Unix time."""

    count: int = 0
    burst_start: float = 0.0
    last: float = 0.0


class XidLog:
    """Counts XIDs by GPU and code; a burst counts once."""

    def __init__(self) -> None:
        self.occurrences: dict[tuple[str, int], _Occurrences] = {}
        self._fallen_gpu: str | None = None

    def add(self, text: str, timestamp: float) -> None:
        """Take one kernel message (with its line breaks) and when it was logged (Unix time)."""
        for bus, code in self._parse(text):
            found = self.occurrences.setdefault((bus, code), _Occurrences())
            if not found.count or not 0 <= timestamp - found.burst_start < _BURST_SECONDS:
                found.count += 1
                found.burst_start = timestamp
            found.last = timestamp

    def _parse(self, text: str) -> Iterator[tuple[str, int]]:
        for line in text.splitlines():
            if match := _XID.search(line):
                yield _bus(match[1]), int(match[2])
            elif match := _FALLEN.search(line):
                yield _bus(match[1]), _FALLEN_OFF_THE_BUS
            elif match := _FALLEN_GPU.search(line):
                self._fallen_gpu = _bus(match[1])
            elif self._fallen_gpu is not None and _FALLEN_END.search(line):
                yield self._fallen_gpu, _FALLEN_OFF_THE_BUS
                self._fallen_gpu = None


@register("xid", "XID errors of the GPUs by code, and when each was last seen (kernel log).")
class XidCollector:
    """Follows the kernel log from its oldest line, so a restart forgets nothing."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._sources = sources
        self._nvml = shared_nvml(sources)
        self._kmsg = Kmsg(sources.paths.kmsg)
        self._procfs = Procfs(sources.paths.procfs)
        self._log = XidLog()
        self._unread: list[KernelMessage] = []

    def collect(self) -> Iterable[Family]:
        """Return the XID families.

        Raises
        ------
        NoData
            If there is no kernel log.
        PermissionError
            If the kernel log may not be read.
        """
        self._unread += [message for message in self._kmsg.read() if "NVRM: " in message.text]
        if self._unread:
            self._count()
        return self._families(self._gpus_by_bus())

    def _count(self) -> None:
        now = self._sources.clock()
        # May fail; the messages then wait for the next collection.
        boot_time = self._procfs.stat().boot_time
        for message in self._unread:
            timestamp = now if message.boot_seconds is None else boot_time + message.boot_seconds
            self._log.add(message.text, timestamp)
        self._unread = []

    def _gpus_by_bus(self) -> dict[str, str]:
        """Return GPU indexes by PCI address; a node without NVML has none.

        Boards already seen are not asked again: when the driver hangs, its log must still be read.
        """
        boards = self._nvml.seen()
        if not boards:
            try:
                self._nvml.gpus()
            except (NoData, NvmlError):
                return {}
            boards = self._nvml.seen()
        return {board.pci_bus_id: str(board.index) for board in boards}

    def _families(self, gpus: dict[str, str]) -> Iterable[Family]:
        errors = family("gpu_xid_errors_total")
        last = family("gpu_xid_last_timestamp_seconds")
        occurrences = self._log.occurrences
        critical = {(bus, code) for bus in gpus for code in CRITICAL_XIDS}
        for bus, code in sorted(critical | occurrences.keys()):
            labels = [gpus.get(bus, ""), bus, str(code)]
            found = occurrences.get((bus, code))
            errors.add_metric(labels, 0 if found is None else found.count)
            if found is not None:
                last.add_metric(labels, found.last)
        return errors, last


def _bus(text: str) -> str:
    return pci_address(text) or text
