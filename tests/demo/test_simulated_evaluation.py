"""The evaluation of cases as they are simulated: a line for each, and it goes on where it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from peerwatch_demo.simulator import FAMILIES, evaluation
from peerwatch_demo.simulator.evaluation import evaluate_seed, main
from peerwatch_detector.config import DetectorConfig

SEED = 90_000


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the family plain be small and short."""
    small = replace(
        FAMILIES["plain"], nodes=(4,), seconds=500, onset=(300, 301), halt_after=(120, 121)
    )
    monkeypatch.setitem(FAMILIES, "plain", small)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(path: Path, *more: str) -> int:
    return main([str(path), "--family", "plain", "--seed", str(SEED), *more])


def test_it_goes_on_where_it_was_and_reports_the_whole_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.jsonl"
    assert 0 == run(out, "--cases", "1")
    (first,) = lines(out)
    assert ("plain", SEED, 4) == (first["family"], first["seed"], first["nodes"])
    # A run that was killed leaves half a line.
    out.write_text(out.read_text() + '{"family": "pl')
    seen = []

    def evaluated(family: str, seed: int, config: DetectorConfig) -> dict:
        seen.append(seed)
        return evaluate_seed(family, seed, config)

    monkeypatch.setattr(evaluation, "evaluate_seed", evaluated)
    assert 0 == run(out, "--cases", "2")
    assert [SEED + 1] == seen
    assert [SEED, SEED + 1] == [line["seed"] for line in lines(out)]
    assert first == lines(out)[0]
    printed = capsys.readouterr().out
    assert "2 cases, 1 with a fault" in printed
    assert "false/node-day" in printed


def test_it_stops_at_the_node_days(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert 0 == run(out, "--node-days", "0.03")
    days = [line["node_days"] for line in lines(out)]
    assert sum(days) >= 0.03 > sum(days[:-1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"family": "soak", "seed": 1}\n', "has cases of soak, not of plain"),
        ("not json\n", "is no file of this command"),
    ],
)
def test_a_file_of_something_else_is_left_as_it_is(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(text)
    assert 2 == run(out, "--cases", "1")
    assert expected in capsys.readouterr().err
    assert text == out.read_text()
