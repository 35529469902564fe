"""A failure as exporters publish it, in a real Prometheus: detector and ``diagnose`` agree.

GPU 3 of node c5 falls off the bus; seconds later the ranks of the other nodes lose their connection
to it, and no rank makes a step any more. The job has logs and steps, and no metric to compare.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from asking import fetch, wait_for

from all_metrics import ALL_METRICS
from detector.backfilled import backfilled
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.stack.servers import Stack, free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-3")]

PLACE = Place(Path(__file__).parents[2])
JOB, NODES, PER_NODE, BAD = "llm-root", 8, 2, "c5"
# Seconds from the fault to the present, scrapes before and after the fault, and between two.
AGO, BEFORE, AFTER, SCRAPE = 300, 300, 3600, 15


@dataclass
class Failure:
    """When it happened, and where its series are."""

    began: int
    url: str

    def diagnose(self, at: float) -> dict[str, Any]:
        command = [sys.executable, "-m", "peerwatch_detector", "diagnose", "--job-id", JOB]
        command += ["--root", "--json", "--at", str(at), "--prometheus", self.url]
        done = subprocess.run(
            command, env=PLACE.environment(), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)


class Expositions:
    """What the exporters of all nodes publish, scrape by scrape, by the names of the catalogue."""

    def __init__(self, began: int) -> None:
        self.began = began
        self._families: dict[str, list[str]] = {}

    def add(self, name: str, node: str, value: float, *, since: int = -BEFORE, **who: Any) -> None:
        """Add a series that has one value from a second after the fault on."""
        assert who.keys() <= set(ALL_METRICS[name].labels), name
        labels = ",".join(f'{label}="{text}"' for label, text in {"node": node, **who}.items())
        self._families.setdefault(name, []).extend(
            f"{name}{{{labels}}} {value} {self.began + second}"
            for second in range(-BEFORE, AFTER, SCRAPE)
            if second >= since
        )

    def steps(self, node: str, rank: int) -> None:
        """Let a rank make a step each second until the fault."""
        self._families.setdefault("rank_last_step_timestamp_seconds", []).extend(
            f'rank_last_step_timestamp_seconds{{node="{node}",job_id="{JOB}",rank="{rank}"}} '
            f"{self.began + min(second, 0)} {self.began + second}"
            for second in range(-BEFORE, AFTER, SCRAPE)
        )

    def text(self) -> str:
        parts = [[f"# TYPE {name} gauge", *lines] for name, lines in self._families.items()]
        return "\n".join(line for part in parts for line in part) + "\n# EOF\n"


def expositions(began: int) -> str:
    job = {"job_id": JOB}
    found = Expositions(began)
    for rank in range(NODES * PER_NODE):
        node = f"c{rank // PER_NODE}"
        who = {**job, "rank": rank}
        if rank % PER_NODE == 0:
            found.add("host_job_info", node, 1, scheduler="slurm", **job)
            found.add("exporter_build_info", node, 1, version="0")
        found.add("rank_info", node, 1, local_rank=rank % PER_NODE, world_size=16, pid=7, **who)
        found.steps(node, rank)
        if node == BAD:
            continue
        line = {**who, "class": "D", "signature": "nccl_connection_closed"}
        for name in ("log_event_last_timestamp_seconds", "log_first_error_timestamp_seconds"):
            found.add(name, node, began + 4 + rank / 10, since=15, **line)
        peer = {"peer": "c5", "signature": "nccl_connection_closed"}
        found.add("log_peer_errors_total", node, 1, since=15, **who, **peer)
    gpu = {"gpu": 3, "pci_bus_id": "0000:18:00.0", "xid": 79}
    found.add("gpu_xid_last_timestamp_seconds", BAD, began, since=15, **gpu)
    found.add(
        "gpu_xid_class_last_timestamp_seconds", BAD, began, since=15, **gpu, **{"class": "hardware"}
    )
    # The kernel's lines are of no job.
    kernel = {"class": "H", "signature": "xid_fallen_off_bus"}
    found.add("log_event_last_timestamp_seconds", BAD, began, since=15, **kernel)
    found.add("gpu_lost", BAD, 1, since=15, gpu=3, uuid="GPU-3")
    # An exception of long ago that was caught: the job made steps after it.
    caught = {**job, "rank": 0, "class": "U", "signature": "python_exception"}
    found.add("log_event_last_timestamp_seconds", "c0", began - 200, since=-195, **caught)
    return found.text()


@pytest.fixture(scope="module")
def failure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Failure]:
    began = int(time.time()) - AGO
    with backfilled(tmp_path_factory.mktemp("prometheus"), expositions(began)) as url:
        yield Failure(began, url)


@pytest.fixture(scope="module")
def detector(failure: Failure) -> Iterator[str]:
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="peerwatch-root-") as name, Stack(Path(name)) as stack:
        settings = {
            "prometheus": {"url": failure.url},
            "listen": {"address": "127.0.0.1", "port": port},
            "diagnosis": {"root_interval_seconds": 5},
        }
        (Path(name) / "detector.yaml").write_text(json.dumps(settings))
        url = f"http://127.0.0.1:{port}"
        stack.start(
            "detector",
            [
                *(sys.executable, "-m", "peerwatch_detector", "run"),
                *("--config", str(Path(name) / "detector.yaml")),
            ],
            environment=PLACE.environment(),
            ready=f"{url}/-/healthy",
        )
        yield url


def lines(detector: str, name: str) -> list[str]:
    exposition = fetch(f"{detector}/metrics")
    return [line for line in exposition.splitlines() if line.startswith(name + "{")]


def test_every_query_is_answered_by_a_real_server(failure: Failure) -> None:
    root = failure.diagnose(failure.began + 120)["root"]

    assert not [text for text in root["missing"] if "did not answer" in text]
    (cause,) = root["causes"]
    assert (["c5"], "gpu_unavailable", "hardware") == (
        cause["nodes"],
        cause["symptom"],
        cause["domain"],
    )
    assert ("sure", "isolate") == (cause["confidence"], cause["action"])
    kinds = {event["kind"] for event in cause["speaks_for"]}
    assert {"xid", "gpu"} <= kinds


def test_before_the_fault_nothing_is_wrong(failure: Failure) -> None:
    assert [] == failure.diagnose(failure.began - 30)["root"]["causes"]


def test_a_running_detector_publishes_what_diagnose_says(failure: Failure, detector: str) -> None:
    diagnoses = wait_for("a diagnosis", lambda: lines(detector, "peerwatch_diagnosis"))
    (cause,) = failure.diagnose(time.time())["root"]["causes"]

    assert [
        'peerwatch_diagnosis{action="isolate",class="gpu_unavailable",confidence="sure",'
        f'domain="hardware",job_id="{JOB}",node="c5",rank=""}} 1'
    ] == diagnoses
    assert ("gpu_unavailable", "sure", "isolate") == (
        cause["symptom"],
        cause["confidence"],
        cause["action"],
    )
    (info,) = lines(detector, "peerwatch_diagnosis_info")
    assert 'root="1"' in info
    assert f'summary="{cause["summary"]} Almost certain."' in info
    assert cause["summary"].startswith(
        "Isolate c5 and restart: GPU 3 fell off the bus (XID 79), 4 s before 14 ranks lost their"
    )
    assert [] == lines(detector, "peerwatch_diagnosis_unanswered")
    (finding,) = wait_for("a finding", lambda: lines(detector, "peerwatch_finding"))
    assert 'metric="gpu_unavailable"' in finding
    assert 'node="c5"' in finding


def test_the_web_ui_shows_what_came_first_of_the_running_incident(
    failure: Failure, detector: str
) -> None:
    wait_for("a diagnosis", lambda: lines(detector, "peerwatch_diagnosis"))
    (job,) = json.loads(fetch(f"{detector}/api/v1/jobs"))["jobs"]
    rows = [row for row in job["root"]["timeline"] if row["time"] is not None]

    assert sorted(row["time"] for row in rows) == [row["time"] for row in rows]
    names = [row["name"] for row in rows]
    (first,) = [row for row in rows if row["first_of"]]
    assert ("XID 79", "kernel log", ["c5"], failure.began) == (
        first["name"],
        first["source"],
        first["nodes"],
        first["time"],
    )
    # An exception that was caught came before; what seven nodes lost is one row, and came after.
    assert names.index("python exception") < names.index("XID 79")
    (lost,) = [row for row in rows if row["name"] == "nccl connection closed"]
    assert (failure.began + 4, 7, ["c5"]) == (lost["time"], len(lost["nodes"]), lost["about"])

    view = fetch(f"{detector}/jobs/{JOB}")
    assert view.index("Isolate c5 and restart") < view.index("What came first")
    assert view.index("What came first") < view.rindex("XID 79")
