"""The command as a user gives it: text, JSON, exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from detector.diagnosis.stragglers.pipeline_job import Job
from peerwatch_detector.__main__ import main

DATA = Path(__file__).parents[2] / "data" / "bytedance-stragglers"


def test_it_names_the_slow_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job(3, 2, 9, work=lambda _step, dp, stage, _mb: 1.5 if (dp, stage) == (1, 1) else 1.0)
    path = job.write(tmp_path / "trace.csv")
    assert 0 == main(["stragglers", str(path)])
    text = capsys.readouterr().out
    assert "3 steps, 3 data-parallel ranks x 2 stages" in text
    assert "Names rank 4: dp_rank 1, stage 1, 1.50 times" in text
    assert "Cause: machine (" in text
    assert 0 == main(["stragglers", str(path), "--json", "--steps", "101-102"])
    whole = json.loads(capsys.readouterr().out)
    assert (2, 3, 2) == (whole["steps"], whole["dp_ranks"], whole["stages"])
    assert ["machine"] == [cause["cause"] for cause in whole["causes"]]
    assert [(4, 1, 1)] == [(who["rank"], who["replica"], who["stage"]) for who in whole["named"]]
    assert 6 == len(whole["S_by_worker"])
    assert 4 == max(whole["S_by_worker"], key=lambda who: who["S"])["rank"]


def test_a_stage_names_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["stragglers", str(DATA / "stage.parquet")])
    text = capsys.readouterr().out
    assert "Names nobody." in text
    assert "S     1.179" in text
    assert "M_s   1.219" in text


def test_what_cannot_be_read_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 == main(["stragglers", str(tmp_path / "none.csv")])
    assert "No such file or directory" in capsys.readouterr().err
    assert 2 == main(["stragglers", str(tmp_path)])
    assert "is no file" in capsys.readouterr().err
    for steps in ("x", "9-7", "-1"):
        with pytest.raises(SystemExit, match="2"):
            main(["stragglers", "x.csv", f"--steps={steps}"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert 2 == main(["stragglers", str(DATA / "stage.parquet")])
    error = capsys.readouterr().err
    assert "reading parquet needs pyarrow, which is not installed" in error
    assert "pip install" in error
