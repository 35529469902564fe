"""XID errors of the NVIDIA driver, counted from the kernel log and from NVML's events.

NVML's events miss some codes (62, 79, 119, 120); the kernel log has them all, but not everybody
may read it. What both report counts once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.catalog.xid_codes import (
    LASTING_SEVERITIES,
    SEVERITIES,
    XIDS,
    critical_codes,
    describe,
    recovery_action,
    severity_of,
)
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sources.host.sysfs import pci_address
from peerwatch_exporter.sources.kernel.deduplication import EventDeduplicator
from peerwatch_exporter.sources.kernel.log import Admission, KernelLog, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from peerwatch_exporter.catalog.xid_codes import Severity
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.facts import XidEvent

_XID_LABELS = ("gpu", "pci_bus_id", "xid")

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "NVIDIA GPU",
        MetricSpec(
            "gpu_xid_errors_total",
            "counter",
            "1",
            _XID_LABELS,
            "XID errors since the oldest line of the kernel log, by code; those of the same code "
            "within 5 s count once, as do time-outs of the GSP (119) that follow one another at "
            "once, and what the log and the driver's events both report. "
            "The critical codes of every GPU start at 0: those of class hardware, and 63 and 94. "
            "Beyond 16 unknown codes the label is other.",
            "/dev/kmsg, 'NVRM: Xid'; nvmlEventSetWait_v2",
        ),
        MetricSpec(
            "gpu_xid_last_timestamp_seconds",
            "gauge",
            "seconds",
            _XID_LABELS,
            "When the last XID error of this code was logged (Unix time).",
            "/dev/kmsg, 'NVRM: Xid'; nvmlEventSetWait_v2",
        ),
        MetricSpec(
            "gpu_xid_info",
            "gauge",
            "1",
            ("xid", "mnemonic", "class", "action"),
            "What an XID code means: NVIDIA's name, its class (hardware: drain now; degraded: "
            "drain when the job ends; watch; application; ignore) and what to do. Value is always "
            "1; join on (node, xid). There is one for each code of gpu_xid_errors_total.",
            "catalog/xid_codes.py, xid.severity",
        ),
        MetricSpec(
            "gpu_xid_class_errors_total",
            "counter",
            "1",
            ("gpu", "pci_bus_id", "class"),
            "XID errors by class, each from 0. The class is that of the line where the line says "
            "more than its code: a fatal NVLink error (144 to 150), the recovery that XID 154 "
            "asks for. Lines of the same code and class within 5 s count once.",
            "/dev/kmsg, 'NVRM: Xid'",
        ),
        MetricSpec(
            "gpu_xid_class_last_timestamp_seconds",
            "gauge",
            "seconds",
            (*_XID_LABELS, "class"),
            "When the last XID error was logged that calls for a reset or a restart (Unix time), "
            "by code and class: hardware and degraded. The rules hold it until one has followed.",
            "/dev/kmsg, 'NVRM: Xid'; nvmlEventSetWait_v2",
        ),
        MetricSpec(
            "gpu_xid_recovery_action_info",
            "gauge",
            "1",
            ("gpu", "pci_bus_id", "action"),
            "Recovery that the driver last asked for in the log, also of a GPU that no longer "
            "answers: none, gpu_reset, node_reboot, drain_p2p, drain_and_reset, "
            "recover_imex_domain, bus_reset, system_reboot or unknown. Value is always 1.",
            "/dev/kmsg, 'NVRM: Xid' 154",
        ),
    ),
    MetricSpec(
        "exporter_xid_events_total",
        "counter",
        "1",
        ("source",),
        "XID reports seen, before deduplication over both sources: kmsg (the kernel log) or "
        "nvml (the driver's own events, which miss some codes).",
        "/dev/kmsg, nvmlEventSetWait_v2",
    ),
)


# Stands for every code or address beyond the limits below; shown as "other".
OTHER_CODE = -1
OTHER_BUS = "other"
# Codes that are not in the table keep their number, but only so many of them: chosen, a new driver
# brings a few.
MAX_UNKNOWN_CODES = 16
# Pairs of address and code, 32 for each of 16 GPUs: far more than any node has logged.
MAX_PAIRS = 512

KMSG = "kmsg"
NVML = "nvml"

# Of NVIDIA's catalog of XIDs.
_FALLEN_OFF_THE_BUS = 79
_RECOVERY_ACTION_CHANGED = 154
# The driver asks a dead GSP again and again and logs every time-out, which says how long it waited:
# 6 s for most calls, 45 s for some.
_GSP_TIMEOUT = 119
_GSP_TIMEOUT_SECONDS = 6.0
_TIMEOUT = re.compile(r"Timeout after ([0-9]{1,3})s\b")

_BUS = r"((?:PCI:)?(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
# With MIG the driver also names the GPU instance and the compute instance, where it knows them.
_INSTANCE = r"(?: GPU-I:[0-9]{1,4})?(?: GPU-CI:[0-9]{1,4})?"
_XID = re.compile(rf"NVRM: Xid \({_BUS}{_INSTANCE}\).*?: ([0-9]{{1,6}})(?:,|\s*$)")
_FALLEN = re.compile(rf"NVRM: GPU (?:at )?{_BUS}:? (?:GPU )?has fallen off the bus")
# The same in three lines: which GPU, its PCI id, what happened.
_FALLEN_GPU = re.compile(rf"NVRM: The NVIDIA GPU {_BUS}")
_FALLEN_END = re.compile(r"fallen off the bus and is not responding")


@dataclass(slots=True)
class _Occurrences:
    """How often something happened, and when last (Unix time)."""

    count: int = 0
    last: float = 0.0


class XidLog:
    """Counts XIDs by GPU and code; a burst counts once, and so does what both sources report.

    Parameters
    ----------
    severity
        Classes that the configuration gives to codes.

    Attributes
    ----------
    occurrences
        By PCI address and code.
    recovery_actions
        What the driver last asked for, by PCI address (XID 154).
    reports
        Lines and events taken, by source.
    """

    def __init__(self, severity: Mapping[int, Severity] | None = None) -> None:
        self.occurrences: dict[tuple[str, int], _Occurrences] = {}
        # By PCI address, code and the class of the lines, whatever the configuration says.
        self._lines: dict[tuple[str, int, Severity], _Occurrences] = {}
        self.recovery_actions: dict[str, str] = {}
        self._severity = severity or {}
        self.reports = {KMSG: 0, NVML: 0}
        self._events = EventDeduplicator()
        self._unknown_codes = Admission(MAX_UNKNOWN_CODES)
        self._pairs = Admission(MAX_PAIRS)
        self._fallen_gpu: str | None = None

    def follow(self, severity: Mapping[int, Severity]) -> None:
        """Give codes these classes from now on, also what has been counted."""
        self._severity = severity

    @property
    def severities(self) -> dict[tuple[str, Severity], int]:
        """How often each class was logged, by PCI address and class."""
        counts: dict[tuple[str, Severity], int] = {}
        for (bus, _, severity), found in self._classified():
            counts[bus, severity] = counts.get((bus, severity), 0) + found.count
        return counts

    @property
    def lasting(self) -> dict[tuple[str, int, Severity], float]:
        """When an error was last logged that a reset or a restart must follow (Unix time).

        By PCI address, code and class.
        """
        return {key: item.last for key, item in self._classified() if key[2] in LASTING_SEVERITIES}

    def _classified(self) -> Iterator[tuple[tuple[str, int, Severity], _Occurrences]]:
        """Yield what was counted, by PCI address, code and the class in force."""
        for key, found in self._lines.items():
            if key[1] not in self._severity:
                yield key, found
        for (bus, code), found in self.occurrences.items():
            if code in self._severity:
                yield (bus, code, self._severity[code]), found

    def add(self, text: str, timestamp: float) -> None:
        """Take one kernel message (with its line breaks) and when it was logged (Unix time)."""
        for line in lines_of(text):
            for bus, code in self._parse(line):
                self._count(*self._bounded(bus, code), line, KMSG, timestamp)

    def add_event(self, event: XidEvent) -> None:
        """Take one event of NVML."""
        bus, code = self._bounded(event.pci_bus_id, event.code)
        self._count(bus, code, "", NVML, event.timestamp)

    def _count(self, bus: str, code: int, line: str, source: str, timestamp: float) -> None:
        self.reports[source] += 1
        retry = _retry_seconds(code, line)
        # By class too: a fatal line must not hide in a burst that began with a harmless one.
        severity = severity_of(code, line, {})
        for found, key in (
            (self.occurrences.setdefault((bus, code), _Occurrences()), (bus, code)),
            (
                self._lines.setdefault((bus, code, severity), _Occurrences()),
                (bus, code, severity),
            ),
        ):
            found.count += self._events.is_new(key, source, timestamp, retry_seconds=retry)
            # An earlier time of the kernel's clock is a log that began anew.
            found.last = max(found.last, timestamp) if source == NVML else timestamp
        if code == _RECOVERY_ACTION_CHANGED and (action := recovery_action(line)) is not None:
            self.recovery_actions[bus] = action

    def _bounded(self, bus: str, code: int) -> tuple[str, int]:
        is_known = code in XIDS or code in self._severity
        if not is_known and not self._unknown_codes.admits(code):
            code = OTHER_CODE
        return (bus, code) if self._pairs.admits((bus, code)) else (OTHER_BUS, OTHER_CODE)

    def _parse(self, line: str) -> Iterator[tuple[str, int]]:
        if match := _XID.search(line):
            yield _bus(match[1]), int(match[2])
        elif match := _FALLEN.search(line):
            yield _bus(match[1]), _FALLEN_OFF_THE_BUS
        elif match := _FALLEN_GPU.search(line):
            self._fallen_gpu = _bus(match[1])
        elif self._fallen_gpu is not None and _FALLEN_END.search(line):
            yield self._fallen_gpu, _FALLEN_OFF_THE_BUS
            self._fallen_gpu = None


@register(
    "xid",
    "XID errors of the GPUs by code and class, and when last seen (kernel log and NVML).",
    topic="XID and SXID",
    metrics=SPECS,
)
class XidCollector:
    """Follows the kernel log from its oldest line, so a restart forgets nothing."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._severity: Mapping[int, Severity] = config.xid.severity
        self._critical = critical_codes(self._severity)
        self._gpus = sources.gpus
        self._kernel_log = KernelLog(sources, lambda text: "NVRM: " in text)
        self._log = XidLog(self._severity)
        self._seen: tuple[Mapping[str, str], Mapping[str, int]] | None = None
        self._families: tuple[Family, ...] = ()

    def follow(self, config: ExporterConfig) -> None:
        """Give codes the classes of other settings, also what has been counted."""
        self._severity = config.xid.severity
        self._critical = critical_codes(self._severity)
        self._log.follow(self._severity)
        self._seen = None

    def collect(self) -> Iterable[Family]:
        """Return the XID families.

        Raises
        ------
        NoData
            If there is neither a kernel log nor a GPU.
        PermissionError
            If the kernel log may not be read, and there is no GPU whose events could replace it.
        PartialData
            If the kernel log may not be read, after what the events report.
        """
        refused: PermissionError | None = None
        gpus = {board.pci_bus_id: str(board.index) for board in self._gpus.boards()}
        try:
            for text, timestamp in self._kernel_log.read():
                self._log.add(text, timestamp)
        except NoData:
            if not gpus:
                raise
        except PermissionError as error:
            if not gpus:
                raise
            refused = error
        for event in self._gpus.take_events():
            self._log.add_event(event)
        seen = gpus, dict(self._log.reports)
        # Nothing happens in most seconds, and the same families are cheap for whoever takes them.
        if seen != self._seen:
            self._families = (*self._by_code(gpus), *self._by_severity(gpus), self._reports())
            self._seen = seen
        yield from self._families
        if refused is not None:
            raise PartialData("Only NVML's events are counted, which miss some codes.") from refused

    def _reports(self) -> Family:
        reports = family("exporter_xid_events_total")
        for source, count in self._log.reports.items():
            reports.add_metric([source], count)
        return reports

    def _by_code(self, gpus: Mapping[str, str]) -> Iterator[Family]:
        errors = family("gpu_xid_errors_total")
        last = family("gpu_xid_last_timestamp_seconds")
        info = family("gpu_xid_info")
        occurrences = self._log.occurrences
        critical = {(bus, code) for bus in gpus for code in self._critical}
        published = sorted(critical | occurrences.keys())
        for bus, code in published:
            labels = [gpus.get(bus, ""), bus, _label(code)]
            found = occurrences.get((bus, code))
            errors.add_metric(labels, 0 if found is None else found.count)
            if found is not None:
                last.add_metric(labels, found.last)
        for code in sorted({code for _, code in published}):
            xid = describe(code, self._severity)
            info.add_metric([_label(code), xid.mnemonic, xid.severity, xid.advice], 1)
        yield from (errors, last, info)

    def _by_severity(self, gpus: Mapping[str, str]) -> Iterator[Family]:
        errors = family("gpu_xid_class_errors_total")
        actions = family("gpu_xid_recovery_action_info")
        severities = self._log.severities
        all_of_gpus = {(bus, severity) for bus in gpus for severity in SEVERITIES}
        for bus, severity in sorted(all_of_gpus | severities.keys()):
            labels = [gpus.get(bus, ""), bus, severity]
            errors.add_metric(labels, severities.get((bus, severity), 0))
        for bus, action in sorted(self._log.recovery_actions.items()):
            actions.add_metric([gpus.get(bus, ""), bus, action], 1)
        yield from (errors, self._lasting(gpus), actions)

    def _lasting(self, gpus: Mapping[str, str]) -> Family:
        last = family("gpu_xid_class_last_timestamp_seconds")
        for (bus, code, severity), timestamp in sorted(self._log.lasting.items()):
            last.add_metric([gpus.get(bus, ""), bus, _label(code), severity], timestamp)
        return last


def _retry_seconds(code: int, line: str) -> float | None:
    """Return how long the driver waits before it logs the same fault again, None if it does not."""
    if code != _GSP_TIMEOUT:
        return None
    match = _TIMEOUT.search(line)
    return _GSP_TIMEOUT_SECONDS if match is None else float(match[1])


def _bus(text: str) -> str:
    return pci_address(text) or text


def _label(code: int) -> str:
    return "other" if code == OTHER_CODE else str(code)
