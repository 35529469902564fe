"""Makes the parts that the settings and flags ask for, and takes them down again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.schedule.worker_set import enabled_collectors
from peerwatch_exporter.sources import real_sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_exporter.collector import Registration
    from peerwatch_exporter.driver.manager import Driver
    from peerwatch_exporter.sampler.fine import FineSamples
    from peerwatch_exporter.sampler.process import Sampler
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.web.app import Burst


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that an exporter reads.

    Parameters
    ----------
    config
        The settings, as they hold on it.
    sources
        Where everything but the GPUs is read from.
    driver_command
        Starts a driver process over its GPU library; ``None``: the real one's.
    notes
        Lines for the landing page.
    """

    config: ExporterConfig
    sources: Sources
    driver_command: Sequence[str] | None = None
    notes: tuple[str, ...] = ()


# Lends a host, for the settings of the file and the flags.
OpenHost = Callable[["ExporterConfig"], AbstractContextManager[Host]]


@contextlib.contextmanager
def this_host(config: ExporterConfig) -> Iterator[Host]:
    """Lend the machine that the process runs on."""
    yield Host(config, real_sources(config))


@dataclass(frozen=True, slots=True)
class Parts:
    """What an exporter is made of, besides its server.

    Parameters
    ----------
    config, sources, registered
        The settings, where everything reads from, and the collectors there are.
    driver
        Manages the processes that call the GPU driver; ``None`` if no collector needs them.
    sampler, burst
        Reads chosen counters often, and answers ``/burst``; ``None`` if it is off.
    fine
        Samples finer than a second for the fast endpoint; ``None`` if none are asked for.
    notes
        Lines for the landing page.
    """

    config: ExporterConfig
    sources: Sources
    registered: Mapping[str, Registration]
    driver: Driver | None = None
    sampler: Sampler | None = None
    burst: Burst | None = None
    fine: FineSamples | None = None
    notes: tuple[str, ...] = ()


@contextlib.contextmanager
def assembled(
    config: ExporterConfig,
    registered: Mapping[str, Registration],
    open_host: OpenHost = this_host,
) -> Iterator[Parts]:
    """Lend the parts; the host ends with them.

    Parameters
    ----------
    config, registered
        The settings and the collectors there are.
    open_host
        Lends the machine to read.
    """
    with open_host(config) as host:
        sampler = _sampler(host.config, host.sources)
        yield Parts(
            host.config,
            host.sources,
            registered,
            driver=_driver(host, registered),
            sampler=sampler,
            burst=None if sampler is None else sampler.burst,
            fine=_fine(host.config, sampler, host.sources),
            notes=host.notes,
        )


def _driver(host: Host, registered: Mapping[str, Registration]) -> Driver | None:
    names = enabled_collectors(host.config, registered)
    if not any(registered[name].process == "driver" for name in names):
        return None
    from peerwatch_exporter.driver.manager import Driver  # noqa: PLC0415

    return Driver(host.config, host.sources, command=host.driver_command)


def _sampler(config: ExporterConfig, sources: Sources) -> Sampler | None:
    if config.sampler.interval_milliseconds is None:
        return None
    from peerwatch_exporter.sampler.process import Sampler  # noqa: PLC0415

    return Sampler(config, sources)


def _fine(config: ExporterConfig, sampler: Sampler | None, sources: Sources) -> FineSamples | None:
    step = config.fast.fine_step_milliseconds
    if sampler is None or step is None:
        return None
    from peerwatch_exporter.sampler.fine import FineSamples  # noqa: PLC0415

    return FineSamples(sampler, step / 1000, sources.clock, sources.monotonic)
