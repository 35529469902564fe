"""The demo's recorded faults, replayed with the demo's configuration: the right node every time.

Recorded with ``python -m peerwatch_demo.recording``; ``data/demo/README.md`` says how and where.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from peerwatch_demo.cluster.detector import detector_config
from peerwatch_demo.cluster.faults import FAULTS
from peerwatch_demo.cluster.settings import Patience
from peerwatch_detector.backtest.cases import find_cases, load_case
from peerwatch_detector.backtest.evaluation import evaluate_case
from peerwatch_detector.backtest.run import replay_cases
from peerwatch_detector.config import DetectorConfig, load_config
from peerwatch_detector.models.store import EMPTY

FOLDER = Path(__file__).parents[1] / "data" / "demo"
CASES = find_cases([FOLDER])


@pytest.fixture(scope="module")
def config() -> DetectorConfig:
    return load_config(FOLDER / "detector.yaml")


def test_the_configuration_is_the_demos() -> None:
    # Method peerwatch needs no models, so the demo's own are left out.
    text = detector_config("http://127.0.0.1:9090", 9095, None, Patience(), namespaces=True)

    assert text == (FOLDER / "detector.yaml").read_text()


def test_every_fault_was_recorded_ten_times_and_half_an_hour_of_health() -> None:
    truths = [load_case(folder).truth for folder in CASES]
    counts = {fault.name: 0 for fault in FAULTS}
    for truth in truths:
        if truth is not None and truth.fault is not None:
            counts[truth.fault] += 1
    healthy = [load_case(folder) for folder in CASES if folder.name.startswith("healthy")]

    assert dict.fromkeys(counts, 10) == counts
    assert sum(case.seconds for case in healthy) >= 1800


@pytest.mark.parametrize("folder", CASES, ids=[folder.name for folder in CASES])
def test_the_faulty_node_is_named_and_no_other(folder: Path, config: DetectorConfig) -> None:
    (result,) = replay_cases([folder], {"": config}, EMPTY)
    verdict = evaluate_case(result, result.findings[""])

    assert "" == result.error
    assert () == result.not_compared
    assert 0 == verdict.false_findings
    assert verdict.found == (verdict.fault is not None)
