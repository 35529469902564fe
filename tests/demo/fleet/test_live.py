"""The whole fleet's demo, small: a past from second 0, one page with the right name, and why."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FAULT, SIZE = "pfc_storm", 8
NAMES = {f"gpu-{number}" for number in range(1, SIZE + 1)}

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-2")]


@dataclass(frozen=True)
class Ended:
    """What a run printed, what was asked of its Prometheus meanwhile, and its exit code."""

    printed: str
    past: list[dict[str, Any]]
    code: int
    folder: Path
    pid: int


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Run with HOLD=1, look at Prometheus, end it as Ctrl-C does."""
    folder = tmp_path_factory.mktemp("fleet")
    environment = {
        **os.environ,
        "FLEET": str(SIZE),
        "FAULT": FAULT,
        "SEED": "3",
        "HOLD": "1",
        "PYTHONPATH": f"{ROOT / 'exporter'}:{ROOT / 'detector'}",
        "TMPDIR": str(folder),
    }
    demo = subprocess.Popen(
        [sys.executable, "-m", "peerwatch_demo.fleet"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    printed = ""
    try:
        for line in demo.stdout:
            printed += line
            if "  detector  " in line:
                break
        places = re.findall(r"  Prometheus +(http\S+)", printed)
        assert places, f"The demo ended before its end:\n{printed}"
        past = history(places[-1])
    finally:
        demo.send_signal(signal.SIGINT)
        try:
            rest, _ = demo.communicate(timeout=120)
        finally:
            demo.kill()
    return Ended(printed + rest, past, demo.returncode, folder, demo.pid)


def ask(url: str, path: str, **form: object) -> Any:
    query = urllib.parse.urlencode(form)
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{query}", timeout=300) as answer:
        return json.load(answer)["data"]


def history(url: str) -> list[dict[str, Any]]:
    """Return what a range query shows of the 15 minutes before Prometheus was there."""
    started = ask(url, "status/runtimeinfo")["startTime"]
    second_0 = datetime.fromisoformat(started).timestamp()
    found: list[dict[str, Any]] = ask(
        url,
        "query_range",
        query='{__name__=~"job_node:rdma_throughput:rate|host_cpus|up", node!=""}',
        start=second_0 - 840,
        end=second_0,
        step=60,
    )["result"]
    return found


def test_one_page_came_with_the_right_name(run: Ended) -> None:
    assert 0 == run.code, run.printed
    assert "pages: 1," in run.printed
    assert re.search(r"RIGHT: one page came, and it named gpu-\d, the faulty node\.", run.printed)


def test_the_past_is_full_at_second_0_for_every_node(run: Ended) -> None:
    for metric in ("job_node:rdma_throughput:rate", "host_cpus", "up"):
        series = {
            row["metric"]["node"]: len(row["values"])
            for row in run.past
            if row["metric"]["__name__"] == metric
        }
        assert dict.fromkeys(NAMES, 15) == series
    assert f"the past of {SIZE} nodes" in run.printed


def test_the_alerts_are_told_with_what_became_of_them(run: Ended) -> None:
    (faulty,) = re.findall(r"RIGHT: one page came, and it named (gpu-\d)", run.printed)
    section = run.printed.split("Alerts, and what becomes of each:\n")[1]

    assert f"PeerwatchFaultyNode  critical cause on {faulty}\n" in section
    assert re.search(r"    why   A node has differed .*\n    then  PAGED\n", section)
    assert re.search(
        rf"PeerwatchPfcStorm  critical symptom on {faulty}\n    why   .*\n"
        "    then  pending: fires when it has lasted 5 min\n",
        section,
    )


def test_there_is_a_picture_or_a_line_that_says_how_to_get_one(run: Ended) -> None:
    picture = run.folder / "fleet-demo.png"

    if picture.exists():
        assert f"the job's dashboard: {picture}" in run.printed
        assert b"\x89PNG" == picture.read_bytes()[:4]
    else:
        assert "no picture: " in run.printed
        assert "apt-get install" in run.printed


def test_nothing_is_left_of_the_nodes(run: Ended) -> None:
    assert "everything is down" in run.printed
    assert [] == list(Path("/dev/shm").glob(f"peerwatch-fleet-{run.pid}-*"))
