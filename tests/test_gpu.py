"""`make gpu` on the simulated driver: every part runs, and a part that fails shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu import report as reporting
from gpu.part import Exporter, Node, PartFailedError, PartSkippedError, Result, agreeing
from gpu.parts import parts
from gpu.parts.fields_of_nvidia_smi import FIELDS, compared

ROOT = Path(__file__).resolve().parents[1]
HELD = {
    "gpu_memory_total_bytes": ({}, 1024.0**3),
    "gpu_power_limit_watts": ({}, 700.0),
    "gpu_power_watts": ({}, 310.0),
    "gpu_temperature_celsius": ({"sensor": "core"}, 58.0),
}
SAMPLES = [(name, {"gpu": "0", **labels}, value) for name, (labels, value) in HELD.items()] + [
    ("gpu_clock_max_hertz", {"gpu": "0", "domain": domain}, value)
    for domain, value in (("sm", 1.98e9), ("memory", 2.619e9))
]


def run(*arguments, **environment):
    """Run the command of `make gpu`."""
    return subprocess.run(
        [sys.executable, "-m", "gpu", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests:exporter:detector", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_part_runs_on_the_simulated_driver(tmp_path):
    file = tmp_path / "gpu.md"
    ended = run("--simulated", "--output", str(file))

    assert 0 == ended.returncode, ended.stderr + file.read_text()
    text = file.read_text()
    assert "no GPU was to be had" in text
    assert "8 GPUs, 64 values" in text
    assert "differs" not in text
    assert "| killed (SIGKILL) |" in text
    assert "crashed 1" in text
    # By what it was asked when it was stopped: of the library, or of one GPU.
    assert "library_hung 1" in text or "gpu_hung 1" in text
    # Beside what ran, there is nothing but what needs a real driver.
    assert {"checks", "collectives", "fields_of_nvidia_smi", "spans", "training"} == {
        line.split("`")[1] for line in text.splitlines() if line.startswith("- `")
    }
    assert 9 == len(list(parts()))


def test_the_document_says_what_it_was_run_on():
    text = (ROOT / "docs" / "gpu.md").read_text()

    assert text.startswith("# On a GPU\n")
    assert "Does not hold" not in text
    assert ("simulated driver" in text) == ("no GPU was to be had" in text)


def test_without_a_driver_it_says_so_and_writes_nothing(tmp_path):
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    ended = run("--output", str(tmp_path / "gpu.md"))

    assert 2 == ended.returncode
    assert "There is no NVIDIA driver" in ended.stderr
    assert "--simulated" in ended.stderr
    assert not (tmp_path / "gpu.md").exists()


def line_of(**changed):
    """Return what nvidia-smi prints for a GPU that agrees with SAMPLES, but for some fields."""
    said = {
        "memory.total": "1024",
        "power.limit": "700.00",
        "power.draw": "312.40",
        "temperature.gpu": "58",
        "clocks.max.sm": "1980",
        "clocks.max.memory": "2619",
    }
    said |= {name.replace("_", "."): word for name, word in changed.items()}
    return ", ".join(("0", *(said[field] for field, *_ in FIELDS))) + "\n"


def test_nvidia_smi_that_agrees_is_no_failure():
    result = compared(line_of(power_draw="[N/A]"), SAMPLES)

    assert [] == result.failures
    assert 5 == sum("| same |" in line for line in result.lines)
    assert 1 == sum("not compared" in line for line in result.lines)


@pytest.mark.parametrize(
    ("changed", "metric"),
    [
        ({"memory_total": "2048"}, "gpu_memory_total_bytes"),
        ({"clocks_max_sm": "1981"}, "gpu_clock_max_hertz"),
        ({"temperature_gpu": "90"}, "gpu_temperature_celsius"),
    ],
)
def test_nvidia_smi_that_differs_is_a_failure_with_both_values(changed, metric):
    (failure,) = compared(line_of(**changed), SAMPLES).failures

    assert metric in failure
    assert "GPU 0" in failure


def test_series_that_is_missing_is_a_failure():
    result = compared(line_of(), SAMPLES[1:])

    assert ["gpu_memory_total_bytes of GPU 0 is none"] == [
        failure.partition(", but")[0] for failure in result.failures
    ]


def test_part_that_fails_costs_only_itself(monkeypatch):
    def breaks(node):
        raise ValueError("no such thing")

    def fails(node):
        raise PartFailedError("It is not so.")

    def lacks(node):
        raise PartSkippedError("nothing is there")

    def holds(node):
        return Result("Fine", ["it holds"])

    tried = [("a_part", breaks), ("other", fails), ("third", lacks), ("last", holds)]
    monkeypatch.setattr(reporting, "parts", lambda: iter(tried))
    monkeypatch.setattr(reporting, "_machine", lambda: "1 x X, driver 1")
    text, failures = reporting.report(Node(False, Exporter(1, "")))

    assert ["a part: ValueError: no such thing", "other: It is not so."] == failures
    assert "- `third`: nothing is there." in text
    assert "it holds" in text
    assert "simulated" not in text


def test_what_does_not_fit_into_the_time_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(reporting, "parts", lambda: iter([("slow", lambda node: Result("x"))]))
    monkeypatch.setattr(reporting, "_machine", lambda: "1 x X, driver 1")
    monkeypatch.setattr(reporting, "BUDGET_SECONDS", -1.0)
    text, failures = reporting.report(Node(False, Exporter(1, "")))

    assert [] == failures
    assert "- `slow`: the run had used its" in text


def test_what_differs_once_is_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.part._BETWEEN_SECONDS", 0.0)
    answers = [Result("x", failures=["power differs"]), Result("x"), Result("x", failures=["no"])]

    assert not agreeing(lambda: answers.pop(0)).failures
    assert 1 == len(answers)


def test_what_differs_each_time_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.part._BETWEEN_SECONDS", 0.0)

    assert ["no"] == agreeing(lambda: Result("x", failures=["no"])).failures
