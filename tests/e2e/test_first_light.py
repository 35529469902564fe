"""The whole loop on real parts: a fault on one simulated node becomes one page with its name.

Real exporter processes (over files and a fake driver), a real Prometheus with the shipped rules,
a real Alertmanager with the shipped routing, the detector with models trained on the healthy
stretch read from that Prometheus. Then the detector and Prometheus are killed in mid-fault.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import fetch, query, wait_for
from simulated_cluster import Cluster, python_path

from dashboard_queries import dashboard_expressions
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
JOB = "pretrain-17"
FAULTY = 2
SIZE = 6
HEALTHY_SECONDS = 55
CONTINUITY_SECONDS = 12
# All ten would take half a minute of CPU more.
TRAINED = {"gpu_power", "gpu_sm_clock", "cpu_usage"}
SINCE = "peerwatch_finding_start_timestamp_seconds"

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-2")]


@dataclass
class Loop:
    """Everything that runs, and how to ask it."""

    stack: Stack
    cluster: Cluster
    prometheus: Server
    receiver: WebhookReceiver
    detector_port: int
    detector: Process | None = None
    started: float = 0.0

    @property
    def pages(self) -> tuple[Notification, ...]:
        """What was paged, but for the detector's absence: on a slow machine it starts late."""
        absent = "PeerwatchDetectorDown"
        found = self.receiver.pages()
        return tuple(page for page in found if page.group_labels.get("alertname") != absent)

    def start_detector(self, models: Path | None) -> None:
        settings = {
            "prometheus": {"url": self.prometheus.url, "timeout_seconds": 5},
            "listen": {"address": "127.0.0.1", "port": self.detector_port},
            "cycle_seconds": 1,
            "history_seconds": 300,
            "continuity": {"threshold_seconds": CONTINUITY_SECONDS, "clear_seconds": 60},
            "similarity": {"baseline_seconds": 30},
        }
        if models is not None:
            settings["models"] = str(models)
        config = self.stack.directory / "detector.yaml"
        config.write_text(yaml.safe_dump(settings))
        self.detector = self.stack.start(
            "detector",
            [sys.executable, "-m", "peerwatch_detector", "run", "--config", str(config)],
            environment=os.environ | {"PYTHONPATH": python_path()},
            ready=f"{self.detector_url}/-/healthy",
        )

    @property
    def detector_url(self) -> str:
        return f"http://127.0.0.1:{self.detector_port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        return query(self.prometheus.url, expression)

    def jobs(self) -> list[dict[str, Any]]:
        return json.loads(fetch(f"{self.detector_url}/api/v1/jobs"))["jobs"]


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-e2e-") as directory,
        WebhookReceiver() as receiver,
        Stack(Path(directory)) as stack,
    ):
        cluster = Cluster(stack, JOB, SIZE)
        detector_port, prometheus_port, alertmanager_port = free_ports(3)
        example = ROOT / "rules" / "alertmanager.example.yaml"
        manager = alertmanager(stack, alertmanager_port, alertmanager_config(example, receiver.url))
        detector_target = Target(
            "peerwatch-detector", f"127.0.0.1:{detector_port}", {"cluster": "test"}
        )
        config = prometheus_config(
            [*cluster.targets, detector_target], rules=RULES, alertmanager=manager.url
        )
        server = prometheus(stack, prometheus_port, config)
        yield Loop(stack, cluster, server, receiver, detector_port, started=time.time())


@pytest.fixture(scope="module")
def models(loop: Loop) -> Path:
    """Train on the healthy stretch, read from Prometheus by the command a user would type."""
    series = f'count(count_over_time(job_gpu:power:watts{{job_id="{JOB}"}}[5m]))'
    wait_for("recorded series", lambda: loop.query(series))
    wait_for("a healthy stretch", lambda: time.time() > loop.started + HEALTHY_SECONDS, 90)
    output = loop.stack.directory / "models.npz"
    config = loop.stack.directory / "train.yaml"
    config.write_text(yaml.safe_dump({"metrics": {"enabled": sorted(TRAINED)}}))
    now = time.time()
    training = loop.stack.start(
        "train",
        [
            sys.executable,
            "-m",
            "peerwatch_detector",
            "train",
            "--config",
            str(config),
            "--prometheus",
            loop.prometheus.url,
            "--job-id",
            JOB,
            "--start",
            f"{loop.started + 15:.0f}",
            "--end",
            f"{now:.0f}",
            "--steps",
            "120",
            "--output",
            str(output),
        ],
        environment=os.environ | {"PYTHONPATH": python_path()},
    )
    assert training.popen.wait(600) == 0, training.tail()
    return output


@pytest.fixture(scope="module")
def paged(loop: Loop, models: Path) -> Loop:
    """The loop after the first page."""
    loop.start_detector(models)
    wait_for("the job evaluated", lambda: loop.jobs() and loop.jobs()[0]["comparable"])
    time.sleep(5)
    assert loop.pages == ()
    assert loop.query("peerwatch_finding") == []
    loop.cluster.slow(FAULTY)
    wait_for("a page", lambda: loop.pages)
    return loop


