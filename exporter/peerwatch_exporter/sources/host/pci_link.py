"""One PCIe function in sysfs: its link, its errors, and whether it still answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.pci import PCI_DEVICES

if TYPE_CHECKING:
    from peerwatch_exporter.sources.host.sysfs import Sysfs

# Lanes that a link may have; 0 is a port with nothing below. A function that fell off the bus
# reads as all ones, of which the width takes six bits: 63.
_WIDTHS = frozenset({0, 1, 2, 4, 8, 12, 16, 32})
_ALL_ONES_WIDTH = 63
_ID_BYTES = 4  # vendor and device

# The names that the kernel gives the bits of the correctable error status. Everything else in
# the file would be a new series.
CORRECTABLE = (
    "RxErr",
    "BadTLP",
    "BadDLLP",
    "Rollover",
    "Timeout",
    "NonFatalErr",
    "CorrIntErr",
    "HeaderOF",
)


@dataclass(frozen=True, slots=True)
class PciLink:
    """The link above a function; None is what it does not have or does not say.

    Parameters
    ----------
    answers
        False if the function is listed but reads as all ones: it fell off the bus.
    speed, speed_max
        Transfers per second and lane.
    width, width_max
        Lanes.
    """

    answers: bool
    speed: float | None
    speed_max: float | None
    width: int | None
    width_max: int | None


class PciLinks:
    """Reads links and advanced error reports.

    Parameters
    ----------
    sysfs
        Where they are read.
    """

    def __init__(self, sysfs: Sysfs) -> None:
        self._sysfs = sysfs
        self._aer: dict[str, tuple[bytes, tuple[tuple[str, str, int], ...]]] = {}
        # What functions allow at most: speed and width.
        self._limits: dict[str, tuple[float | None, int | None]] = {}

    def link(self, bdf: str) -> PciLink:
        """Return the state of a function's link.

        What it allows at most is read once of a function that answers, until ``forget_limits``.
        """
        base = f"{PCI_DEVICES}/{bdf}"
        width = self._sysfs.integer(f"{base}/current_link_width")
        answers = width != _ALL_ONES_WIDTH
        limits = self._limits.pop(bdf, None)
        if limits is None or not width or not answers:
            limits = self._read_limits(base)
        speed_max, width_max = limits
        if answers and width is None and width_max is not None:
            answers = self._sysfs.content(f"{base}/config", _ID_BYTES) != b"\xff" * _ID_BYTES
        if width and answers:
            self._limits[bdf] = limits
        return PciLink(
            answers,
            self._sysfs.transfers_per_second(f"{base}/current_link_speed") if answers else None,
            speed_max,
            self._width(width),
            width_max,
        )

    def forget_limits(self) -> None:
        """Read anew what functions allow at most."""
        self._limits.clear()

    def _read_limits(self, base: str) -> tuple[float | None, int | None]:
        width = self._width(self._sysfs.integer(f"{base}/max_link_width"))
        return self._sysfs.transfers_per_second(f"{base}/max_link_speed"), width

    def errors(self, bdf: str) -> list[tuple[str, str, int]]:
        """Return advanced error reports as (severity, type, count).

        Correctable errors come by type; each uncorrectable severity is one total, because its
        types are many and one such error is a fault.
        """
        base = f"{PCI_DEVICES}/{bdf}"
        rows: list[tuple[str, str, int]] = []
        for severity in ("correctable", "nonfatal", "fatal"):
            path = f"{base}/aer_dev_{severity}"
            content = self._sysfs.content(path)
            if content is None:
                self._aer.pop(path, None)
                continue
            known = self._aer.get(path)
            # Healthy links count nothing for weeks: the file is taken apart when it changed.
            if known is None or known[0] != content:
                known = content, tuple(self._parsed(path, severity))
                self._aer[path] = known
            rows += known[1]
        return rows

    def forget(self, bdfs: set[str]) -> None:
        """Drop what is remembered of all functions but these."""
        for bdf in self._limits.keys() - bdfs:
            del self._limits[bdf]
        wanted = {f"{PCI_DEVICES}/{bdf}/" for bdf in bdfs}
        for path in [path for path in self._aer if path[: path.rfind("/") + 1] not in wanted]:
            del self._aer[path]

    def _parsed(self, path: str, severity: str) -> list[tuple[str, str, int]]:
        counters = self._sysfs.counters_by_name(path)
        if severity == "correctable":
            # The kernel's own total would double every sum over the types.
            return [(severity, name, counters[name]) for name in CORRECTABLE if name in counters]
        total = counters.get(f"TOTAL_ERR_{severity.upper()}")
        return [] if total is None else [(severity, "total", total)]

    def _width(self, lanes: int | None) -> int | None:
        return lanes if lanes in _WIDTHS else None
