"""The driver process without a process: its collectors in turn, on the library behind pynvml."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from peerwatch_exporter.errors import NoData
from peerwatch_exporter.schedule.worker import ThreadWorker
from peerwatch_exporter.sources.gpu.facts import GpuFacts
from peerwatch_exporter.sources.gpu.nvml_access import shared_nvml
from peerwatch_exporter.sources.gpu.nvml_facts import FactsReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_exporter.collector import Registration
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources


class InTurn(ThreadWorker):
    """A worker whose run has ended when it was asked for: NVML is called by one at a time."""

    after: Callable[[], None]

    def request(self) -> None:
        super().request()
        assert self._run.wait(60)
        self.after()


class FakeDriver:
    """Runs collectors as the driver process does, and hands its facts over after each."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._config = config
        self._main = sources
        self._own = replace(sources, gpus=GpuFacts())
        self._facts = FactsReader(shared_nvml(self._own), self._own, self._own.gpus)

    def workers(self, registrations: Sequence[Registration]) -> list[InTurn]:
        """Return a worker for each of these collectors."""
        return [self._worker(item) for item in registrations]

    def _worker(self, item: Registration) -> InTurn:
        worker = InTurn(
            item.name,
            lambda: item.factory(self._config, self._own),
            interval_seconds=item.interval_seconds,
            clock=self._own.clock,
            monotonic=self._own.monotonic,
        )
        worker.after = self._hand_over
        return worker

    def _hand_over(self) -> None:
        # Without a library the process would have ended.
        with contextlib.suppress(NoData):
            self._main.gpus.take_in(*self._facts.read())
