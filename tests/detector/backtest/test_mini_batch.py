"""Real jobs: workers that are unequal by nature, and steps of 10 s."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from detector.mini_batch import METRIC, SETTINGS, UNIT, read_table, to_case
from peerwatch_detector.backtest.cases import Case, load_case
from peerwatch_detector.backtest.replay import replay
from peerwatch_detector.backtest.run import replay_cases, variant
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.models.store import EMPTY

JOBS = Path(__file__).parents[1] / "data" / "alibaba-mini-batch"


def settings(**changes: object) -> DetectorConfig:
    return variant(DetectorConfig.model_validate(SETTINGS), changes)


def flagged(case: Case, **changes: object) -> list[tuple[str, str]]:
    return [
        (finding.node, finding.metric)
        for finding in replay(case, settings(**changes), EMPTY).findings
    ]


@pytest.mark.parametrize("job", ["job_2", "job_3"])
def test_unequal_but_healthy_workers_are_not_named(job: str) -> None:
    (outcome,) = replay_cases([JOBS / job], {"default": settings()}, EMPTY)
    assert ("", "") == (outcome.error, outcome.incomplete)
    assert () == outcome.findings["default"]


def test_the_workers_of_job_2_are_unequal() -> None:
    values = load_case(JOBS / "job_2").frames[METRIC].values
    usual = np.nanmedian(values, axis=1)
    assert (10, 238) == values.shape
    offsets = usual / np.median(usual) - 1
    assert offsets.min() < -0.15
    assert offsets.max() > 0.05


@pytest.mark.parametrize("factor", [1.5, 2.0])
def test_a_worker_that_becomes_slower_is_named(factor: float) -> None:
    whole = load_case(JOBS / "job_2").frames[METRIC].values
    for worker in (0, 3, 9):
        values = whole.copy()
        values[worker, 120:] *= factor
        assert [(f"worker-{worker}", METRIC)] == flagged(to_case("slow", values, None))


def test_a_table_is_put_on_its_steps(tmp_path: Path) -> None:
    rows = ["worker,gpu,time,batch_time_norm"]
    rows += [f"0,7,{1 + 10 * step},{500 + step}" for step in range(5)]
    # A late start, a lost row, an odd last one, and an earlier end.
    rows += ["1,7,11,601", "1,7,31,603", "1,7,35,999"]
    path = tmp_path / "job.csv"
    path.write_text("\n".join(rows) + "\n")
    values = read_table(path)
    expected = np.array([[500, 501, 502, 503], [np.nan, 601, np.nan, 603]], dtype=np.float32)
    np.testing.assert_array_equal(expected, values)
    case = to_case("job", values, None)
    assert ({METRIC: UNIT}, 40.0) == (case.units, case.seconds)
