"""A broken case is named, and the others are still replayed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from detector.backtest_case import FAULT, QUICK_YAML, faulty_case
from detector.fakes import node_names, shifted
from detector.small_case import write_case
from peerwatch_detector.__main__ import main
from peerwatch_detector.backtest.cases import find_cases, load_case


def break_array(folder: Path) -> str:
    with np.load(folder / "samples.npz") as data:
        arrays = {name: data[name] for name in data.files if name != "cpu_usage"}
    np.savez(folder / "samples.npz", **arrays)
    return "samples.npz: has no array 'cpu_usage'"


def break_shape(folder: Path) -> str:
    with np.load(folder / "samples.npz") as data:
        arrays = dict(data) | {"cpu_usage": np.zeros((8, 3), dtype=np.float32)}
    np.savez(folder / "samples.npz", **arrays)
    return "samples.npz: metric 'cpu_usage' has shape (8, 3)"


def break_axes(folder: Path) -> str:
    with np.load(folder / "samples.npz") as data:
        arrays = dict(data) | {"cpu_usage": np.zeros((8, 2, 600), dtype=np.float32)}
    np.savez(folder / "samples.npz", **arrays)
    return "samples.npz: metric 'cpu_usage' has 3 axes"


def change(folder: Path, **changes: object) -> None:
    path = folder / "case.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def break_step(folder: Path) -> str:
    change(folder, step_seconds=-1.0)
    return "case.json: time does not go forward: step_seconds -1.0"


def break_halt(folder: Path) -> str:
    change(folder, truth=FAULT | {"halt_seconds": 10.0})
    return "case.json: time goes backwards: the halt at 10 s comes before the onset at 300 s"


def break_clock(folder: Path) -> str:
    with np.load(folder / "samples.npz") as data:
        times = np.arange(600.0)
        times[70] = 3.0
        arrays = dict(data) | {"times": times}
    np.savez(folder / "samples.npz", **arrays)
    return "samples.npz: time goes backwards: times[70] is 3 after 69"


def break_truth(folder: Path) -> str:
    change(folder, truth=FAULT | {"nodes": ["node-77"]})
    return "case.json: truth names ['node-77'], not nodes of the job"


def break_nodes(folder: Path) -> str:
    change(folder, nodes=["a"] * 8)
    return "case.json: nodes ['a', 'a'"


def only_unknown_metrics(folder: Path) -> str:
    with np.load(folder / "samples.npz") as data:
        np.savez(folder / "samples.npz", luck=data["cpu_usage"])
    change(folder, metrics={"luck": {"unit": "percent", "axes": ["node", "time"]}})
    return "samples.npz: none of its metrics is known to the configuration: luck (ratio)"


def other_unit(folder: Path) -> str:
    change(folder, metrics={"cpu_usage": {"unit": "cores", "axes": ["node", "time"]}})
    return "none of its metrics is known to the configuration: cpu_usage (cores)"


def no_description(folder: Path) -> str:
    (folder / "case.json").unlink()
    return "case.json"


BREAKS = [
    break_array,
    break_shape,
    break_axes,
    break_step,
    break_halt,
    break_clock,
    break_truth,
    break_nodes,
    only_unknown_metrics,
    other_unit,
    no_description,
]


@pytest.mark.parametrize("damage", BREAKS, ids=lambda damage: damage.__name__)
def test_a_broken_case_is_named_and_the_others_still_run(
    damage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = damage(faulty_case(tmp_path / "cases" / "broken"))
    write_case(tmp_path / "cases" / "well", nodes=3, seconds=40)
    assert 2 == main(["backtest", str(tmp_path / "cases"), "-j", "1"])
    captured = capsys.readouterr()
    assert ["well"] == [json.loads(line)["case"] for line in captured.out.splitlines()]
    (line,) = [
        error_line
        for error_line in captured.err.splitlines()
        if error_line.startswith("peerwatch-detector: ")
    ]
    assert f"{tmp_path}/cases/broken" in line
    assert reason in line


def test_a_node_without_samples_is_named_and_the_case_still_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    level = shifted(8, 600, {2: -0.3}) * 100
    level[5] = np.nan
    gpus = np.stack([level, level], axis=1)
    arrays = {"cpu_usage": level, "gpu_duty_cycle": gpus, "unheard_of": level}
    folder = faulty_case(tmp_path / "sick", arrays=arrays)
    config = tmp_path / "detector.yaml"
    config.write_text(QUICK_YAML)
    assert 2 == main(["backtest", str(folder), "--config", str(config), "-j", "1"])
    captured = capsys.readouterr()
    assert "sick/samples.npz: no sample of node-05 in any metric" in captured.err
    found = json.loads(captured.out)["findings"]
    assert {"node-02"} == {finding["node"] for finding in found}


def test_paths_without_a_case_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert 2 == main(["backtest", str(tmp_path / "empty"), str(tmp_path / "nowhere"), "-j", "1"])
    stderr = capsys.readouterr().err
    assert f"{tmp_path}/empty: cannot be read" in stderr
    assert f"{tmp_path}/nowhere: cannot be read" in stderr


def test_cases_are_found_below_a_folder_in_order_and_once(tmp_path: Path) -> None:
    for name in ("b", "a", "deep/c"):
        write_case(tmp_path / "cases" / name, seconds=20)
    top = tmp_path / "cases"
    assert [top / "a", top / "b", top / "deep" / "c"] == find_cases([top])
    assert [top / "b", top / "a", top / "deep" / "c"] == find_cases([top / "b", top, top / "a"])


def test_finer_steps_are_told_by_the_length_in_seconds(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "fine", seconds=200, step_seconds=0.1)
    change(folder, seconds=20)
    case = load_case(folder)
    assert (20.0, 0.1) == (case.seconds, case.step_seconds)
    np.testing.assert_allclose([0.0, 0.1, 19.9], case.frames["cpu_usage"].times[[0, 1, -1]])
    assert node_names(4) == case.nodes
