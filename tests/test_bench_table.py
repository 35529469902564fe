"""The table of benchmarks: goals, growth, saved runs and their comparison; no benchmark is run."""

from __future__ import annotations

import json

import pytest

from bench.__main__ import names, save, saved
from bench.comparison import comparison
from bench.measurement import Goal, Measurement, from_json, run_command, to_json
from bench.table import growth_of, number, table_of

OURS = Measurement("reading", "s", 0.5, 20.0, "requests", 0.25, "bytes", (Goal(1.0),), 1500)


def test_a_measurement_survives_json() -> None:
    assert from_json(to_json(OURS)) == OURS


@pytest.mark.parametrize(
    ("goal", "ours", "peer", "missed"),
    [
        (Goal(1), 1.0, None, False),
        (Goal(1), 1.01, None, True),
        (Goal(1), float("nan"), None, True),
        (Goal(0.5, "ratio"), 5.0, 10.0, False),
        (Goal(0.5, "ratio"), 5.1, 10.0, True),
        (Goal(0.5, "ratio"), 0.1, None, True),
    ],
)
def test_a_goal_is_met_or_missed(goal: Goal, ours: float, peer: float | None, missed: bool) -> None:
    found = Measurement("a", "s", ours, peer, goals=(goal,)).missed()
    assert found == ((goal,) if missed else ())


def test_a_row_has_all_that_was_measured() -> None:
    row = table_of([OURS]).splitlines()[-1]
    expected = (
        "| reading, 1,500 nodes | 0.5 s | 20 (requests) | 0.025 | 0.25 (bytes) | 2 | 1: met |"
    )
    assert row == expected


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.025, "0.025"), (1234.5, "1,234"), (0.0000123, "0.000012")]
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


def test_growth_is_the_exponent_of_three_sizes() -> None:
    curve = [Measurement("cycle", "s", 2e-6 * n**1.5, nodes=n) for n in (128, 1500, 12_500)]
    assert growth_of(curve).splitlines()[-1].endswith("| 1.50 |")
    assert growth_of(curve[:2]) == ""


def test_runs_are_compared_by_ratios() -> None:
    # Another machine, four times as slow: ratios stay.
    slower = Measurement("reading", "s", 2.0, 80.0, "requests", 1.0, "bytes", nodes=1500)
    alone = Measurement("memory", "MiB", 5.0)
    lines = comparison([OURS, alone], [slower, alone]).splitlines()
    assert lines[2] == "| reading, 1,500 nodes | requests | 0.025 | 0.025 | 1.00 |  |"
    assert "memory" in lines[-1]
    worse = Measurement("reading", "s", 4.0, 80.0, "requests", nodes=1500)
    assert comparison([OURS], [worse]).splitlines()[2].endswith("| 2.00 | slower |")
    other = Measurement("reading", "s", 4.0, 80.0, "curl", nodes=1500)
    assert "Without a ratio in both runs: reading" in comparison([OURS], [other])


def test_a_saved_run_is_read_again(tmp_path) -> None:
    file = tmp_path / "build" / "run.json"
    save(file, [OURS], "2 cores")
    assert saved(file) == [OURS]


@pytest.mark.parametrize("text", [None, "", "{}", '{"version": 2, "measurements": []}', "[1]"])
def test_what_is_no_saved_run_is_refused(tmp_path, text: str | None) -> None:
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit, match=r"run\.json: no saved run .*make bench OUTPUT"):
        saved(file)


def test_a_command_says_why_it_failed() -> None:
    assert run_command(["sh", "-c", "echo a"]).output == b"a\n"
    with pytest.raises(RuntimeError, match="exit status 3: no"):
        run_command(["sh", "-c", "echo no >&2; exit 3"])


def test_every_benchmark_is_a_file_with_measurements() -> None:
    assert {"exporter", "detector", "hang_verdict", "webhook"} <= set(names())
    assert json.dumps(names()) == json.dumps(sorted(names()))
