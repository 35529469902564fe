"""The commands backtest and evaluate, and that nothing found uses what comes later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from detector.fakes import ONSET, config_for, metric, node_names, shifted
from detector.small_case import write_case
from peerwatch_common.errors import ConfigError
from peerwatch_demo.simulator import FAMILIES, simulate
from peerwatch_demo.simulator import write_case as write_simulated
from peerwatch_detector.__main__ import main
from peerwatch_detector.backtest.ablation import ablations
from peerwatch_detector.backtest.cases import find_cases, load_case, save_case
from peerwatch_detector.backtest.run import CaseResult, replay_cases, variant
from peerwatch_detector.config import DetectorConfig, Method
from peerwatch_detector.errors import CaseError
from peerwatch_detector.models.store import EMPTY

METHODS = get_args(Method)
# Deviations short enough for cases of minutes.
QUICK = {"continuity.threshold_seconds": 60, "zscore.period_seconds": 60}
QUICK_YAML = "continuity: {threshold_seconds: 60}\nzscore: {period_seconds: 60}\n"
FAULT = {"fault": "slow_nic", "nodes": ["node-02"], "onset_seconds": ONSET, "halt_seconds": None}


def faulty_case(folder: Path, **changes: object) -> Path:
    """A node whose CPU usage falls by 30 percent of the whole at ``ONSET``."""
    level = shifted(8, 600, {2: -0.3}) * 100
    settings = {"truth": FAULT, "arrays": {"cpu_usage": level}} | changes
    return write_case(folder, nodes=8, seconds=600, **settings)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A crash that halts the job, and a slow link that does not; both with every usual sign."""
    top = tmp_path_factory.mktemp("simulated")
    family = replace(FAMILIES["plain"], nodes=(8,), seconds=900, onset=(400, 420), hidden_signs=0.0)
    wanted, folders = {True, False}, []
    for seed in range(92_000, 92_100):
        case = simulate(f"case-{seed}", family, seed, faulty=True)
        halts = case.fault.halt is not None
        if halts in wanted and "everything" not in case.signs:
            wanted.remove(halts)
            folders.append(top / case.name)
            write_simulated(case, folders[-1])
    assert 2 == len(folders)
    return folders


def flagged(result: CaseResult, method: str) -> list[tuple[float, str, str, str]]:
    return [
        (finding.raised, finding.node, finding.gpu, finding.metric)
        for finding in result.findings[method]
    ]


def cut_short(folder: Path, step: int, target: Path) -> Path:
    """Write the first steps of a case as a case of its own."""
    case = load_case(folder)
    frames = {
        name: replace(
            frame,
            times=frame.times[:step],
            values=frame.values[:, :step],
            gpu_values=None if frame.gpu_values is None else frame.gpu_values[..., :step],
        )
        for name, frame in case.frames.items()
    }
    save_case(replace(case, frames=frames, truth=None), target)
    return target


def results(
    folders: list[Path], methods: tuple[str, ...] = METHODS, **changes: object
) -> list[CaseResult]:
    config = variant(DetectorConfig(), QUICK | changes)
    variants = {method: variant(config, {"method": method}) for method in methods}
    return list(replay_cases(folders, variants, EMPTY))


@pytest.mark.parametrize("which", ["crash or link", "the other", "recorded"])
def test_what_comes_later_changes_nothing_that_was_found(
    which: str, simulated: list[Path], tmp_path: Path
) -> None:
    if which == "recorded":
        folder, cuts = faulty_case(tmp_path / "whole"), (250, 365, 380, 433)
    else:
        folder, cuts = simulated[which == "the other"], (465, 500, 640)
    pieces = [cut_short(folder, cut, tmp_path / f"cut-{cut}") for cut in cuts]
    whole, *parts = results([folder, *pieces])
    config = DetectorConfig()
    compared = 0
    for cut, part in zip(cuts, parts, strict=True):
        # The last cycle that sees the end of the cut case, and no more of the whole one.
        lag, cycle = config.prometheus.lag_seconds, config.cycle_seconds
        seen = (cut + lag) // cycle * cycle - lag
        for method in METHODS:
            expected = [finding for finding in flagged(whole, method) if finding[0] < seen]
            assert expected == [finding for finding in flagged(part, method) if finding[0] < seen]
            compared += len(expected)
    assert compared
    assert flagged(whole, "peerwatch")


