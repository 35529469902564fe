"""`run` on samples of 100 ms in a real Prometheus, with the shipped example configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from detector.backfilled import backfilled
from peerwatch_demo.simulator import FINE, simulate_fine
from peerwatch_demo.simulator.fine import METRIC
from peerwatch_detector.__main__ import main
from peerwatch_detector.backtest.cases import Case, load_case
from peerwatch_detector.backtest.replay import replay
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.reading.reader import PrometheusReader
from peerwatch_detector.service.detector import Detector

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-2")]

EXAMPLE = Path(__file__).parents[3] / "detector" / "detector.fine.example.yaml"
# Bursts that samples of 100 ms resolve; the milder fault is alone for longer than the continuity.
FAMILY = replace(
    FINE,
    step_seconds=0.1,
    seconds=240.0,
    onset=(100.0, 101.0),
    apart=(45.0, 46.0),
    any_order=False,
    buckets=(2, 3),
    burst=(0.35, 0.6),
    compute=(0.1, 0.4),
)
JOB = "fine"

Opened = Callable[[PrometheusReader], PrometheusReader]


@dataclass(frozen=True)
class Filled:
    """A Prometheus that holds a case, and when the case began."""

    url: str
    start: int
    case: Case


def settings(filled: Filled, method: str) -> dict[str, Any]:
    """Return the example's settings for this server; the paper's score cannot exceed 1.73 here."""
    text: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    text["prometheus"] |= {"url": filled.url, "lag_seconds": 1}
    return text | {
        "method": method,
        "listen": {"port": 0},
        "similarity": text["similarity"] | ({"threshold": 1.2} if method == "minder" else {}),
    }


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    directory = tmp_path_factory.mktemp("fine")
    case = simulate_fine("live", FAMILY, 3, faulty=True)
    values = case.frames[METRIC].values
    # It ends now: who runs and who is there is asked for the present.
    start = int(time.time()) - round(case.seconds)
    with backfilled(directory, open_metrics(values, start)) as url:
        yield Filled(url, start, case)


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Close readers at the end."""
    with ExitStack() as stack:
        yield stack.enter_context


def open_metrics(values: np.ndarray, start: int) -> str:
    """Return what the exporters' fast endpoints give: samples of 100 ms, the joins every 10 s."""
    nodes, steps = values.shape
    lines = ["# TYPE fast_fine_rdma_bytes_per_second gauge"]
    lines += [
        f'fast_fine_rdma_bytes_per_second{{node="node-{node:04d}"}} '
        f"{float(values[node, step])!r} {start + step / 10:.1f}"
        for node in range(nodes)
        for step in range(steps)
        if np.isfinite(values[node, step])
    ]
    for name, job in (
        ("fast_job_info", True),
        ("host_job_info", True),
        ("exporter_build_info", False),
    ):
        label = f',job_id="{JOB}"' if job else ""
        lines.append(f"# TYPE {name} gauge")
        lines += [
            f'{name}{{node="node-{node:04d}"{label}}} 1 {start + second}'
            for node in range(nodes)
            for second in range(0, steps // 10 + 1, 10)
        ]
    return "\n".join([*lines, "# EOF"]) + "\n"


class Hands:
    """A clock that is set."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("method", ["peerwatch", "minder"])
def test_run_finds_two_of_four_nodes_at_a_tenth_of_a_second(
    filled: Filled, opened: Opened, method: str
) -> None:
    config = DetectorConfig.model_validate(settings(filled, method))
    clock = Hands(filled.start + 70.0)
    reader = opened(PrometheusReader(config.prometheus))
    detector = Detector(config, reader, EMPTY, clock)
    raised: dict[str, float] = {}
    while clock.now + config.cycle_seconds < filled.start + filled.case.seconds:
        clock.now += config.cycle_seconds
        detector.cycle()
        (detection,) = detector.snapshot.detections
        assert clock.now - 1.2 <= detection.time <= clock.now - 1
        for finding in detection.findings:
            raised.setdefault(finding.node, clock.now - filled.start)
    truth = filled.case.truth
    assert truth is not None
    assert truth.onset_seconds is not None
    assert set(truth.nodes) == set(raised)
    first, second = sorted(raised.values())
    # Continuity, the peak's memory, the level's mean, the lag and a cycle.
    assert 15 <= first - truth.onset_seconds <= 15 + 3 + 1 + 1 + 5
    assert 45 + 15 <= second - truth.onset_seconds <= 46 + 15 + 3 + 1 + 1 + 5
    # Explained in seconds, like any finding.
    for finding, why in detection.explanations.items():
        assert filled.start + 100 < finding.since < finding.raised
        assert 1 <= finding.raised - why.made <= config.cycle_seconds + 1
    # An increment is asked for with its overlap, not the whole history again.
    samples = detector.reader.statistics.samples
    clock.now += 1
    detector.cycle()
    assert detector.reader.statistics.samples - samples < 4 * 10 * (7 + 1 + 2)


def test_a_restart_takes_up_where_it_stood(filled: Filled, opened: Opened) -> None:
    config = DetectorConfig.model_validate(settings(filled, "peerwatch"))
    clock = Hands(filled.start + filled.case.seconds - 1)
    reader = opened(PrometheusReader(config.prometheus))
    detector = Detector(config, reader, EMPTY, clock)
    detector.cycle()
    (detection,) = detector.snapshot.detections
    assert filled.case.truth is not None
    assert set(filled.case.truth.nodes) == {finding.node for finding in detection.findings}
    began = {finding.node: finding.since - filled.start for finding in detection.findings}
    assert sorted(int(since) // 10 for since in began.values()) == [10, 14]


def test_an_exported_case_has_the_fine_steps(filled: Filled, tmp_path: Path) -> None:
    config = tmp_path / "detector.yaml"
    config.write_text(yaml.safe_dump(settings(filled, "peerwatch")))
    folder = tmp_path / "incident"
    span = ["--start", str(filled.start + 20), "--end", str(filled.start + 219)]
    asked = ["export-case", "--config", str(config), "--job-id", JOB, *span, str(folder)]
    assert 0 == main(asked)
    case = load_case(folder)
    assert (0.1, 1991) == (case.step_seconds, case.frames[METRIC].values.shape[1])
    # The server repeats the sample before one that was lost.
    known = filled.case.frames[METRIC].values[:, 200:2191]
    here = np.isfinite(known)
    np.testing.assert_array_equal(known[here], case.frames[METRIC].values[here])
    assert filled.case.truth is not None
    found = replay(case, DetectorConfig.model_validate(settings(filled, "peerwatch")), EMPTY)
    assert set(filled.case.truth.nodes) == {finding.node for finding in found.findings}
