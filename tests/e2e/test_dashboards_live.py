"""Every query of every dashboard on real servers: real exporters, the shipped rules, the detector.

One training job has a node with a rank that hangs; the nodes of another have one trouble each, so
that panels about troubles have something to show. What Prometheus scrapes and records goes to a
VictoriaMetrics as well, and both are asked what Grafana would ask.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from simulated_cluster import python_path

from dashboard_queries import (
    DASHBOARDS,
    MAY_BE_EMPTY,
    NOT_IN_THE_DEMO,
    Query,
    other_expressions,
    panel_queries,
)
from peerwatch_demo.fleet.demo_nodes import DemoNode, start_nodes, with_job_ids
from peerwatch_demo.stack.servers import (
    Stack,
    Target,
    find_program,
    free_ports,
    prometheus,
    prometheus_config,
)

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "rules").glob("*.rules.yaml"))
JOB, OTHER_JOB = "pretrain-17", "mixed-4"
MEMBERS = tuple(f"node-{number}" for number in range(1, 5))
FAULTY, SHOWN = "node-3", "nvlink-errors"
TROUBLES = ("lost_gpu", "nvlink_errors", "ecc_error", "nic_flap", "pfc_storm")
ONSET_SECONDS = 45
CONTINUITY_SECONDS = 10
ENGINES = ("prometheus", "victoria-metrics")
# What is chosen at the top of each dashboard; the node shown has the most to show.
CHOSEN = {
    "fleet": {},
    "job": {"job_id": JOB, "node": FAULTY},
    "node": {"job_id": ".*", "node": SHOWN},
    "fabric": {"job_id": ".*"},
    "detector": {},
    "reliability": {},
}

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-3")]


@dataclass(frozen=True)
class Fleet:
    """Base URLs by engine, when the play began, and the time at which all is asked.

    A range is that of the whole play: what happens once, as an XID error, is minutes old on a busy
    machine when the alert on another fault fires.
    """

    urls: dict[str, str]
    began: float
    now: float

    def ask(self, engine: str, query: Query) -> list[dict[str, Any]]:
        """Return what the engine answers to Grafana's request."""
        if query.instant:
            form = {"query": query.expr, "time": self.now}
            return post(f"{self.urls[engine]}/api/v1/query", form)
        form = {"query": query.expr, "start": self.began, "end": self.now, "step": 5}
        return post(f"{self.urls[engine]}/api/v1/query_range", form)


def post(url: str, form: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, urllib.parse.urlencode(form).encode(), 30) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{form['query']}: {error.read().decode()}") from error


def nodes(folder: Path) -> list[DemoNode]:
    sampled = folder / "sampled.yaml"
    sampled.write_text("sampler: {interval_milliseconds: 100}\n")
    scenarios = {name: "hung_rank" if name == FAULTY else "waiting" for name in MEMBERS}
    troubles = {name.replace("_", "-"): name for name in TROUBLES}
    return [
        DemoNode(
            name,
            JOB if name in scenarios else OTHER_JOB,
            scenario,
            ("--config", str(sampled)) if name == SHOWN else (),
        )
        for name, scenario in (scenarios | troubles).items()
    ]


def start_detector(stack: Stack, prometheus_url: str, port: int) -> None:
    settings = {
        "prometheus": {"url": prometheus_url},
        "listen": {"address": "127.0.0.1", "port": port},
        "cycle_seconds": 2,
        "history_seconds": 300,
        "peerwatch": {"fast_seconds": CONTINUITY_SECONDS, "fast_pair_seconds": CONTINUITY_SECONDS},
        "similarity": {"baseline_seconds": 30},
    }
    config = stack.directory / "detector.yaml"
    config.write_text(yaml.safe_dump(settings))
    stack.start(
        "detector",
        [sys.executable, "-m", "peerwatch_detector", "run", "--config", str(config)],
        environment=os.environ | {"PYTHONPATH": python_path()},
        ready=f"http://127.0.0.1:{port}/-/healthy",
    )


def start_victoria_metrics(stack: Stack, port: int) -> str:
    url = f"http://127.0.0.1:{port}"
    stack.start(
        "victoria-metrics",
        [
            find_program("victoria-metrics", "victoria-metrics-prod"),
            f"-storageDataPath={stack.directory}/victoria-metrics",
            f"-httpListenAddr=127.0.0.1:{port}",
            # What was written a moment ago is asked for.
            "-search.latencyOffset=1s",
            "-search.disableCache",
            "-loggerLevel=ERROR",
        ],
        ready=f"{url}/health",
    )
    return url


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-dashboards-") as folder,
        Stack(Path(folder)) as stack,
    ):
        began = time.time()
        server_port, detector_port, victoria_port = free_ports(3)
        victoria = start_victoria_metrics(stack, victoria_port)
        members = nodes(stack.directory)
        targets = start_nodes(stack, members, ONSET_SECONDS)
        detector = Target("peerwatch-detector", f"127.0.0.1:{detector_port}", {})
        config = prometheus_config([*targets, detector], rules=RULES, interval="2s")
        config = with_job_ids(config, members)
        config += f"remote_write: [{{url: {victoria}/api/v1/write}}]\n"
        server = prometheus(stack, server_port, config)
        start_detector(stack, server.url, detector_port)
        urls = dict(zip(ENGINES, (server.url, victoria), strict=True))
        # The last to come: the fault, then the finding, then the alert on it.
        alert = f'ALERTS{{alertname="PeerwatchFaultyNode", alertstate="firing", node="{FAULTY}"}}'
        # Series are sent on by themselves: the alert may arrive before what it is about.
        score = f'peerwatch_fault_score{{node="{FAULTY}"}} == 1'
        fires = Query("", f"{alert} and on () {score}", instant=True)
        deadline = time.monotonic() + 600
        while not all(Fleet(urls, began, time.time()).ask(engine, fires) for engine in ENGINES):
            assert time.monotonic() < deadline, stack.processes[-1].tail()
            time.sleep(0.5)
        yield Fleet(urls, began, time.time())


