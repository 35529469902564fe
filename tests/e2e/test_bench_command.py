"""``peerwatch-detector bench`` on a real Prometheus, and without one."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from detector.reading.remote_write import Written, write
from detector.reading.servers import prometheus
from peerwatch_demo.stack.servers import Stack, free_ports
from peerwatch_detector.__main__ import main
from peerwatch_detector.config import DetectorConfig

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-1")]

NODES = 5
CONFIGURED = len(DetectorConfig().detection_metrics())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A Prometheus with one recorded metric of five nodes, and one of another exporter."""
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as folder,
        Stack(Path(folder)) as stack,
    ):
        server = prometheus(stack)
        # Up to minutes from now, for a machine that is busy in the meantime.
        times = (int(time.time()) - 600 + np.arange(1100)) * 1000
        named = (("job_node:cpu_usage:ratio", "node"), ("node_load1", "instance"))
        write(
            server.url,
            [
                Written({"__name__": name, label: f"n{node}"}, times, np.full(1100, 0.5))
                for name, label in named
                for node in range(NODES)
            ],
        )
        yield server.url


@pytest.mark.parametrize(
    "asked",
    [[], ["--series", "node_load1", "--node-label", "instance"]],
    ids=["recorded", "foreign"],
)
def test_every_api_is_timed_on_what_the_server_has(
    url: str, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["bench", "--url", url, "--nodes", "8", "--json", *asked])

    found = json.loads(capsys.readouterr().out)
    apis = [(measured["api"], measured["span_seconds"] > 800) for measured in found["reading"]]
    assert 0 == code
    assert [
        ("remote_read", True),
        ("query", True),
        ("query_range", True),
        ("query", False),
    ] == apis
    assert [NODES] * 4 == [measured["series"] for measured in found["reading"]]
    assert all(measured["samples"] >= NODES * 550 for measured in found["reading"][:3])
    assert all(measured["seconds"] > 0 for measured in found["reading"])
    assert (8, "peerwatch") == (found["detecting"]["nodes"], found["detecting"]["method"])
    assert 1 == found["detecting"]["threads"]
    assert found["detecting"]["cold"] > 0
    assert found["detecting"]["cold_cpu"] > 0


def test_the_answer_for_people_says_what_a_cycle_costs(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["bench", "--url", url, "--nodes", "8", "--metrics", "8"])

    text = capsys.readouterr().out
    assert "synthetic samples of 8 nodes x 8 metrics, method peerwatch, in one thread on" in text
    assert "| remote_read | 9" in text
    assert "for 64 series" in text
    assert "each cycle of 15 s then" in text


def test_a_server_without_the_series_says_what_to_give(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == main(["bench", "--url", url, "--nodes", "8", "--series", "nothing"])

    output = capsys.readouterr()
    assert "first call" in output.out
    assert "none of the series nothing, ...; give --series NAME" in output.err


def test_a_server_that_is_down_costs_only_its_part(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)

    assert 1 == main(["bench", "--url", f"http://127.0.0.1:{port}", "--nodes", "8"])

    output = capsys.readouterr()
    assert "first call" in output.out
    assert "cannot be reached" in output.err


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (["--nodes", "0"], "--nodes 0 must be at least min_nodes 3"),
        (["--nodes", "2"], "--nodes 2 must be at least min_nodes 3"),
        (["--metrics", "0"], f"--metrics 0 must be between 1 and the {CONFIGURED} that"),
        (
            ["--metrics", str(CONFIGURED + 1)],
            f"--metrics {CONFIGURED + 1} must be between 1 and the {CONFIGURED} that",
        ),
    ],
    ids=["no-node", "few-nodes", "no-metric", "many-metrics"],
)
def test_what_cannot_be_measured_is_refused(
    asked: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["bench", *asked])
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