def test_the_models_in_use_are_the_trained_ones(paged: Loop) -> None:
    models = paged.query('peerwatch_model_info{model="lstm_vae"}')
    assert TRAINED == {model["metric"]["metric"] for model in models}


def test_one_page_names_the_faulty_node(paged: Loop) -> None:
    page = paged.pages[0]
    assert page.nodes() == (f"node-{FAULTY}",)
    assert {alert.labels["job_id"] for alert in page.firing()} == {JOB}
    annotations = page.firing()[0].annotations
    assert f"node-{FAULTY}" in annotations["description"]
    assert annotations["runbook_url"].startswith("https://")


def test_the_finding_and_its_scores_are_series(paged: Loop) -> None:
    (finding,) = wait_for("it is scraped", lambda: paged.query("peerwatch_finding == 1"))
    assert finding["metric"]["node"] == f"node-{FAULTY}"
    assert finding["metric"]["severity"] == "critical"
    scores = {
        series["metric"]["node"]: float(series["value"][1])
        for series in paged.query(f'peerwatch_fault_score{{job_id="{JOB}"}}')
    }
    assert len(scores) == SIZE
    assert scores[f"node-{FAULTY}"] == 1
    assert max(score for node, score in scores.items() if node != f"node-{FAULTY}") < 1


def test_the_view_for_people_shows_the_node_against_its_peers(paged: Loop) -> None:
    index = fetch(f"{paged.detector_url}/")
    assert f"node-{FAULTY}" in index
    (picture,) = re.findall(r"<svg.*?</svg>", index, re.DOTALL)
    assert f"of node-{FAULTY} and its peers: at the end " in picture
    (line,) = re.findall(r'<path d="([^"]*)" stroke="[^"]*" stroke-width="2"', picture)
    assert line.count("L") > 5
    assert f"Training job {JOB}" in fetch(f"{paged.detector_url}/jobs/{JOB}")


# Why a panel may be empty in this cluster; every other expression must return series.
EMPTY_HERE = {
    "rank_": "the simulated nodes run no rank processes",
    "heartbeat_age": "the simulated nodes run no rank processes",
    "absent": "nothing is absent",
    "span_": "the simulated nodes run no rank processes",
    "collective_": "the simulated nodes run no rank processes",
    "peerwatch_diagnosis": "the same: no job says anything itself",
    "peerwatch_job_progress_ratio": "the same: nobody tells of steps",
    "log_": "the same: nobody writes a log",
    "ping_sent_total": "the simulated nodes send no pings",
    "ping_recent_round_trip_seconds": "the same",
    "peerwatch_job_traffic": "a job's usual traffic is known after ten minutes",
    "peerwatch_job_config": "nodes are compared in their settings after minutes, and are alike",
}


def test_every_dashboard_expression_returns_series(paged: Loop) -> None:
    path = ROOT / "dashboards" / "job.json"
    variables = {"job_id": JOB, "node": f"node-{FAULTY}", "cluster": "test"}
    asked = [
        expression
        for _, expression in dashboard_expressions(path, variables)
        if not any(part in expression for part in EMPTY_HERE)
    ]
    # One scrape that a busy machine misses takes its series away until the next.
    for expression in asked:
        wait_for(expression, lambda expression=expression: paged.query(expression))


def test_restarts_in_mid_fault_neither_resolve_nor_page_again(paged: Loop, models: Path) -> None:
    before = wait_for("it is scraped", lambda: paged.query(SINCE))[0]
    assert paged.detector is not None
    paged.detector.kill()
    paged.start_detector(models)
    wait_for("the finding is back", lambda: paged.jobs() and paged.jobs()[0]["findings"])
    (restored,) = wait_for("it is scraped", lambda: paged.query(SINCE))
    assert restored["metric"] == before["metric"]
    assert float(restored["value"][1]) == pytest.approx(float(before["value"][1]), abs=2)

    paged.prometheus.process.kill()
    no_errors = 'peerwatch_read_errors_total{reason="unreachable"} 0.0'
    wait_for(
        "a metric says so",
        lambda: "peerwatch_reader_up 0.0" in fetch(f"{paged.detector_url}/metrics"),
    )
    assert no_errors not in fetch(f"{paged.detector_url}/metrics")
    assert paged.jobs()[0]["findings"] != []
    assert "cannot be read" in fetch(f"{paged.detector_url}/")

    paged.stack.start(
        "prometheus-again",
        paged.prometheus.process.popen.args,
        ready=f"{paged.prometheus.url}/-/ready",
    )
    wait_for(
        "it recovers",
        lambda: "peerwatch_reader_up 1.0" in fetch(f"{paged.detector_url}/metrics"),
    )
    time.sleep(15)
    (after,) = wait_for("it is scraped", lambda: paged.query(SINCE))
    assert after["metric"] == before["metric"]
    assert len(paged.pages) == 1
    sent = paged.receiver.notifications("/page")
    (status,) = [
        notification.status
        for notification in sent
        if notification.group_labels == paged.pages[0].group_labels
    ]
    assert status == "firing"
