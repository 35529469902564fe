"""Makes the parts that the settings and flags ask for, and takes them down again."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.schedule.runner import enabled_collectors
from peerwatch_exporter.sources import real_sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_exporter.collector import Registration
    from peerwatch_exporter.demo.node import DemoNode
    from peerwatch_exporter.driver.manager import Driver
    from peerwatch_exporter.sampler.fine import FineSamples
    from peerwatch_exporter.sampler.process import Sampler
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.web.app import Burst

DEFAULT_ONSET_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Demo:
    """Which demonstration is shown.

    Parameters
    ----------
    name
        The scenario.
    seed
        Equal seeds give equal nodes.
    onset_seconds
        When its fault begins, from the start.
    """

    name: str
    seed: int = 0
    onset_seconds: float = DEFAULT_ONSET_SECONDS


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
        Samples finer than a second for the fast page; ``None`` if none are asked for.
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
    config: ExporterConfig, registered: Mapping[str, Registration], demo: Demo | None = None
) -> Iterator[Parts]:
    """Lend the parts; a demonstration ends with them.

    Parameters
    ----------
    config, registered
        The settings and the collectors there are.
    demo
        Shown instead of this node.
    """
    with contextlib.ExitStack() as stack:
        command: tuple[str, ...] | None = None
        notes: tuple[str, ...] = ()
        if demo is None:
            sources = real_sources(config)
        else:
            node = _started(demo)
            stack.callback(node.stop)
            config = node.settings(config)
            sources = node.sources(config)
            command = (sys.executable, "-m", "peerwatch_exporter.driver", *node.driver_arguments)
            notes = (_note(demo),)
        sampler = _sampler(config, sources)
        yield Parts(
            config,
            sources,
            registered,
            driver=_driver(config, sources, registered, command),
            sampler=sampler,
            burst=None if sampler is None else sampler.burst,
            fine=_fine(config, sampler, sources),
            notes=notes,
        )


def _started(demo: Demo) -> DemoNode:
    # Only a demonstration pays for it.
    from peerwatch_exporter.demo import start  # noqa: PLC0415

    return start(demo.name, demo.seed, demo.onset_seconds)


def _note(demo: Demo) -> str:
    return (
        f"A demonstration: everything here is made up. Scenario {demo.name}, seed {demo.seed}, "
        f"fault after {demo.onset_seconds:g} s."
    )


def _driver(
    config: ExporterConfig,
    sources: Sources,
    registered: Mapping[str, Registration],
    command: tuple[str, ...] | None,
) -> Driver | None:
    names = enabled_collectors(config, registered)
    if not any(registered[name].place == "driver" for name in names):
        return None
    from peerwatch_exporter.driver.manager import Driver  # noqa: PLC0415

    return Driver(config, sources, command=command)


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