def test_the_length_of_the_cycle_does_not_change_who_is_found(
    simulated: list[Path], tmp_path: Path
) -> None:
    folders = [*simulated, faulty_case(tmp_path / "whole")]
    expected = [
        [finding[1:] for finding in flagged(usual, "peerwatch")]
        for usual in results(folders, ("peerwatch",))
    ]
    assert all(expected)
    for cycle in (5, 40):
        actual = [
            [finding[1:] for finding in flagged(other, "peerwatch")]
            for other in results(folders, ("peerwatch",), cycle_seconds=cycle)
        ]
        assert expected == actual


def test_backtest_writes_one_line_per_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty_case(tmp_path / "cases" / "sick")
    write_case(tmp_path / "cases" / "well", nodes=8)
    config = tmp_path / "detector.yaml"
    config.write_text(QUICK_YAML)
    output = tmp_path / "findings.jsonl"
    arguments = ["--config", str(config), "--method", "peerwatch"]
    done = main(["backtest", str(tmp_path / "cases"), *arguments, "--output", str(output)])
    captured = capsys.readouterr()
    assert (0, "") == (done, captured.out)
    assert "2/2 cases" in captured.err
    assert 1 == captured.err.count("unheard_of (ratio) in 2")
    sick, well = [json.loads(line) for line in output.read_text().splitlines()]
    assert {"case": "well", "findings": []} == well
    assert "sick" == sick["case"]
    (finding,) = sick["findings"]
    assert {"time_seconds", "node", "gpu", "metric", "method", "score"} == set(finding)
    assert ("node-02", None, "cpu_usage", "peerwatch") == tuple(
        finding[key] for key in ("node", "gpu", "metric", "method")
    )
    assert ONSET < finding["time_seconds"] < 600


def test_backtest_without_an_output_writes_to_the_standard_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_case(tmp_path / "well")
    assert 0 == main(["backtest", str(folder), "-j", "1"])
    assert {"case": "well", "findings": []} == json.loads(capsys.readouterr().out)


def test_processes_change_neither_the_findings_nor_their_order(tmp_path: Path) -> None:
    # The longest comes first: it is not the first to be ready.
    names = ["c", "a", "b", "d"]
    folders = [faulty_case(tmp_path / name) for name in names[:1]]
    folders += [write_case(tmp_path / name, nodes=3, seconds=40) for name in names[1:]]
    variants = {"peerwatch": variant(DetectorConfig(), QUICK)}
    alone = list(replay_cases(folders, variants, EMPTY, 1))
    shared = list(replay_cases(folders, variants, EMPTY, 2))
    assert names == [shared_result.case for shared_result in shared]
    assert alone == shared
    assert flagged(alone[0], "peerwatch")


class Deadly:
    """Ends the process that it is sent to."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (1,)


def test_a_killed_process_is_told(tmp_path: Path) -> None:
    folders = [write_case(tmp_path / name, seconds=20) for name in ("a", "b")]
    with pytest.raises(CaseError, match=r"was killed.*give fewer with --processes"):
        list(replay_cases(folders, {"peerwatch": DetectorConfig()}, Deadly(), 2))


ENDLESS = """
import sys
from pathlib import Path
from peerwatch_detector.backtest.run import replay_cases
from peerwatch_detector.config import DetectorConfig

class Endless:
    def __reduce__(self):
        return exec, ("import os, time; os.write(1, b'begun\\\\n'); time.sleep(600)",)

