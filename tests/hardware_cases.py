"""The hardware side of a fixture case: its files, its fake NVML, and collectors on top of both."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fake_ethtool import FileEthtool
from fake_nvml import FakeNvml, install
from fixture_cases import FIXTURES, NOW, ethtool_of, library_of, root_of, scenario_of
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.sysfs import UnreadableValues

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.collector import Collector
    from peerwatch_exporter.sources.nic.ethtool import EthtoolReader

__all__ = ["FIXTURES", "NOW", "scenario_of"]

HARDWARE = (
    "gpu",
    "gpu_pcie",
    "nvlink",
    "nvlink_errors",
    "pcie",
    "nic",
    "nic_errors",
    "ethtool",
    "health",
    "gpm",
    "xid",
    "sxid",
)

Samples = dict[tuple[str, ...], float]


def collected(collector: Collector) -> Samples:
    """Return every sample of one collection by (metric name, label values in order).

    What is published beside values that cannot be read is returned; that those are told of is
    tested for itself.
    """
    samples: Samples = {}
    with contextlib.suppress(UnreadableValues):
        for family in collector.collect():
            for sample in family.samples:
                samples[sample.name, *sample.labels.values()] = sample.value
    return samples


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
        return registrations()[name].factory(config or ExporterConfig(), self.sources)

    def collect(self, name: str) -> Samples:
        """Return what a new collector publishes."""
        return collected(self.collector(name))


class FakeClock:
    """A clock that stands until it is moved."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def node(
    scenario: dict | FakeNvml | None,
    *,
    root: Path = FIXTURES / "cpu_only",
    clock: FakeClock | None = None,
    ethtool: EthtoolReader | None = None,
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
    with node(library_of(case), root=root_of(case), ethtool=ethtool_of(case)) as result:
        yield result
