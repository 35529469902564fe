"""Preset dcgm: expositions as dcgm-exporter, node_exporter and rdma_exporter have them.

Two nodes of one job each serve the three files in ``expositions/``; a real Prometheus scrapes them
with the relabelling that the preset asks for, and records what the detector reads.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from peerwatch_demo.stack.local_server import LocalServer
from peerwatch_demo.stack.servers import (
    Server,
    Stack,
    Target,
    free_ports,
    prometheus,
    prometheus_config,
)
from peerwatch_detector.config import load_preset
from peerwatch_detector.reading.promql import job_matcher, joined_query, present_nodes, running_jobs

ROOT = Path(__file__).parents[2]
EXPOSITIONS = Path(__file__).parent / "expositions"
PRESET = ROOT / "detector" / "peerwatch_detector" / "config" / "presets" / "dcgm.yaml"
RULES = ROOT / "rules" / "dcgm" / "dcgm.rules.yaml"
NODES = ("node-1", "node-2")
JOB = "4711"
# Every counter grows by this share of the number in the exposition each second.
GROWTH = 0.01

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-3")]

EXPECTED = {
    "pfc_tx_rate": 200,
    "tcp_retransmissions": 3,
    "ecn_rate": 900,
    "cnp_rate": 50,
    "cpu_usage": 0.5,
    "gpu_duty_cycle": 0.87,
    "gpu_power": 612.5,
    "gpu_tensor_activity": 0.431,
    "gpu_graphics_activity": 0.912,
    "gpu_sm_clock": 1.98e9,
    "nvlink_bandwidth": 2.35e11,
    "pcie_bandwidth": 1.2e10,
    "tcp_rdma_throughput": 1e10,
    "network_throughput": 1.5e8,
    "memory_usage": 0.75,
    "gpu_memory_used": 40960 * 2**20,
}


def grown(exposition: str, seconds: float) -> str:
    """Return an exposition whose counters have grown for so long."""
    counters = set(re.findall(r"^# TYPE (\S+) (?:counter|untyped)$", exposition, re.MULTILINE))
    lines = []
    for line in exposition.splitlines():
        name = re.split(r"[{ ]", line, maxsplit=1)[0]
        if name not in counters:
            lines.append(line)
            continue
        series, value = line.rsplit(" ", 1)
        lines.append(f"{series} {float(value) * (1 + GROWTH * seconds)!r}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def exporters() -> Iterator[str]:
    """One server for all: the path names the exposition."""
    started = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            exposition = (EXPOSITIONS / f"{self.path.strip('/')}.prom").read_text()
            body = grown(exposition, time.monotonic() - started).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with LocalServer(Handler) as server:
        yield server.address


def relabelling() -> list[dict[str, object]]:
    """Return what the head of the preset tells people to put into their scrape configuration."""
    head = PRESET.read_text().split("\ndiscovery:")[0]
    lines = re.findall(r"^# +(- \{.*\})$", head, re.MULTILINE)
    return [rule for line in lines for rule in yaml.safe_load(line)]


@pytest.fixture(scope="module")
def server(exporters: str) -> Iterator[Server]:
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-dcgm-") as folder,
        Stack(Path(folder)) as stack,
    ):
        targets = [
            # The address is the same for all; instance keeps the targets apart.
            Target(file.stem, exporters, {"node": node, "instance": f"{node}:{file.stem}"})
            for file in sorted(EXPOSITIONS.glob("*.prom"))
            for node in NODES
        ]
        config = yaml.safe_load(prometheus_config(targets, rules=[RULES]))
        for job in config["scrape_configs"]:
            job["metrics_path"] = "/" + job["job_name"]
            if job["job_name"] == "dcgm_exporter":
                job["metric_relabel_configs"] = relabelling()
        (port,) = free_ports(1)
        yield prometheus(stack, port, yaml.safe_dump(config))


def query(server: Server, expression: str) -> list[tuple[dict[str, str], float]]:
    form = urllib.parse.urlencode({"query": expression}).encode()
    with urllib.request.urlopen(f"{server.url}/api/v1/query", form, 60) as answer:
        result = json.load(answer)["data"]["result"]
    return [(row["metric"], float(row["value"][1])) for row in result]


def until(condition: Callable[[], object], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_the_preset_and_the_expectations_name_the_same_metrics() -> None:
    assert EXPECTED.keys() == {metric.name for metric in load_preset("dcgm").metrics}


def test_the_detector_finds_the_job_and_its_nodes(server: Server) -> None:
    discovery = load_preset("dcgm").discovery
    until(lambda: len(query(server, running_jobs(discovery.job_info))) == len(NODES))

    jobs = {
        (row["job_id"], row["node"]) for row, _ in query(server, running_jobs(discovery.job_info))
    }
    present = {row["node"] for row, _ in query(server, present_nodes(discovery.presence))}

    assert {(JOB, node) for node in NODES} == jobs
    assert set(NODES) == present


@pytest.mark.parametrize("metric", load_preset("dcgm").metrics, ids=lambda metric: metric.name)
def test_each_metric_is_recorded_for_each_node(server: Server, metric) -> None:
    # A rate is right once its window is full; the last of them to come is a rate.
    until(lambda: query(server, "count_over_time(job_node:network_throughput:rate[1m]) > 20"))

    recorded = f"{metric.recorded}{{{job_matcher(JOB)}}}"
    for expression in (recorded, joined_query(metric, JOB, 15)):
        rows = query(server, expression)
        gpu = {"gpu": "0"} if metric.scope == "gpu" else {}

        found = [{k: v for k, v in labels.items() if k != "__name__"} for labels, _ in rows]
        assert [{"job_id": JOB, "node": node, **gpu} for node in NODES] == sorted(
            found, key=lambda labels: labels["node"]
        )
        assert [pytest.approx(EXPECTED[metric.name], rel=0.1)] * 2 == [value for _, value in rows]


def test_another_job_gets_nothing(server: Server) -> None:
    for metric in load_preset("dcgm").metrics:
        assert [] == query(server, joined_query(metric, "4712", 15))
