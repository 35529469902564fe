"""The simulated node as an exporter reads it: its files, its sources and its life."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from peerwatch_demo.job.activity import STEP_SECONDS
from peerwatch_demo.simulated_node.ethtool import SimulatedEthtool
from peerwatch_demo.simulated_node.files import Files
from peerwatch_demo.simulated_node.kernel_log import KernelLog
from peerwatch_demo.simulated_node.machine import Machine
from peerwatch_demo.simulated_node.nics import Nic
from peerwatch_demo.simulated_node.node_plan import SLOTS, UPTIME_SECONDS
from peerwatch_demo.simulated_node.queries import MOUNTINFO, simulated_queries
from peerwatch_demo.simulated_node.ranks import Ranks
from peerwatch_demo.simulated_node.scenarios import SCENARIOS
from peerwatch_demo.simulated_node.sysfs import Sysfs
from peerwatch_exporter.settings.plain import from_plain, to_plain
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_demo.simulated_node.scenario import Scenario
    from peerwatch_exporter.settings.config import ExporterConfig

_LOG = logging.getLogger(__name__)

_DRIVER = (sys.executable, "-m", "peerwatch_demo.simulated_node.driver")

_MEMORY = "/dev/shm"  # noqa: S108 - the node makes a private directory in it
# How often the files change: chosen, well within a scrape. The bytes of the ports as often as a
# sampler could see it.
_UPDATE_SECONDS = 1.0
_TRAFFIC_SECONDS = 0.05


class Tree:
    """All files of the fake node, as they stand at a time.

    Parameters
    ----------
    root
        A directory of its own.
    scenario
        What happens.
    seed
        Decides the differences between parts and the noise.
    start
        Unix time of the demonstration's start.
    onset
        When the scenario's change begins, in seconds after the start.
    """

    def __init__(
        self, root: Path, scenario: Scenario, seed: int, start: float, onset: float
    ) -> None:
        self.paths = Paths(procfs=root / "proc", sysfs=root / "sys", kmsg=root / "kmsg")
        self.heartbeats = root / "heartbeat"
        self._start = start
        self.nics = tuple(Nic(slot.index, scenario, seed, onset) for slot in SLOTS)
        self._files = Files(root)
        boot_time = int(start) - UPTIME_SECONDS
        self._machine = Machine(scenario, seed, onset, boot_time)
        self._sysfs = Sysfs(self._files, scenario, onset, self.nics, self._machine)
        self._ranks = Ranks(self._files, scenario, onset, start)
        self._log = KernelLog(self._files, scenario, onset, start - boot_time)

    def create(self) -> None:
        """Write everything as it is at the start."""
        self._sysfs.create()
        self._log.create()
        self.heartbeats.mkdir()
        for slot in SLOTS:
            self._files.write(
                f"proc/driver/nvidia/gpus/{slot.gpu}/information", f"GPU UUID: {slot.uuid}\n"
            )
        self._files.write("proc/self/mountinfo", MOUNTINFO)
        self.update(0.0)

    def update(self, seconds: float) -> None:
        """Write what changed until a time (seconds after the start)."""
        for path, text in self._machine.files(seconds).items():
            self._files.write(f"proc/{path}", text)
        self._sysfs.update(seconds)
        self._ranks.update(seconds)
        self._log.update(seconds)

    def update_traffic(self, seconds: float) -> None:
        """Write only the bytes that the RDMA ports moved."""
        self._sysfs.update_traffic(seconds)

    def settings(self, config: ExporterConfig) -> ExporterConfig:
        """Return the settings with the node's own directories in place of the real ones."""
        changed = from_plain(to_plain(config))
        for name in ("procfs", "sysfs", "kmsg"):
            setattr(changed.paths, name, getattr(self.paths, name))
        changed.heartbeat.directory = self.heartbeats
        # A kubelet of the machine the demonstration runs on is none of this node's.
        changed.jobs.pod_resources_socket = None
        return cast("ExporterConfig", changed)

    def sources(
        self, clock: Callable[[], float], monotonic: Callable[[], float] = time.monotonic
    ) -> Sources:
        """Return the sources of the fake node, which lives by these clocks."""
        nics = {slot.interface: nic for slot, nic in zip(SLOTS, self.nics, strict=True)}

        def elapsed() -> float:
            return clock() - self._start

        return Sources(
            self.paths,
            clock=clock,
            monotonic=monotonic,
            ethtool=SimulatedEthtool(nics, elapsed),
            queries=simulated_queries(elapsed),
        )


class SimulatedNode:
    """A fake node that lives by the wall clock, in a temporary directory of its own.

    Parameters
    ----------
    name
        The scenario.
    seed
        Decides the differences between parts and the noise.
    onset
        When the scenario's change begins, in seconds after the start.
    clock
        Unix time in seconds.

    Raises
    ------
    KeyError
        If there is no such scenario.
    """

    def __init__(
        self, name: str, seed: int, onset: float, clock: Callable[[], float] = time.time
    ) -> None:
        scenario = SCENARIOS[name]
        self._clock = clock
        now = clock()
        # Nodes that are started together train in step, as the nodes of a job do.
        self._start = now // STEP_SECONDS * STEP_SECONDS
        onset += now - self._start
        self._arguments = (name, str(seed), repr(self._start), repr(float(onset)))
        self.root = Path(tempfile.mkdtemp(prefix="peerwatch-demo-", dir=_place()))
        atexit.register(self.stop)
        self.tree = Tree(self.root, scenario, seed, self._start, onset)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._live, name="demo", daemon=True)
        self._is_sampled = False

    @property
    def driver_command(self) -> tuple[str, ...]:
        """How to start a driver process that answers from the same scenario."""
        options = ("--scenario", "--seed", "--start", "--onset")
        pairs = zip(options, self._arguments, strict=True)
        return (*_DRIVER, *(word for pair in pairs for word in pair))

    def start(self) -> None:
        """Write the node's files and keep them up to date."""
        self.tree.create()
        self._thread.start()

    def settings(self, config: ExporterConfig) -> ExporterConfig:
        """Return the settings with the node's own directories in place of the real ones."""
        self._is_sampled = config.sampler.interval_milliseconds is not None
        return self.tree.settings(config)

    def sources(self, config: ExporterConfig) -> Sources:  # noqa: ARG002 - as real_sources
        """Return the sources of the fake node."""
        return self.tree.sources(self._clock)

    def stop(self) -> None:
        """End the node and remove its files; a second call does nothing."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        shutil.rmtree(self.root, ignore_errors=True)
        atexit.unregister(self.stop)

    def _elapsed(self) -> float:
        return self._clock() - self._start

    def _live(self) -> None:
        updated = 0.0
        while not self._stopped.wait(self._pause()):
            seconds = self._elapsed()
            try:
                if seconds // _UPDATE_SECONDS != updated // _UPDATE_SECONDS:
                    self.tree.update(seconds)
                    updated = seconds
                else:
                    self.tree.update_traffic(seconds)
            except OSError as error:
                _LOG.warning("demo node cannot write its files detail=%r", str(error))

    def _pause(self) -> float:
        period = _TRAFFIC_SECONDS if self._is_sampled else _UPDATE_SECONDS
        return period - self._elapsed() % period


def _place() -> str | None:
    """Return a directory in memory, as /proc and /sys are; None for the usual one."""
    is_possible = "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK | os.X_OK)
    return _MEMORY if is_possible else None
