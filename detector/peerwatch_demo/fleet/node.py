"""One node of the fleet: the exporter's own collectors, runner and endpoints over a simulated node.

Nothing of it runs by itself: a visit writes the node's files as they stand at a time and lets the
runner take one snapshot. So a visit may lie in the past, and one process can be many nodes.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from peerwatch_demo.fleet.plan import PlannedNode
from peerwatch_demo.simulated_node.node import Tree
from peerwatch_demo.simulated_node.node_plan import JOB_ID
from peerwatch_demo.simulated_node.nvml import SimulatedNvml
from peerwatch_demo.simulated_node.nvml_library import put_in_place
from peerwatch_demo.simulated_node.scenario import Scenario
from peerwatch_exporter import __version__
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.pages.endpoints import Endpoints
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.schedule.worker_set import make_workers
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.settings.load import load_config
from peerwatch_exporter.snapshot import Snapshot

# The slow collectors, which the exporter runs every 10 s, run at the first visit after so long: the
# step of the past (run.py).
_SLOW_SECONDS = 15.0
# Visits of the past are further apart than the exporter's own snapshots ever are: two of their
# steps.
_LONGEST_STEP_SECONDS = 30.0
# No simulated call hangs, but the nodes of a process on a busy machine take each other's time: in
# half a second not all collectors of a node had come, and what is missing looks like a fault.
_DEADLINE_SECONDS = 3.0


class Clock:
    """Stands where it was set and goes on from there as time does, also in the past."""

    def __init__(self, now: float) -> None:
        self.set(now)

    def set(self, now: float) -> None:
        """Let it be this Unix time now."""
        self.set_to, self._since = now, time.monotonic()

    def __call__(self) -> float:
        """Return the Unix time in seconds."""
        return self.set_to + time.monotonic() - self._since


class FleetNode:
    """A simulated node and its exporter, both of this process; one thread at a time.

    Parameters
    ----------
    planned
        Which node it is.
    scenario
        What happens from the onset on.
    root
        A directory of its own that does not exist yet.
    start
        Unix time at which the simulation starts; nodes with the same start train in step.
    onset, now
        Unix times: when the scenario begins, and when the exporter starts.
    """

    def __init__(
        self,
        planned: PlannedNode,
        scenario: Scenario,
        root: Path,
        start: float,
        onset: float,
        now: float,
    ) -> None:
        self.planned = planned
        self._start = start
        self._clock = Clock(now)
        self._slow_due = now
        root.mkdir(parents=True)
        self._tree = Tree(root, scenario, planned.seed, start, onset - start)
        self._tree.create()
        self._library = SimulatedNvml(scenario, planned.seed, start, onset - start, self._clock)
        config = self._tree.settings(_default_config())
        sources = self._tree.sources(self._clock, self._clock)
        # A process of its own for the driver, as in production, would cost 64 times 20 MiB.
        workers = make_workers(config, sources, registrations(), None)
        self._runner = Runner(
            workers,
            sources,
            deadline_seconds=_DEADLINE_SECONDS,
            version=__version__,
            longest_step_seconds=_LONGEST_STEP_SECONDS,
        )
        self._endpoints = Endpoints(self._runner)

    def visit(self, now: float, slow_seconds: float = _SLOW_SECONDS) -> Snapshot:
        """Let the node be as it is at a Unix time, and return what the exporter then reads.

        Parameters
        ----------
        slow_seconds
            How long what the slow collectors read may stand.
        """
        self._clock.set(now)
        self._tree.update(now - self._start)
        # pynvml knows one library; the node's own answers while the node is visited.
        put_in_place(self._library)
        is_slow_due = now >= self._slow_due
        if is_slow_due:
            self._slow_due = now + slow_seconds
        return self._runner.tick(everybody=is_slow_due)

    def exposition(self, now: float) -> bytes:
        """Return /metrics as it is at a Unix time, in Prometheus' text format.

        Of two who asked at once the later one may have been answered first; time never goes back.
        """
        self.visit(max(now, self._clock.set_to))
        text = bytes(self._endpoints.full(openmetrics=False, timeout=0))
        return text.replace(_job_label(JOB_ID), _job_label(self.planned.job_id))

    def stop(self) -> None:
        """End the exporter."""
        self._runner.stop()


def _job_label(job_id: str) -> bytes:
    return f'job_id="{job_id}"'.encode()


@cache
def _default_config() -> ExporterConfig:
    return load_config(None, listen=None, known_collectors=registrations())
