"""Preset ``fast``: the detector on the fast endpoints alone, the dashboards on the full endpoints.

The full endpoints are scraped as rarely as where this preset is for, and recorded by the slow
rules, which the detector does not read.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from asking import query, wait_for

from dashboard_queries import DASHBOARDS, panel_queries
from peerwatch_demo.stack.servers import Server, Stack, free_ports, prometheus, prometheus_config
from peerwatch_demo.stack.servers import Target as Scraped
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.models.shipped import configured_bundle
from peerwatch_detector.reading.reader import PrometheusReader
from peerwatch_detector.service.detector import Detector

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-1")]

NODES = ("gpu-a", "gpu-b", "gpu-c", "gpu.d")
ROOT = Path(__file__).parents[2]
SLOW_RULES = ROOT / "rules" / "slow" / "slow.rules.yaml"
WHOLE, FAST = "peerwatch-exporter", "peerwatch-exporter-fast"
# Long enough for windows of 8 s, and for readings that began after the first scrape.
SECONDS = 40


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A Prometheus that scraped four demo nodes: fast endpoints every second, full ones rarely."""
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-fast-") as folder,
        Stack(Path(folder)) as stack,
    ):
        *ports, server_port = free_ports(len(NODES) + 1)
        targets = []
        for seed, (node, port) in enumerate(zip(NODES, ports, strict=True)):
            address = f"127.0.0.1:{port}"
            command = [sys.executable, "-m", "peerwatch_demo.exporter", "healthy"]
            command += ["--seed", str(seed), "--listen", address]
            stack.start(node, command, ready=f"http://{address}/-/ready")
            labels = {"node": node, "__metrics_path__": "/metrics/fast"}
            targets.append(Scraped(FAST, address, labels))
            targets.append(Scraped(WHOLE, address, {"node": node}))
        config = yaml.safe_load(prometheus_config(targets, rules=[SLOW_RULES]))
        (whole,) = [scrape for scrape in config["scrape_configs"] if scrape["job_name"] == WHOLE]
        whole["scrape_interval"] = "15s"
        started = prometheus(stack, server_port, yaml.safe_dump(config))
        time.sleep(SECONDS)
        yield started


@pytest.fixture(scope="module", params=[True, False], ids=["series", "expressions"])
def detection(server: Server, request: pytest.FixtureRequest) -> Iterator[Detection]:
    """What a detector says of the job, by the series or by the joined expressions."""
    config = DetectorConfig.model_validate(
        {"preset": "fast", "prometheus": {"url": server.url, "recorded": request.param}}
    )
    with PrometheusReader(config.prometheus) as reader:
        detector = Detector(config, reader, configured_bundle(config)[0])

        def evaluated() -> Detection | None:
            detector.cycle()
            # What a busy machine did not scrape in time is missing from what is evaluated.
            found = detector.snapshot.detections
            return found[0] if found and {1.0} == {*found[0].coverage.values()} else None

        yield wait_for("a detection", evaluated)


def test_the_job_and_its_nodes_are_known(detection: Detection) -> None:
    assert NODES == detection.job.nodes
    assert detection.comparable


def test_every_metric_comes_from_every_node(detection: Detection) -> None:
    names = {metric.name for metric in DetectorConfig(preset="fast").detection_metrics()}

    assert dict.fromkeys(names, 1.0) == detection.coverage


def test_nobody_is_named_in_health(detection: Detection) -> None:
    assert () == detection.findings


@pytest.mark.parametrize("board", ["job", "fabric"])
def test_the_dashboards_draw_what_the_slow_rules_record(server: Server, board: str) -> None:
    (path,) = [dashboard for dashboard in DASHBOARDS if dashboard.stem == board]
    (job_id,) = {
        series["metric"]["job_id"]
        for series in query(server.url, f'host_job_info{{node="{NODES[0]}"}}')
    }
    chosen = {"job_id": job_id, "node": NODES[0], "__range": "60s"}
    asked = [
        panel_query.expr
        for panel_query in panel_queries(path, chosen)
        if "job_gpu:" in panel_query.expr or re.search("job_node:(?!membership)", panel_query.expr)
    ]

    def empty() -> list[str]:
        return [expr for expr in asked if not query(server.url, expr)]

    assert asked
    # A rate needs two scrapes, and then a rule's turn.
    wait_for(f"series of {board}", lambda: not empty())
