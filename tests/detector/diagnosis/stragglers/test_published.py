"""Two real jobs give their published results; of two more, where the files are at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peerwatch_detector.diagnosis.stragglers.causes import Conclusion, conclude
from peerwatch_detector.diagnosis.stragglers.layout import Layout, arrange
from peerwatch_detector.diagnosis.stragglers.pipeline import pipeline_schedule
from peerwatch_detector.diagnosis.stragglers.read import read_trace
from peerwatch_detector.diagnosis.stragglers.whatif import WhatIf, analyse

HERE = Path(__file__).parents[2] / "data" / "bytedance-stragglers"
# Beside the repository, where it is worked on: two traces as they were published.
SHARED = Path(__file__).parents[5] / "shared" / "data" / "bytedance-stragglers"
WITHIN = 0.02


def analysis(path: Path) -> tuple[Layout, WhatIf, Conclusion]:
    layout = arrange(read_trace(path, None))
    measures = analyse(layout, pipeline_schedule(layout))
    return layout, measures, conclude(layout, measures)


def published(name: str) -> dict[str, Any]:
    return json.loads((HERE / "published.json").read_text())[name]


def close(expected: dict[str, float]) -> Any:
    return pytest.approx(expected, rel=WITHIN)


def test_the_stage_that_has_more_to_do_is_told_and_no_node() -> None:
    _, measures, conclusion = analysis(HERE / "stage.parquet")
    expected = published("stage")
    assert pytest.approx(expected["S"], rel=1e-4) == measures.slowdown
    assert pytest.approx(expected["by_optype"], rel=1e-4) == measures.by_kind
    assert expected["by_dp_rank"] == close({str(k): v for k, v in measures.by_replica.items()})
    assert expected["by_stage"] == close({str(k): v for k, v in measures.by_stage.items()})
    assert pytest.approx(expected["Mw"], rel=1e-4) == measures.worst_share
    assert pytest.approx(expected["Ms"], rel=1e-4) == measures.last_stage_share
    assert "stage" == conclusion.causes[0].name
    assert "Stage 3" in conclusion.causes[0].text
    assert () == conclusion.workers


def test_the_machine_that_was_slowed_down_is_named() -> None:
    # Some of the published steps, so the results agree less exactly.
    layout, measures, conclusion = analysis(HERE / "machine.parquet")
    expected = published("machine")
    assert pytest.approx(expected["S"], rel=WITHIN) == measures.slowdown
    assert expected["by_dp_rank"] == close({str(k): v for k, v in measures.by_replica.items()})
    assert expected["by_stage"] == close({str(k): v for k, v in measures.by_stage.items()})
    assert pytest.approx(expected["Mw"], rel=WITHIN) == measures.worst_share
    assert pytest.approx(expected["Ms"], abs=WITHIN) == measures.last_stage_share
    assert ["machine"] == [cause.name for cause in conclusion.causes]
    assert [0] == [worker.rank for worker in conclusion.workers]
    assert (0, 0) == measures.worst[0]
    assert 4 == len(layout.steps)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is not there")
@pytest.mark.parametrize(
    ("name", "causes"), [("ST", ["stage"]), ("SE", ["sequence_length", "stage"])]
)
def test_both_published_traces_agree_and_name_no_node(name: str, causes: list[str]) -> None:
    _, measures, conclusion = analysis(SHARED / f"trace-{name}.parquet")
    result = json.loads((SHARED / f"result-{name}.json").read_text())
    assert pytest.approx(result["blocking_slowdown"], rel=1e-4) == measures.slowdown
    assert (
        pytest.approx(result["launch_slowdown"], rel=1e-4)
        == measures.recorded_seconds / measures.replayed_seconds
    )
    assert pytest.approx(result["blocking_decompose_by_optype"], rel=1e-4) == measures.by_kind
    for found, axis in ((measures.by_replica, "dp_rank"), (measures.by_stage, "stage")):
        expected = result[f"blocking_decompose_by_{axis}"]
        assert pytest.approx(expected, rel=1e-4) == {str(k): v for k, v in found.items()}
    shares = {key: json.loads((SHARED / f"m{key}-{name}.json").read_text()) for key in "ws"}
    assert pytest.approx(shares["w"]["Mw"], rel=1e-3) == measures.worst_share
    assert pytest.approx(shares["s"]["Ms"], rel=1e-3) == measures.last_stage_share
    assert causes == [cause.name for cause in conclusion.causes]
    assert () == conclusion.workers
