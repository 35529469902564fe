"""CPU time of each collector of the main process on the tree of ``host_tree``.

    python tests/bench/host_cost.py [--seconds 60]

Each collector runs as often as its tier says, on a clock that is moved, and its own thread's CPU
time is summed. The kernel's and a driver's own work per read is that of plain files.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from host_tree import HostTree

from peerwatch_exporter.collector import Registration, registrations
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.schedule.worker_set import enabled_collectors
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.sources.host.access import Paths


class _Clock:
    def __init__(self) -> None:
        self.now = 1_767_300_000.0

    def __call__(self) -> float:
        return self.now


class _Measured:
    """One collector and what it has cost."""

    def __init__(self, registration: Registration, sources: Sources) -> None:
        self.registration = registration
        self.collector = registration.factory(ExporterConfig(), sources)
        self.seconds: list[float] = []
        self.series = 0

    def run(self) -> None:
        start = time.thread_time()
        families = []
        try:
            for item in self.collector.collect():
                families.append(item)  # noqa: PERF402 - as the worker does it
        except (NoData, PartialData):
            pass
        self.seconds.append(time.thread_time() - start)
        self.series = sum(len(item.rows) for item in families)


def measure(tree: HostTree, seconds: int) -> list[_Measured]:
    """Return all collectors of the main process after so many seconds."""
    clock = _Clock()
    paths = Paths(procfs=tree.procfs, sysfs=tree.sysfs, kmsg=tree.root / "kmsg")
    sources = Sources(paths, clock=clock, monotonic=clock, ethtool=tree.ethtool())
    sources.gpus.update_boards(
        [
            GpuIdentity(number, f"GPU-{number}", pci_bus_id=tree.gpu_address(number))
            for number in range(tree.gpus)
        ]
    )
    registered = registrations()
    measured = [
        _Measured(registered[name], sources)
        for name in enabled_collectors(ExporterConfig(), registered)
        if registered[name].process == "main"
    ]
    for second in range(seconds):
        clock.now += 1
        for collector in measured:
            if second % collector.registration.interval_seconds == 0:
                collector.run()
    return measured


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory:
        measured = measure(HostTree(Path(directory)).build(), seconds)
    print(
        f"{'collector':<12} {'every':>6} {'series':>7} {'first ms':>9} {'later ms':>9} {'ms/s':>7}"
    )
    for collector in measured:
        first, later = collector.seconds[0], collector.seconds[1:] or collector.seconds
        print(
            f"{collector.registration.name:<12} {collector.registration.interval_seconds:>6g} "
            f"{collector.series:>7} {first * 1e3:>9.2f} {sum(later) / len(later) * 1e3:>9.3f} "
            f"{sum(later) / len(later) / collector.registration.interval_seconds * 1e3:>7.3f}"
        )
    print(f"{'all':<12} {'':>6} {sum(collector.series for collector in measured):>7}")


if __name__ == "__main__":
    main()
