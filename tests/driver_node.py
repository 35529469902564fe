"""A node whose driver processes are real and whose NVML library is faulty on demand."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware_cases import scenario_of
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.driver.limits import Limits
from peerwatch_exporter.driver.manager import Driver
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_exporter.schedule.worker import Report

CHILD = Path(__file__).parent / "exporter" / "hanging_driver.py"
UUID = "GPU-{0:08x}-51ce-4a7b-9d20-7be1f00c{0:04x}".format
# Long enough for a Python process to start on a busy machine, short enough for a test.
QUICK = Limits(
    hang=1.0,
    run=3.0,
    library=60.0,
    death=1.0,
    first_pause=0.1,
    longest_pause=0.4,
    stable=0.6,
    absence=3600.0,
    hold=60.0,
    first_start=0.0,
    poll=0.05,
)
# Where nothing is to hang, nothing is taken for hanging, however busy the machine.
PATIENT = replace(QUICK, hang=60.0, run=60.0)
FAST = ("gpu", "nvlink", "gpm", "gpu_pcie")
PATIENCE = 300.0


class DriverNode:
    """Drives the driver as the runner does.

    Attributes
    ----------
    scenario
        What the library answers; ``write`` lets the children see changes.
    """

    def __init__(self, root: Path, scenario: dict[str, Any], names=FAST, **options: Any) -> None:
        self.scenario = scenario
        self.path = root / "nvml.json"
        self.version = root / "proc" / "driver" / "nvidia" / "version"
        self.version.parent.mkdir(parents=True)
        self.write()
        settings = {"deadline_seconds": 0.3, "paths": {"procfs": root / "proc"}}
        config = ExporterConfig.model_validate(settings | options.pop("config", {}))
        self.sources = Sources(Paths(root / "proc", root / "sys", root / "kmsg"))
        options = {
            "limits": PATIENT,
            "command": [sys.executable, str(CHILD), str(self.path)],
            **options,
        }
        self.driver = Driver(config, self.sources, **options)
        known = registrations()
        self.workers = {
            worker.name: worker for worker in self.driver.workers([known[n] for n in names])
        }

    def write(self, **changes: Any) -> None:
        """Let the children answer from the scenario as it is now."""
        self.scenario.update(changes)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.scenario))
        new.replace(self.path)

    def tick(self) -> dict[str, Report]:
        """Ask every collector once, as the runner does every second."""
        for worker in self.workers.values():
            worker.request()
        deadline = time.monotonic() + 0.3
        return {name: worker.report(deadline) for name, worker in self.workers.items()}

    def until(self, holds: Callable[[dict[str, Report]], Any]) -> dict[str, Report]:
        """Tick until something holds of the reports; return them."""
        end = time.monotonic() + PATIENCE
        while True:
            reports = self.tick()
            if holds(reports):
                return reports
            assert time.monotonic() < end, reports
            time.sleep(0.05)

    def children(self) -> set[int]:
        """Return the process ids of the children there are."""
        use = self.sources.own_processes._processes
        return {pid for pid, process in use.items() if process.kind == "driver"}

    def touched(self, pid: int) -> set[int]:
        """Return the GPUs that a process touched."""
        lines = Path(f"{self.path}.touched").read_text().splitlines()
        pairs = [tuple(map(int, line.split())) for line in lines if line.count(" ") == 1]
        return {gpu for process, gpu in pairs if process == pid}


@contextlib.contextmanager
def driver_node(root: Path, gpus: int = 3, **options: Any) -> Iterator[DriverNode]:
    """Yield a running node with some of the eight GPUs of the H100 fixture."""
    scenario = scenario_of("h100_node")
    scenario["gpus"] = scenario["gpus"][:gpus]
    scenario.update(options.pop("scenario", {}))
    before = options.pop("before", None)
    if before is not None:
        before(scenario)
    node = DriverNode(root, scenario, **options)
    node.driver.start()
    try:
        yield node
    finally:
        node.driver.stop()


def values(report: Report) -> dict[tuple[str, ...], float]:
    """Return every sample of a report by (metric name, label values in order)."""
    return {(f.spec.name, *labels): value for f in report.families for labels, value in f.rows}


def gpus_of(report: Report, metric: str) -> set[str]:
    """Return the GPUs that a metric has samples of."""
    return {labels[0] for f in report.families if f.spec.name == metric for labels, _ in f.rows}


def restarts(reports: dict[str, Report]) -> dict[str, float]:
    """Return how often children were restarted, by reason."""
    rows = values(reports["gpu"]).items()
    found = {key[1]: value for key, value in rows if key[0] == "exporter_nvml_restarts_total"}
    return {reason: count for reason, count in found.items() if count}
