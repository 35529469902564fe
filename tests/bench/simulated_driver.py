"""What the simulated GPU driver takes of the exporter's driver process.

A real one answers in C, this one in Python, and its answers count as the exporter's. Here they are
given again by themselves, one after the other: with warm caches, so that this is the least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from bench.measurement import cpu_seconds
from peerwatch_demo.simulated_node.nvml_library import FakeNvml, install
from peerwatch_demo.simulated_node.nvml_registry import FUNCTIONS
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.gpu.nvml_access import shared_nvml
from peerwatch_exporter.sources.gpu.nvml_facts import FactsReader
from peerwatch_exporter.sources.host.access import Paths

if TYPE_CHECKING:
    from bench.host_tree import HostTree
    from peerwatch_exporter.collector import Collector

_ROUNDS = 50

_Call = Callable[[], object]


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def seconds_per_second(tree: HostTree) -> float:
    """Return the CPU seconds that the answers of each second take, at least."""
    paths = Paths(procfs=tree.procfs, sysfs=tree.sysfs, kmsg=tree.root / "kmsg")
    recorded = _recorded(tree.root / "nvml.json", paths)
    return sum(
        cpu_seconds(partial(_repeat, calls)) / (_ROUNDS * interval) for interval, calls in recorded
    )


def _repeat(calls: Iterable[_Call]) -> None:
    for _ in range(_ROUNDS):
        for call in calls:
            call()


def _recorded(scenario: Path, paths: Paths) -> list[tuple[float, list[_Call]]]:
    """Return the calls of each collector's run, and how many seconds are between two."""
    calls: list[_Call] = []

    def recording(function: Callable[..., int]) -> Callable[..., int]:
        def answer(*arguments: Any) -> int:
            calls.append(lambda: function(*arguments))
            return function(*arguments)

        return answer

    functions = {name: recording(function) for name, function in FUNCTIONS.items()}
    recorded: list[tuple[float, list[_Call]]] = []
    with mock.patch.dict(FUNCTIONS, functions), install(FakeNvml.from_file(scenario)):
        clock = _Clock()
        for interval, run in list(_runs(Sources(paths, monotonic=clock))):
            # What is asked once only is asked before.
            for _ in range(3):
                clock.now += interval
                calls.clear()
                run()
            recorded.append((interval, list(calls)))
    return recorded


def _runs(sources: Sources) -> Iterable[tuple[float, _Call]]:
    config = ExporterConfig()
    for item in registrations().values():
        if item.process == "driver" and item.default_enabled:
            yield item.interval_seconds, partial(_collect, item.factory(config, sources))
    yield 1.0, FactsReader(shared_nvml(sources), sources, sources.gpus).read


def _collect(collector: Collector) -> None:
    with suppress(NoData):
        for _ in collector.collect():
            pass
