"""The hardware side of a fixture case: its files, its fake NVML, and collectors on top of both."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fake_ethtool import FakeEthtool, FileEthtool
from fake_nvml import FakeNvml, install
from peerwatch_exporter.collectors.ethtool import EthtoolCollector
from peerwatch_exporter.collectors.gpm import GpmCollector
from peerwatch_exporter.collectors.gpu import GpuCollector
from peerwatch_exporter.collectors.health import HealthCollector
from peerwatch_exporter.collectors.nic import NicCollector
from peerwatch_exporter.collectors.nvlink import NvlinkCollector
from peerwatch_exporter.collectors.pcie import PcieCollector
from peerwatch_exporter.collectors.sxid import SxidCollector
from peerwatch_exporter.collectors.xid import XidCollector
from peerwatch_exporter.config import ExporterConfig
from peerwatch_exporter.sources import Paths, Sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.collector import Collector

FIXTURES = Path(__file__).parent / "exporter" / "fixtures"
HARDWARE = {
    "gpu": GpuCollector,
    "nvlink": NvlinkCollector,
    "pcie": PcieCollector,
    "nic": NicCollector,
    "ethtool": EthtoolCollector,
    "health": HealthCollector,
    "gpm": GpmCollector,
    "xid": XidCollector,
    "sxid": SxidCollector,
}
NOW = 1_767_300_000.0

Samples = dict[tuple[str, ...], float]


def collected(collector: Collector) -> Samples:
    """Return every sample of one collection by (metric name, label values in order)."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def only(samples: Samples, name: str) -> Samples:
    """Return the samples of one metric, without its name in the key."""
    return {key[1:]: value for key, value in samples.items() if key[0] == name}


@dataclass
class Node:
    """A node whose hardware is faked; ``clock`` is both of its clocks."""

    sources: Sources
    nvml: FakeNvml
    clock: FakeClock

    def collector(self, name: str, config: ExporterConfig | None = None) -> Collector:
        """Return a new collector of this node."""
        return HARDWARE[name](config or ExporterConfig(), self.sources)

    def collect(self, name: str) -> Samples:
        """Return what a new collector publishes."""
        return collected(self.collector(name))


class FakeClock:
    """A clock that stands until it is moved."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def scenario_of(case: str) -> dict | None:
    """Return the NVML scenario of a case, or None if the case has no NVML."""
    path = FIXTURES / case / "nvml.json"
    return json.loads(path.read_text()) if path.exists() else None


@contextlib.contextmanager
def node(
    scenario: dict | FakeNvml | None,
    *,
    root: Path = FIXTURES / "cpu_only",
    clock: FakeClock | None = None,
    ethtool: FakeEthtool | None = None,
) -> Iterator[Node]:
    """Yield a node with the files below ``root`` and this NVML behind pynvml.

    Driver statistics are those of ``ethtool``, else of the file ``ethtool.json`` below ``root``.
    """
    clock = clock or FakeClock()
    ethtool = ethtool or FileEthtool(root / "ethtool.json")
    paths = Paths(procfs=root / "proc", sysfs=root / "sys", kmsg=root / "kmsg")
    with install(scenario) as nvml:
        yield Node(Sources(paths, clock=clock, monotonic=clock, ethtool=ethtool), nvml, clock)


@contextlib.contextmanager
def case_node(case: str) -> Iterator[Node]:
    """Yield the node of a fixture case."""
    with node(scenario_of(case), root=FIXTURES / case) as result:
        yield result
