"""Detectors that share jobs, a Prometheus with the shipped rules, Alertmanager and a pager.

Real processes; the test's own exposition takes the place of the exporters.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from asking import query, query_range
from simulated_cluster import python_path
from training_exposition import METRIC, TrainingExposition

from peerwatch_demo.stack.servers import (
    Process,
    Server,
    Stack,
    Target,
    alertmanager,
    alertmanager_config,
    free_ports,
    prometheus,
    prometheus_config,
)
from peerwatch_demo.stack.webhook import Notification, WebhookReceiver

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "rules").glob("*.rules.yaml"))
CYCLE_SECONDS = 4
# Prometheus asks the targets this often.
SCRAPE_SECONDS = 1
NODES = 4

LOAD = {
    "name": "load",
    "unit": "ratio",
    "recorded": METRIC,
    "expression": "load{ {{- job -}} }",
    "bounds": [0, 1],
    "min_effect_size": 0.1,
}


@dataclass
class DetectorGroup:
    """Some detectors and all they need.

    Parameters
    ----------
    ports
        By member.
    replication
        How many of them evaluate the same job.
    """

    stack: Stack
    exposition: TrainingExposition
    prometheus: Server
    receiver: WebhookReceiver
    ports: dict[str, int]
    replication: int
    processes: dict[str, Process] = field(default_factory=dict)

    def start(self, member: str) -> None:
        settings = {
            "prometheus": {"url": self.prometheus.url, "timeout_seconds": 5},
            "listen": {"address": "127.0.0.1", "port": self.ports[member]},
            "replicas": {"enabled": True, "member": member, "replication": self.replication},
            "metrics": {"extra": [LOAD], "enabled": ["load"]},
            "cycle_seconds": CYCLE_SECONDS,
            "history_seconds": 120,
            "continuity": {"threshold_seconds": 10, "clear_seconds": 60},
            "similarity": {"baseline_seconds": 60},
            "peerwatch": {"level_seconds": 5},
        }
        config = self.stack.directory / f"{member}.yaml"
        config.write_text(yaml.safe_dump(settings))
        self.processes[member] = self.stack.start(
            member,
            [sys.executable, "-m", "peerwatch_detector", "run", "--config", str(config)],
            environment=os.environ | {"PYTHONPATH": python_path()},
        )

    def instance(self, member: str) -> str:
        """Return the label that Prometheus gives a member's series."""
        return f"127.0.0.1:{self.ports[member]}"

    def evaluated(self) -> dict[str, set[str]]:
        """Return the jobs that each member publishes a detection of."""
        found: dict[str, set[str]] = {member: set() for member in self.ports}
        for series in query(self.prometheus.url, "peerwatch_job_owner"):
            found[series["metric"]["member"]].add(series["metric"]["job_id"])
        return found

    def naming(self) -> set[str]:
        """Return the members that publish a finding."""
        found = {
            series["metric"]["instance"]
            for series in query(self.prometheus.url, "peerwatch_finding")
        }
        return {member for member in self.ports if self.instance(member) in found}

    def values(
        self, expression: str, start: float, end: float, *, scraped: str | None = None
    ) -> list[float | None]:
        """Return one series' values second by second, None where it has none.

        Seconds in which a busy machine let a scrape of the member ``scraped`` fail are left out.
        """
        first, last = math.ceil(start), int(end)
        values_by_second = self._values_by_second(expression, first, last)
        up = scraped and self._values_by_second(
            f'up{{instance="{self.instance(scraped)}"}}', first, last
        )
        seconds = range(first, last + 1)
        return [values_by_second.get(second) for second in seconds if not up or up.get(second) != 0]

    def _values_by_second(self, expression: str, first: int, last: int) -> dict[int, float]:
        (series,) = query_range(self.prometheus.url, expression, first, last)
        return {int(at): float(value) for at, value in series["values"]}

    def pages(self) -> tuple[Notification, ...]:
        return self.receiver.notifications("/page")


@contextmanager
def detector_group(
    members: Sequence[str], jobs: tuple[str, ...], replication: int = 1
) -> Iterator[DetectorGroup]:
    """Give a group whose detectors are yet to be started, and take everything down at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-replicas-") as directory,
        TrainingExposition(jobs, nodes=NODES) as exposition,
        WebhookReceiver() as receiver,
        Stack(Path(directory)) as stack,
    ):
        *ports, prometheus_port, alertmanager_port = free_ports(len(members) + 2)
        example = ROOT / "rules" / "alertmanager.example.yaml"
        manager = alertmanager(stack, alertmanager_port, alertmanager_config(example, receiver.url))
        targets = [Target("exporters", exposition.address, {"cluster": "test"})]
        targets += [
            Target("peerwatch-detector", f"127.0.0.1:{port}", {"cluster": "test"}) for port in ports
        ]
        config = prometheus_config(
            targets, rules=RULES, alertmanager=manager.url, interval=f"{SCRAPE_SECONDS}s"
        )
        server = prometheus(stack, prometheus_port, config)
        by_member = dict(zip(members, ports, strict=True))
        yield DetectorGroup(stack, exposition, server, receiver, by_member, replication)
