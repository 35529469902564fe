"""Signs of a failing node in the kernel log that no counter shows: an allow-list of patterns.

Each pattern matches the line that opens an event, not the lines that explain it. Lines that only
inform (a boot-time bandwidth note, a cable plugged in, a corrected memory error) are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.sources.kernel.log import Bursts, KernelLog, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

SPECS = (
    MetricSpec(
        "host_kernel_events_total",
        "counter",
        "1",
        ("class",),
        "Errors in the kernel log since its oldest line, each class from 0: mlx5 (NIC "
        "health, cable, power, queues, link down), mce (machine checks, corrected ones too, and "
        "uncorrected memory errors), hung_task (stuck tasks and CPUs), oom (processes killed), "
        "nvlink (links that did not train), apei (firmware error reports). What happened to one "
        "device within 5 s counts once.",
        "/dev/kmsg",
    ),
)


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern of one class; its group, if any, is what the event happened to."""

    event_class: str
    keyword: str
    pattern: re.Pattern[str]


def _signature(event_class: str, keyword: str, pattern: str) -> Signature:
    return Signature(event_class, keyword, re.compile(pattern))


_PCI = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_MLX5_ERROR = "|".join(
    (
        r"Detected insufficient power on the PCIe slot",
        r"device's health compromised",
        r"Health issue observed",
        r"Fatal error [0-9]+ detected",
        r"synd 0x[0-9a-fA-F]+: ",
        r"High temperature on sensors",
        # Not where the function may not read the register, as those of NVLink switches may not:
        # whoever reads their counters, we too, makes the kernel say so.
        r"ACCESS_REG\(0x[0-9a-fA-F]+\) op_mod\(0x[0-9a-fA-F]+\) failed"
        r"(?!, status bad (?:operation|resource)\()",
        r"timeout\. Will cause a leak of a command resource",
        r"Port module event\[error\]",
        r"Port module event: module [0-9]+, Cable unplugged",
        r"TX timeout on queue",
        r"NETDEV WATCHDOG: ",
        r"Link down",
    )
)
# The keyword is a cheap test that a line must pass before its pattern is tried.
SIGNATURES: tuple[Signature, ...] = (
    _signature("mlx5", "mlx5_core", rf"mlx5_core {_PCI}[: ].*?(?:{_MLX5_ERROR})"),
    # Before Linux 6.8; since then the line begins as the driver's own do.
    _signature("mlx5", "NETDEV WATCHDOG", r"NETDEV WATCHDOG: (\S+) \(mlx5_core\)"),
    _signature("mlx5", "error cqe", r"\b(mlx5_[0-9]+):.*?\berror cqe\b"),
    _signature("mce", "mce: [Hardware Error]", r"mce: \[Hardware Error\]: "),
    _signature("mce", "EDAC", r"EDAC MC[0-9]+: [0-9]+ UE "),
    _signature(
        "hung_task", "INFO: task", r"INFO: task (.+:[0-9]+) blocked (?:in I/O wait )?for more than"
    ),
    _signature("hung_task", "soft lockup", r"BUG: soft lockup - (CPU#[0-9]+) stuck for "),
    _signature("hung_task", "hard LOCKUP", r"Watchdog detected hard LOCKUP on (cpu [0-9]+)"),
    # The victim's own line: the one with its constraint says the same once more.
    _signature("oom", "ut of memory", r"[Oo]ut of memory: Kill(?:ed)? process ([0-9]+)"),
    _signature(
        "nvlink",
        "knvlink",
        r"knvlink\w*: .*?(?:postRxDetLinkMask failed|Failed to update Rx Detect Link)",
    ),
    _signature("apei", "APEI", r"Hardware error from APEI Generic Hardware Error Source: ([0-9]+)"),
    _signature("apei", "BERT", r"BERT: Error records from previous boot"),
)
CLASSES = tuple(dict.fromkeys(signature.event_class for signature in SIGNATURES))


def classify(line: str) -> tuple[str, str] | None:
    """Return the class of a line and what it happened to ("" if it says nothing), or None."""
    for signature in SIGNATURES:
        if signature.keyword in line and (match := signature.pattern.search(line)):
            return signature.event_class, match[1] if match.lastindex else ""
    return None


class KernelEvents:
    """Counts events by class; what happened to the same device within 5 s counts once."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(CLASSES, 0)
        self._bursts = Bursts()

    def add(self, text: str, timestamp: float) -> None:
        """Take one kernel message and when it was logged (Unix time)."""
        for line in lines_of(text):
            event = classify(line)
            if event is not None and self._bursts.begins(event, timestamp):
                self.counts[event[0]] += 1


def _is_relevant(text: str) -> bool:
    return any(signature.keyword in text for signature in SIGNATURES)


@register(
    "kernel",
    "NIC, memory and CPU errors, stuck tasks and killed processes (kernel log).",
    topic="Host",
    metrics=SPECS,
)
class KernelCollector:
    """Follows the kernel log from its oldest line, so a restart forgets nothing."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._kernel_log = KernelLog(sources, _is_relevant)
        self._events = KernelEvents()

    def collect(self) -> Iterable[Family]:
        """Return the events by class, every class from 0 on.

        Raises
        ------
        NoData
            If there is no kernel log.
        PermissionError
            If the kernel log may not be read.
        """
        for text, timestamp in self._kernel_log.read():
            self._events.add(text, timestamp)
        events = family("host_kernel_events_total")
        for event_class, count in self._events.counts.items():
            events.add_metric([event_class], count)
        return (events,)