try:
    list(replay_cases([Path("a"), Path("b")], {"": DetectorConfig()}, Endless(), 2))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(
    ("number", "whom", "code"),
    [(signal.SIGINT, "all", 130), (signal.SIGTERM, "parent", -15), (signal.SIGKILL, "parent", -9)],
)
def test_processes_end_at_once_and_silently_with_their_parent(
    number: signal.Signals, whom: str, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        begun = [process.stdout.readline() for _ in range(2)]
        # A terminal sends Ctrl-C to all.
        (os.killpg if whom == "all" else os.kill)(process.pid, number)
        # To the end of the last one that holds the pipe.
        _, said = process.communicate(timeout=300)

    assert (["begun\n"] * 2, code) == (begun, process.returncode)
    # multiprocessing itself may tell of what a killed process left.
    assert whom == "parent" or "" == said


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


def test_an_unknown_method_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_case(tmp_path / "well")
    for command in ("backtest", "evaluate"):
        assert 2 == main([command, str(folder), "--method", "magic"])
        stderr = capsys.readouterr().err
        assert "method: " in stderr
        assert "'peerwatch'" in stderr
        assert "'magic'" in stderr


def test_an_output_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_case(tmp_path / "well"))
    lost = str(tmp_path / "nowhere" / "x")
    for arguments in (
        ["backtest", folder, "--output", lost],
        ["evaluate", folder, "--output", lost],
        ["evaluate", folder, "--picture", f"{lost}.svg"],
    ):
        assert 1 == main(arguments)
        stderr = capsys.readouterr().err
        assert "cannot be written" in stderr
        assert "cases" not in stderr


def test_a_picture_in_another_format_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_case(tmp_path / "well")
    assert 2 == main(["evaluate", str(folder), "--picture", str(tmp_path / "x.pdf")])
    assert "is drawn as SVG; name it *.svg" in capsys.readouterr().err


def test_evaluate_measures_every_method_and_refuses_cases_without_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy = {"fault": None, "nodes": [], "onset_seconds": None, "halt_seconds": None}
    faulty_case(tmp_path / "cases" / "sick")
    write_case(tmp_path / "cases" / "well", nodes=8, truth=healthy)
    write_case(tmp_path / "cases" / "secret", nodes=8)
    config = tmp_path / "detector.yaml"
    config.write_text(QUICK_YAML)
    output, picture = tmp_path / "report.json", tmp_path / "report.svg"
    arguments = ["--method", "peerwatch,minder", "--config", str(config), "-j", "1"]
    arguments += ["--output", str(output), "--picture", str(picture)]
    assert 2 == main(["evaluate", str(tmp_path / "cases"), *arguments])
    captured = capsys.readouterr()
    assert "secret/case.json: has no truth" in captured.err
    assert "2 cases, 1 with a fault" in captured.out
    result = json.loads(output.read_text())
    assert ["sick", "well"] == [Path(path).name for path in result["cases"]]
    assert 1 == len(result["refused"])
    assert ["peerwatch", "minder"] == list(result["methods"])
    assert ["first node", "random node"] == list(result["references"])
    ours = result["methods"]["peerwatch"]
    assert (1, 0, 0) == tuple(
        ours["overall"][key] for key in ("true_positives", "false_positives", "false_negatives")
    )
    assert 60 <= ours["overall"]["delay_median_seconds"] < 120
    assert {"slow_nic", "healthy"} == set(ours["by_fault"])
    assert ["sick", "well"] == [verdict["case"] for verdict in ours["verdicts"]]
    assert picture.read_text().startswith("<svg ")


