"""SXID errors of the node's NVSwitches, counted from the kernel log; nothing else reports them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.sxid_codes import SXIDS, describe
from peerwatch_exporter.collector import register
from peerwatch_exporter.sources.kernel.log import Admission, Bursts, KernelLog, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_SXID_LABELS = ("switch", "sxid", "severity")

SPECS = (
    MetricSpec(
        "nvswitch_sxid_errors_total",
        "counter",
        "1",
        _SXID_LABELS,
        "SXID errors of an NVSwitch in the kernel log since its oldest line, by code and severity "
        "(fatal or nonfatal, as logged; unknown where the line does not say, as those of the "
        "switch's own controller); repeats within 5 s count once. A series begins with its "
        "first error, which increase() cannot see: compare the last timestamp with time().",
        "/dev/kmsg, 'nvidia-nvswitchN: SXid'",
        hardware="NVSwitch",
    ),
    MetricSpec(
        "nvswitch_sxid_last_timestamp_seconds",
        "gauge",
        "seconds",
        _SXID_LABELS,
        "When the last SXID error of this code was logged (Unix time).",
        "/dev/kmsg, 'nvidia-nvswitchN: SXid'",
        hardware="NVSwitch",
    ),
    MetricSpec(
        "nvswitch_sxid_info",
        "gauge",
        "1",
        ("sxid", "meaning", "class", "action"),
        "What an SXID code means, its class as in gpu_xid_info, and what to do. Value is always 1; "
        "join on (node, sxid). There is one for each code of nvswitch_sxid_errors_total.",
        "catalog/sxid_codes.py",
        hardware="NVSwitch",
    ),
)


# A node has at most six NVSwitches; the rest is room for what is built next.
MAX_SWITCHES = 32
# As of XIDs; ``OTHER_CODE`` stands for all beyond.
MAX_UNKNOWN_CODES = 16
OTHER_CODE = -1
OTHER_SWITCH = "other"

# Lines with "Data" or an engine in place of the severity continue the error before them; a line
# without any of it ("SOE HALTED") is an error of the whole switch.
_SXID = re.compile(
    r"nvidia-nvswitch([0-9]{1,4}): SXid \([^)]*\): ([0-9]{1,6}), "
    r"(?!Data\b|Severity\b)(?:(Non-fatal|Fatal)\b|\S)",
    re.IGNORECASE,
)
_SEVERITIES = {"fatal": "fatal", "non-fatal": "nonfatal", "": "unknown"}

# Switch, code, severity.
Key = tuple[str, int, str]


class SxidLog:
    """Counts SXIDs by switch, code and severity; a burst counts once.

    Attributes
    ----------
    counts, last
        How often, and when last (Unix time), by switch, code and severity.
    """

    def __init__(self) -> None:
        self.counts: dict[Key, int] = {}
        self.last: dict[Key, float] = {}
        self._bursts = Bursts()
        self._switches = Admission(MAX_SWITCHES)
        self._unknown_codes = Admission(MAX_UNKNOWN_CODES)

    def add(self, text: str, timestamp: float) -> None:
        """Take one kernel message and when it was logged (Unix time)."""
        for line in lines_of(text):
            match = _SXID.search(line)
            if match is None:
                continue
            switch = str(int(match[1]))
            code = int(match[2])
            if not self._switches.admits(switch):
                switch = OTHER_SWITCH
            if code not in SXIDS and not self._unknown_codes.admits(code):
                code = OTHER_CODE
            key = (switch, code, _SEVERITIES[(match[3] or "").lower()])
            self.counts[key] = self.counts.get(key, 0) + self._bursts.begins(key, timestamp)
            self.last[key] = timestamp


@register(
    "sxid",
    "SXID errors of the NVSwitches by code, and when last seen (kernel log).",
    topic="XID and SXID",
    metrics=SPECS,
)
class SxidCollector:
    """Follows the kernel log from its oldest line; a node without NVSwitch publishes nothing."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._kernel_log = KernelLog(sources, lambda text: "SXid" in text)
        self._log = SxidLog()

    def collect(self) -> Iterable[Family]:
        """Return the SXID families.

        Raises
        ------
        NoData
            If there is no kernel log.
        PermissionError
            If the kernel log may not be read.
        """
        for text, timestamp in self._kernel_log.read():
            self._log.add(text, timestamp)
        errors = family("nvswitch_sxid_errors_total")
        last = family("nvswitch_sxid_last_timestamp_seconds")
        info = family("nvswitch_sxid_info")
        for key, count in sorted(self._log.counts.items()):
            switch, code, severity = key
            labels = [switch, _label(code), severity]
            errors.add_metric(labels, count)
            last.add_metric(labels, self._log.last[key])
        for code in sorted({code for _, code, _ in self._log.counts}):
            sxid = describe(code)
            info.add_metric([_label(code), sxid.meaning, sxid.severity, sxid.advice], 1)
        return errors, last, info


def _label(code: int) -> str:
    return "other" if code == OTHER_CODE else str(code)
