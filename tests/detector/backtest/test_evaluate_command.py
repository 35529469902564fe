"""The command evaluate: methods, ablations, outputs and pictures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from detector.backtest_case import QUICK_YAML, faulty_case
from detector.fakes import config_for, metric
from detector.small_case import write_case
from peerwatch_common.errors import ConfigError
from peerwatch_detector.__main__ import main
from peerwatch_detector.backtest.ablation import ablations
from peerwatch_detector.backtest.run import variant
from peerwatch_detector.config import DetectorConfig


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
