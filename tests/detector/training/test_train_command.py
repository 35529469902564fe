from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from detector.small_case import write_case
from peerwatch_detector.__main__ import main
from peerwatch_detector.models.base import INTEGRATED
from peerwatch_detector.models.store import load_bundle
from peerwatch_detector.training import run as training_run

STEPS = 100
ENABLED = "metrics: {enabled: [cpu_usage, gpu_duty_cycle]}\n"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    config = tmp_path / "detector.yaml"
    config.write_text(ENABLED)
    write_case(tmp_path / "cases" / "one")
    write_case(tmp_path / "cases" / "two", seconds=100)
    output, cases = tmp_path / "models.npz", tmp_path / "cases"
    return [
        *("train", "--config", str(config), "--output", str(output), "--device", "cpu"),
        *("--cases", str(cases), "--steps", str(STEPS)),
    ]


def test_a_folder_of_cases_is_trained_on_and_nothing_else_is_left(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main([*arguments, "--integrated"])
    output = tmp_path / "models.npz"
    assert f"3 models written to {output}\n" == capsys.readouterr().out
    bundle = load_bundle(output)
    assert {"cpu_usage", "gpu_duty_cycle", INTEGRATED} == bundle.weights.keys()
    assert 4 * (193 + 93) == bundle.cards["cpu_usage"].windows
    assert STEPS == bundle.options["steps"]
    assert {"cases", "detector.yaml", "models.npz"} == {path.name for path in tmp_path.iterdir()}


def test_a_refused_metric_is_named_and_the_others_are_kept(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_case(tmp_path / "cases" / "odd", arrays={"cpu_usage": np.full((4, 200), 300.0)})
    assert 0 == main(arguments)
    captured = capsys.readouterr()
    assert "1 models written" in captured.out
    assert ["gpu_duty_cycle"] == list(load_bundle(tmp_path / "models.npz").cards)
    assert "peerwatch-detector: no model of cpu_usage: 40.0% of the samples lie out" in captured.err


def test_a_training_of_which_nothing_comes_fails_and_writes_nothing(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for case in ("one", "two"):
        values = dict.fromkeys(("cpu_usage", "gpu_duty_cycle"), np.full((4, 100), np.nan))
        write_case(tmp_path / "blank" / case, seconds=100, arrays=values)
    assert 1 == main([*arguments, "--cases", str(tmp_path / "blank")])
    stderr = capsys.readouterr().err
    assert "No model could be trained." in stderr
    assert "Metric 'cpu_usage': every sample is missing" in stderr
    assert not list(tmp_path.glob("models.npz*"))


def test_an_interrupted_command_says_how_to_go_on_and_then_does(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = training_run.train_model
    calls: list[int] = []

    def interrupted(*given: object, **more: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*given, **more)

    monkeypatch.setattr(training_run, "train_model", interrupted)
    assert 130 == main(arguments)
    checkpoint = tmp_path / "models.npz.checkpoint"
    stderr = capsys.readouterr().err
    assert f"interrupted; what is done is in {checkpoint}; the same command goes on" in stderr
    assert not (tmp_path / "models.npz").exists()
    assert 0 == main(arguments)
    assert "goes on where a training ended, with 1 models done" in capsys.readouterr().err
    assert 3 == len(calls)
    assert not checkpoint.exists()


def test_an_interrupt_before_anything_is_done_is_told(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object, **more: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(training_run, "train_model", interrupted)
    assert 130 == main(arguments)
    assert "interrupted; nothing is done yet" in capsys.readouterr().err


def test_a_gpu_that_is_not_there_is_told_before_anything_else(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert 1 == main([*arguments, "--device", "cuda"])
    stderr = capsys.readouterr().err
    assert "--device cuda: torch" in stderr
    assert 1 == len(stderr.splitlines())


@pytest.mark.parametrize("output", [".", "models.npz/nowhere"])
def test_an_output_that_is_no_file_is_told_first(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    assert 1 == main([*arguments, "--output", str(tmp_path / output)])
    assert "cannot be written; its folder must exist" in capsys.readouterr().err


def test_a_time_is_also_understood_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["train", "--output", "m.npz", "--job-id", "j", "--start", "yesterday", "--end", "9"]
    with pytest.raises(SystemExit):
        main(wrong)
    assert "'yesterday' is no time" in capsys.readouterr().err