def queries(path: Path) -> list[Query]:
    return panel_queries(path, {**CHOSEN[path.stem], "__range": "60s"})


def without_series(fleet: Fleet, engine: str, asked: list[Query]) -> list[str]:
    """Return what has no series, at ``fleet.now`` nor later.

    One scrape that a busy machine misses takes series away until the next.
    """
    deadline = time.monotonic() + 120
    while asked := [query for query in asked if not fleet.ask(engine, query)]:
        if time.monotonic() > deadline:
            break
        time.sleep(1)
        fleet = replace(fleet, now=time.time())
    return [f"{query.title}: {query.expr}" for query in asked]


def may_be_empty(path: Path, query: Query) -> bool:
    listed = (path.stem, query.title) in MAY_BE_EMPTY
    return listed or any(metric in query.expr for metric in NOT_IN_THE_DEMO)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_of_a_panel_returns_series(fleet: Fleet, path: Path, engine: str) -> None:
    asked = [query for query in queries(path) if not may_be_empty(path, query)]

    assert [] == without_series(fleet, engine, asked)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_queries_of_variables_and_annotations_find_something(fleet: Fleet, path: Path) -> None:
    asked = [
        Query(what, expr, instant=True)
        for what, expr in other_expressions(path, CHOSEN[path.stem])
        if not may_be_empty(path, Query(what, expr, instant=True))
    ]

    assert [] == without_series(fleet, "prometheus", asked)


def panel(name: str, title: str) -> list[Query]:
    path = ROOT / "dashboards" / f"{name}.json"
    return [query for query in queries(path) if query.title == title]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_heat_map_shows_the_faulty_node_alone_in_red(fleet: Fleet, engine: str) -> None:
    (query,) = panel("job", "Who differs: fault score by node")

    def newest(now: float) -> dict[str, float]:
        shown = replace(fleet, now=now).ask(engine, query)
        return {series["metric"]["node"]: float(series["values"][-1][1]) for series in shown}

    # The newest step of a range may lie some seconds back, before the score was full.
    last, deadline = newest(fleet.now), time.monotonic() + 120
    while last.get(FAULTY) != 1 and time.monotonic() < deadline:
        time.sleep(1)
        last = newest(time.time())

    assert set(MEMBERS) == last.keys()
    assert {FAULTY} == {node for node, score in last.items() if score == 1}


def test_the_top_of_the_job_names_node_and_time(fleet: Fleet) -> None:
    (query,) = panel("job", "Which node, for how long")

    (series,) = fleet.ask("prometheus", query)

    assert {"node": FAULTY, "job_id": JOB} == series["metric"]
    assert 0 < float(series["value"][1]) < 900


@pytest.mark.parametrize("engine", ENGINES)
def test_the_findings_table_says_why_and_since_when(fleet: Fleet, engine: str) -> None:
    since, length = panel("fleet", "Findings")

    rows = [row for row in fleet.ask(engine, since) if row["metric"]["node"] == FAULTY]
    lengths = [row for row in fleet.ask(engine, length) if row["metric"]["node"] == FAULTY]

    assert rows
    for row in rows:
        assert JOB == row["metric"]["job_id"]
        assert FAULTY in row["metric"]["summary"]
        assert row["metric"]["family"]
        assert fleet.now - 900 < float(row["value"][1]) / 1000 < fleet.now
    assert len(rows) == len(lengths)


def test_the_alert_on_the_faulty_node_is_listed(fleet: Fleet) -> None:
    (query,) = panel("job", "Alerts")

    alerts = {row["metric"]["alertname"]: row for row in fleet.ask("prometheus", query)}

    assert FAULTY == alerts["PeerwatchFaultyNode"]["metric"]["node"]
    assert "critical" == alerts["PeerwatchFaultyNode"]["metric"]["severity"]


def test_the_fleet_tells_lost_gpus_and_hardware_xids(fleet: Fleet) -> None:
    (lost,) = panel("fleet", "GPUs lost")
    missing, *_ = panel("fleet", "Nodes with fewer GPUs than they should have")
    (hardware,) = panel("fleet", "Hardware XIDs")

    assert "1" == fleet.ask("prometheus", lost)[0]["value"][1]
    assert ["lost-gpu"] == [row["metric"]["node"] for row in fleet.ask("prometheus", missing)]
    assert int(fleet.ask("prometheus", hardware)[0]["value"][1]) >= 2


def test_the_fabric_names_the_port_that_stops_its_peers(fleet: Fleet) -> None:
    worst, *_ = panel("fabric", "Which ports stop their peers")

    (row,) = fleet.ask("prometheus", worst)

    assert ("pfc-storm", "mlx5_1") == (row["metric"]["node"], row["metric"]["device"])
