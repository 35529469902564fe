"""The workers of the collectors that run, as the settings have them now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from peerwatch_exporter.schedule.serial_executor import SerialExecutor
from peerwatch_exporter.schedule.worker import ThreadWorker
from peerwatch_exporter.settings.used import UsedSettings, changed_collector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_exporter.collector import Collector, Registration
    from peerwatch_exporter.schedule.worker import Worker
    from peerwatch_exporter.settings.config import CollectorsConfig, ExporterConfig
    from peerwatch_exporter.sources import Sources


class WorkerSource(Protocol):
    """Runs collectors in another process."""

    def workers(self, registrations: Sequence[Registration]) -> Sequence[Worker]:
        """Return a worker for each of these collectors."""

    def follow(self, config: ExporterConfig) -> None:
        """Have the collectors follow other settings."""


class WorkerSet:
    """Makes workers, and lets them follow other settings without losing what they know.

    Parameters
    ----------
    config, sources, registered, driver
        As for ``make_workers``.
    """

    def __init__(
        self,
        config: ExporterConfig,
        sources: Sources,
        registered: Mapping[str, Registration],
        driver: WorkerSource | None,
    ) -> None:
        self._sources = sources
        self._registered = registered
        self._driver = driver
        self._executor = SerialExecutor("collectors")
        # Those of this process that run, with the settings that they were made of.
        self._own: dict[str, tuple[ThreadWorker, UsedSettings]] = {}
        chosen = self._chosen(config)
        elsewhere = [item for item in chosen if self._is_elsewhere(item)]
        self._elsewhere: dict[str, Worker] = {}
        if driver is not None and elsewhere:
            self._elsewhere = {worker.name: worker for worker in driver.workers(elsewhere)}
        self.workers = self._workers(config, chosen)

    def follow(self, config: ExporterConfig, changed: Sequence[str]) -> list[str]:
        """Follow other settings; return the collectors that only a restart can begin with.

        Parameters
        ----------
        config
            All settings.
        changed
            Paths of those that differ from before.
        """
        sections = {path.split(".")[0] for path in changed}
        for name, (worker, used) in self._own.items():
            if not sections.isdisjoint(used.sections):
                self._change(self._registered[name], worker, config)
        if self._driver is not None:
            self._driver.follow(config)
        chosen = self._chosen(config)
        late = [
            item.name
            for item in chosen
            if item.process == "driver" and item.name not in self._elsewhere
        ]
        if self._driver is None:
            late = [name for name in late if name not in self._own]
        self.workers = self._workers(config, [item for item in chosen if item.name not in late])
        return late

    def _chosen(self, config: ExporterConfig) -> list[Registration]:
        return [self._registered[name] for name in enabled_collectors(config, self._registered)]

    def _is_elsewhere(self, item: Registration) -> bool:
        return item.process == "driver" and self._driver is not None

    def _workers(self, config: ExporterConfig, chosen: Sequence[Registration]) -> list[Worker]:
        """Return a worker for each, in the order of their names; those of this process are new."""
        own = {item.name: item for item in chosen if not self._is_elsewhere(item)}
        for name in self._own.keys() - own.keys():
            del self._own[name]
        for name in own.keys() - self._own.keys():
            used = UsedSettings(config)
            self._own[name] = self._worker(own[name], used), used
        workers: list[Worker] = [self._own[name][0] for name in sorted(own)]
        running = [item.name for item in chosen if self._is_elsewhere(item)]
        return workers + [self._elsewhere[name] for name in running]

    def _worker(self, item: Registration, used: UsedSettings) -> ThreadWorker:
        return ThreadWorker(
            item.name,
            self._maker(item, used),
            interval_seconds=item.interval_seconds,
            clock=self._sources.clock,
            monotonic=self._sources.monotonic,
            executor=self._executor,
        )

    def _maker(self, item: Registration, used: UsedSettings) -> Callable[[], Collector]:
        return lambda: item.factory(cast("ExporterConfig", used), self._sources)

    def _change(self, item: Registration, worker: ThreadWorker, config: ExporterConfig) -> None:
        used = UsedSettings(config)
        make = self._maker(item, used)
        worker.change(make, lambda before: changed_collector(before, used, make))
        # What it used before says which settings concern it until it has been made anew.
        used.sections |= self._own[item.name][1].sections
        self._own[item.name] = worker, used


def make_workers(
    config: ExporterConfig,
    sources: Sources,
    registered: Mapping[str, Registration],
    driver: WorkerSource | None,
) -> list[Worker]:
    """Return a worker for every collector that the configuration lets run.

    Parameters
    ----------
    config
        The settings, which also name the collectors that run.
    sources
        Where collectors read from.
    registered
        The collectors there are.
    driver
        Runs the collectors that call the driver; ``None`` runs them in this process too, where a
        call that never returns keeps its thread for good.
    """
    return WorkerSet(config, sources, registered, driver).workers


def enabled_collectors(
    config: ExporterConfig, registered: Mapping[str, Registration]
) -> tuple[str, ...]:
    """Return the names of the collectors that the configuration lets run."""
    return tuple(
        name
        for name, item in sorted(registered.items())
        if _is_enabled(item, config.collectors) and item.is_configured(config)
    )


def _is_enabled(registration: Registration, choice: CollectorsConfig) -> bool:
    if registration.name in choice.disabled:
        return False
    if choice.enabled is None:
        return registration.default_enabled
    return registration.name in choice.enabled
