"""The host as sources reach it: roots of its files, clocks, processes; all of it is handed in.

What not every process reads is loaded where it is first asked for: the driver process is given
such a host, too, and needs few of its parts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.own_processes import OwnProcesses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from peerwatch_exporter.sources.host.machine import Machine
    from peerwatch_exporter.sources.host.processes import ProcessTable


@dataclass(frozen=True, slots=True)
class Paths:
    """Roots of the host's files; without ``checks`` no results of checks are read."""

    procfs: Path
    sysfs: Path
    kmsg: Path
    checks: Path | None = None


@dataclass(frozen=True)
class HostAccess:
    """Where the host is read, and by which clocks.

    Parameters
    ----------
    paths
        Roots of the host's files.
    clock
        Unix time in seconds.
    monotonic
        Seconds that only rise, for durations.
    own_processes
        The exporter's own processes; whoever starts a child adds it here.
    """

    paths: Paths
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    own_processes: OwnProcesses = field(default_factory=OwnProcesses)

    @cached_property
    def machine(self) -> Machine:
        """The counters of the whole machine."""
        from peerwatch_exporter.sources.host.machine import Machine  # noqa: PLC0415 - see above

        return Machine(self.paths.procfs, self.monotonic)

    @cached_property
    def processes(self) -> ProcessTable:
        """The node's processes, listed once for all collectors of one scrape."""
        from peerwatch_exporter.sources.host.processes import ProcessTable  # noqa: PLC0415

        return ProcessTable(self.paths.procfs, monotonic=self.monotonic, forks=self.machine.forks)
