"""Both expositions on a real Prometheus, by the shipped scrape configurations.

A counter moves at a constant rate; whatever Prometheus then says that is not this rate is the
fault of the way the expositions are made or scraped.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import wait_for
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from simulated_cluster import python_path
from slow_proxy import SlowProxy

from bench.host_tree import HostTree
from peerwatch_demo.stack.servers import Process, Server, Stack, free_ports, prometheus

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "exporter" / "prometheus.example.yaml"
FULL, FAST, HISTORY = (
    "peerwatch-exporter",
    "peerwatch-exporter-fast",
    "peerwatch-exporter-fast-history",
)
PROMPT, SECOND = f"{FAST}-prompt", f"{HISTORY}-second"
BYTES_PER_SECOND = 40_000_000_000
SLOWEST_ANSWER = 0.6
COLLECTING_SECONDS = 26

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-2")]

Series = list[tuple[float, float]]


def scrape_config(plain: int, kept: int, mortal: int, slow: str) -> str:
    """The example with other targets and intervals, and two of its jobs a second time."""
    config = yaml.safe_load(EXAMPLE.read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert jobs.keys() == {FULL, FAST, HISTORY}
    jobs[PROMPT], jobs[SECOND] = copy.deepcopy(jobs[FAST]), copy.deepcopy(jobs[HISTORY])
    jobs[SECOND]["params"]["scraper"] = ["prometheus-1"]
    targets = {
        FULL: ("3s", [f"127.0.0.1:{plain}"]),
        FAST: ("1s", [slow]),
        PROMPT: ("1s", [f"127.0.0.1:{plain}"]),
        HISTORY: ("5s", [f"127.0.0.1:{kept}", f"127.0.0.1:{mortal}"]),
        SECOND: ("7s", [f"127.0.0.1:{kept}"]),
    }
    for name, (interval, addresses) in targets.items():
        jobs[name] |= {"job_name": name, "scrape_interval": interval}
        jobs[name]["scrape_timeout"] = interval
        jobs[name]["static_configs"] = [{"targets": addresses}]
    return yaml.safe_dump({"scrape_configs": list(jobs.values())})


@dataclass
class Reader:
    """Reads the fast endpoint of an exporter with history every second, and keeps every sample."""

    port: int
    samples: dict[float, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._stop.wait(1.0):
            exposition = fetch(
                f"http://127.0.0.1:{self.port}/metrics/fast?scraper=reader", openmetrics
            )
            for metric in text_string_to_metric_families(exposition):
                for sample in metric.samples:
                    if sample.name == "fast_rdma_bytes_total":
                        assert sample.timestamp is not None
                        self.samples[float(sample.timestamp)] = sample.value

    def stop(self) -> None:
        self._stop.set()


openmetrics = {"Accept": "application/openmetrics-text; version=1.0.0"}


def fetch(url: str, headers: dict[str, str] | None = None) -> str:
    request = urllib.request.Request(url, headers=headers or {})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.read().decode()


@dataclass
class Scraped:
    """A Prometheus that has scraped for a while."""

    server: Server
    reader: Reader
    kept: str
    mortal: str
    mortal_exporter: Process

    def query(self, expression: str) -> list[dict[str, Any]]:
        form = urllib.parse.urlencode({"query": expression})
        return json.loads(fetch(f"{self.server.url}/api/v1/query?{form}"))["data"]["result"]

    def series(self, selector: str) -> Series:
        """The raw samples of the one series, with their times."""
        (found,) = self.query(selector)
        return [(float(at), float(value)) for at, value in found["values"]]

    def own_counter(self, name: str) -> float:
        exposition = fetch(f"{self.server.url}/metrics")
        (value,) = re.findall(rf"^{name} (\S+)$", exposition, re.MULTILINE)
        return float(value)


def start_exporter(
    stack: Stack, name: str, tree: HostTree, port: int, history_seconds: int
) -> Process:
    config = stack.directory / f"{name}.yaml"
    settings = {
        "listen": {"address": "127.0.0.1", "port": port},
        "paths": {
            "procfs": str(tree.procfs),
            "sysfs": str(tree.sysfs),
            "kmsg": str(tree.root / "kmsg"),
        },
        "fast": {"history_seconds": history_seconds},
        "collectors": {"disabled": ["ethtool"]},
    }
    config.write_text(yaml.safe_dump(settings))
    return stack.start(
        name,
        [sys.executable, "-m", "peerwatch_exporter", "--config", str(config)],
        environment=os.environ | {"PYTHONPATH": python_path()},
        ready=f"http://127.0.0.1:{port}/-/ready",
    )


@pytest.fixture(scope="module")
def scraped() -> Iterator[Scraped]:
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-two-expositions-") as directory,
        Stack(Path(directory)) as stack,
    ):
        tree = HostTree(
            Path(directory) / "node", nics=2, gpus=0, nvswitches=0, cpus=2, processes=3, sockets=2
        ).build()
        (tree.root / "kmsg").write_text("")
        plain, kept, mortal, server_port = free_ports(4)
        counter = next(iter(sorted(tree.sysfs.glob("class/infiniband/*/ports/1/counters"))))
        words = str(BYTES_PER_SECOND / 4)
        script = [sys.executable, str(HERE / "steady_counter.py")]
        stack.start("counter", [*script, str(counter / "port_rcv_data"), words])
        start_exporter(stack, "plain", tree, plain, 0)
        start_exporter(stack, "kept", tree, kept, 30)
        mortal_exporter = start_exporter(stack, "mortal", tree, mortal, 30)
        reader = Reader(kept)
        with SlowProxy(f"http://127.0.0.1:{plain}", SLOWEST_ANSWER) as proxy:
            config = scrape_config(plain, kept, mortal, proxy.address)
            thread = threading.Thread(target=reader.run)
            thread.start()
            stack.on_stop(reader.stop)
            server = prometheus(stack, server_port, config)
            time.sleep(COLLECTING_SECONDS)
            yield Scraped(
                server, reader, f"127.0.0.1:{kept}", f"127.0.0.1:{mortal}", mortal_exporter
            )
            reader.stop()
            thread.join()


def enough(scraped: Scraped, metric: str, job: str) -> Series:
    """Return the newest samples, once a busy machine has scraped so many."""
    selector = f'{metric}{{job="{job}"}}[1m]'

    def there() -> bool:
        found = scraped.query(selector)
        return bool(found) and len(found[0]["values"]) >= 17

    wait_for("samples", there)
    return scraped.series(selector)[-20:]


def steps(series: Series) -> list[float]:
    """What each sample adds to the one before, per second by their times."""
    return [
        (value - before) / (at - earlier)
        for (earlier, before), (at, value) in itertools.pairwise(series)
    ]


def error(values: list[float]) -> float:
    """How far the values are from the true rate, as a share of it: the median.

    A machine that is busy moves the counter, or reads it, some milliseconds later at one time than
    at another: most values must be right, not every one.
    """
    return statistics.median(abs(value / BYTES_PER_SECOND - 1) for value in values)


def test_the_example_is_a_valid_configuration() -> None:
    subprocess.run(["promtool", "check", "config", str(EXAMPLE)], check=True, capture_output=True)


def test_every_exposition_is_scraped_and_knows_its_node(scraped: Scraped) -> None:
    def up() -> dict[str, dict[str, str]]:
        return {series["metric"]["job"]: series["metric"] for series in scraped.query("up == 1")}

    wait_for("every exposition", lambda: {FULL, FAST, PROMPT, HISTORY, SECOND} == up().keys())
    assert {"127.0.0.1"} == {labels["node"] for labels in up().values()}
    assert [] == scraped.query(f'{{__name__=~"nic_.*", job!="{FULL}"}}')
    assert [] == scraped.query(f'{{__name__=~"fast_.*", job="{FULL}"}}')


@pytest.mark.parametrize("job", [FAST, PROMPT])
def test_the_exporters_rates_are_right_however_late_the_answers(scraped: Scraped, job: str) -> None:
    rates = [value for _, value in enough(scraped, "fast_rdma_bytes_per_second", job)]
    assert error(rates) < 0.02
    assert statistics.mean(rates) == pytest.approx(BYTES_PER_SECOND, rel=0.05)


def test_late_answers_shift_the_raw_counter_by_whole_snapshots(scraped: Scraped) -> None:
    late = enough(scraped, "fast_rdma_bytes_total", FAST)
    moved = [
        (value - before) / BYTES_PER_SECOND for (_, before), (_, value) in itertools.pairwise(late)
    ]
    # Most of them, as a busy machine has it.
    assert statistics.median(abs(shift - round(shift)) for shift in moved) < 0.05
    assert statistics.median(moved) == pytest.approx(1, abs=0.05)
    # What is lost in one second comes in the next: over a longer time the rate is right.
    mean = (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0])
    longest_error = 2.1 / (late[-1][0] - late[0][0])
    assert mean == pytest.approx(BYTES_PER_SECOND, rel=longest_error)


def test_the_full_exposition_gives_right_rates_over_several_scrapes(scraped: Scraped) -> None:
    right = pytest.approx(BYTES_PER_SECOND, rel=1.1 / 12)

    def rate() -> float:
        found = scraped.query(f'sum(rate(nic_receive_bytes_total{{job="{FULL}"}}[15s]))')
        return float(found[0]["value"][1]) if found else 0.0

    # One snapshot more or less within 12 s or more; more of them where a busy machine is late.
    wait_for("the rate", lambda: rate() == right, 120)


@pytest.mark.parametrize("job", [HISTORY, SECOND])
def test_a_slow_scrape_carries_every_second(scraped: Scraped, job: str) -> None:
    selector = f'fast_rdma_bytes_total{{job="{job}",instance="{scraped.kept}"}}[30s]'
    series = scraped.series(selector)
    assert len(series) >= 15
    # Seconds that a busy machine makes the exporter miss are counted; where only the sampler comes
    # late, which is a process of its own, its values are missing in a second that was not missed.
    missed = sum(round(later - at) - 1 for (at, _), (later, _) in itertools.pairwise(series))
    exposition = fetch(f"http://{scraped.kept}/metrics")
    (counted,) = re.findall(r"^exporter_snapshot_missed_total (\S+)$", exposition, re.MULTILINE)
    assert 0 <= missed <= float(counted) + len(series) // 10
    assert min(steps(series)) >= 0
    # A sample's time is that of its tick: a step is wrong by milliseconds of a busy machine, not by
    # the half second and more of the scrape's time.
    assert error(steps(series)) < 0.05


@pytest.mark.parametrize("job", [HISTORY, SECOND])
def test_it_is_what_a_reader_saw_every_second(scraped: Scraped, job: str) -> None:
    selector = f'fast_rdma_bytes_total{{job="{job}",instance="{scraped.kept}"}}[30s]'
    carried = dict(scraped.series(selector))
    # Either may be a second ahead of the other.
    seen, last = dict(scraped.reader.samples), min(max(carried), max(scraped.reader.samples))
    common = {at: value for at, value in seen.items() if min(carried) <= at <= last}
    carried = {at: value for at, value in carried.items() if at <= last}
    assert len(common) >= 15
    assert common == carried


def test_no_sample_is_refused(scraped: Scraped) -> None:
    for reason in ("out_of_order", "duplicate_timestamp", "out_of_bounds"):
        name = f"prometheus_target_scrapes_sample_{reason}_total"
        assert scraped.own_counter(name) == 0, name


def test_a_dead_exporter_shows_by_the_series_without_timestamps(scraped: Scraped) -> None:
    alive = f'fast_up{{instance="{scraped.mortal}"}}'
    wait_for("it is scraped", lambda: len(scraped.query(alive)) == 1)
    scraped.mortal_exporter.kill()
    wait_for("it is missed", lambda: not scraped.query(alive))
    # Samples that bring their own time get no stale marker.
    assert len(scraped.query(f'fast_rdma_bytes_total{{instance="{scraped.mortal}"}}')) == 1