def test_a_model_for_other_bounds_stops_the_whole_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_case(tmp_path / "case")
    config, models = tmp_path / "detector.yaml", tmp_path / "models.npz"
    config.write_text("metrics: {enabled: [cpu_usage]}\n")
    arguments = ["--config", str(config), "--output", str(models), "--cases", str(folder)]
    assert 0 == main(["train", *arguments, "--steps", "400"])
    config.write_text(
        f"models: {models}\nmetrics: {{enabled: [cpu_usage], "
        "overrides: {cpu_usage: {bounds: [0, 3]}}}\n"
    )
    capsys.readouterr()
    assert 2 == main(["backtest", str(folder), "--config", str(config), "-j", "1"])
    stderr = capsys.readouterr().err
    assert "'cpu_usage' was trained with bounds (0.0, 1.0)" in stderr


def test_a_variant_is_checked_like_a_file() -> None:
    config = config_for(metric("load"), continuity={"threshold_seconds": 90})
    changed = variant(config, {"similarity.largest_share": 0.5, "method": "minder"})
    assert (0.5, "minder", 90) == (
        changed.similarity.largest_share,
        changed.method,
        changed.continuity.threshold_seconds,
    )
    assert ["load"] == [metric_config.name for metric_config in changed.detection_metrics()]
    with pytest.raises(ConfigError, match=r"similarity\.largest_share: .*got 7"):
        variant(config, {"similarity.largest_share": 7})


def test_every_switch_of_the_method_has_an_ablation_row() -> None:
    config = DetectorConfig()
    rows = ablations(config)
    whole = config.peerwatch
    switches = [name for name in type(whole).model_fields if isinstance(getattr(whole, name), bool)]
    assert switches
    for name in switches:
        was = getattr(whole, name)
        row = rows[f"{'without' if was else 'with'} {name.replace('_', ' ')}"]
        assert {name: not was} == difference(whole.model_dump(), row.peerwatch.model_dump())
    assert 0 == rows["without baseline"].similarity.baseline_seconds
    off = variant(config, {"similarity.baseline_seconds": 0})
    assert "without baseline" not in ablations(off)
    for row in rows.values():
        assert 1 == len(difference(flat(config), flat(row)))


def flat(config: DetectorConfig) -> dict[str, object]:
    return {
        f"{section}.{name}": value
        for section, values in config.model_dump().items()
        if isinstance(values, dict)
        for name, value in values.items()
    }


def difference(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in after.items() if before[name] != value}


def test_evaluate_ablates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, output = faulty_case(tmp_path / "sick"), tmp_path / "report.json"
    assert 0 == main(["evaluate", str(folder), "--ablate", "-j", "1", "--output", str(output)])
    result = json.loads(output.read_text())
    assert ["peerwatch"] == list(result["methods"])
    assert list(ablations(DetectorConfig())) == list(result["ablations"])
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in result["ablations"])
    assert max(map(len, lines)) <= 120


def test_finer_steps_are_told_by_the_length_in_seconds(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "fine", seconds=200, step_seconds=0.1)
    change(folder, seconds=20)
    case = load_case(folder)
    assert (20.0, 0.1) == (case.seconds, case.step_seconds)
    np.testing.assert_allclose([0.0, 0.1, 19.9], case.frames["cpu_usage"].times[[0, 1, -1]])
    assert node_names(4) == case.nodes


def test_a_picture_needs_matplotlib_and_says_so_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    folder = str(write_case(tmp_path / "well"))
    assert 2 == main(["evaluate", folder, "--picture", str(tmp_path / "x.svg")])
    stderr = capsys.readouterr().err
    assert "x.svg: needs matplotlib, which is not installed" in stderr
    assert "pip install -c constraints.txt '.[detector,train]'" in stderr
    assert "cases" not in stderr.replace("constraints", "")


def test_evaluate_without_a_picture_does_not_load_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['matplotlib'] = None\n"
        "import peerwatch_detector.backtest.commands, peerwatch_detector.backtest.output\n"
    )
    roots = os.pathsep.join(part for part in sys.path if part)
    environment = os.environ | {"PYTHONPATH": roots}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
