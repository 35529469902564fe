"""The command ``prioritize``, and how it writes the order into a configuration."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from detector.fakes import ONSET, healthy, shifted
from detector.small_case import write_case
from late import late
from peerwatch_common.errors import ConfigError
from peerwatch_detector.config import DetectorConfig, load_config
from peerwatch_detector.errors import OutputError, TrainingError
from peerwatch_detector.priority.config_file import merged, order_setting, snippet
from peerwatch_detector.priority.options import add_prioritize

run_prioritize = late("peerwatch_detector.priority.command", "run_prioritize")
# Scikit-learn is loaded by one worker, and the cases are written once.
pytestmark = pytest.mark.xdist_group("scikit-learn")

FAULT = {"fault": "slow_nic", "nodes": ["node-02"], "onset_seconds": ONSET, "halt_seconds": None}
NAMES = [metric.name for metric in DetectorConfig().detection_metrics()]
ORDER = ["gpu_duty_cycle", *(name for name in NAMES if name != "gpu_duty_cycle")]


def options_of(*arguments: object) -> argparse.Namespace:
    """Parse as the command line does."""
    whole = argparse.ArgumentParser()
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path)
    add_prioritize(whole.add_subparsers(), common)
    return whole.parse_args(["prioritize", *map(str, arguments)])


def run(*arguments: object) -> int:
    options = options_of(*arguments)
    return run_prioritize(options, load_config(options.config))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six cases, four with a fault that shows in the GPUs' duty cycle alone."""
    top = tmp_path_factory.mktemp("cases")
    for index in range(6):
        sick, level = index % 3 > 0, healthy(8, 600, index) * 100
        duty = shifted(8, 600, {2: -0.3 if sick else 0.0}, index) * 100
        arrays = {"cpu_usage": level, "gpu_duty_cycle": np.stack([duty] * 2, axis=1)}
        truth = FAULT if sick else {"fault": None, "nodes": []}
        arrays["unheard_of"] = level
        write_case(top / f"case-{index}", nodes=8, seconds=600, truth=truth, arrays=arrays)
    return top


def test_the_order_is_shown_written_and_used(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, picture = tmp_path / "order.yaml", tmp_path / "tree.svg"
    assert 0 == run(cases, "--output", output, "--picture", picture)
    captured = capsys.readouterr()
    assert "6/6 cases" in captured.err
    assert "unheard_of (ratio) in 6" in captured.err
    lines = captured.out.splitlines()
    assert "6 cases, 4 with a fault; 446 windows, 148 of them within a fault" == lines[0]
    rows = {line.split()[0]: line.split()[1:] for line in lines[4 : 4 + len(NAMES)]}
    assert ORDER == list(rows)
    assert ["0", "1.000", "above", "4/4", "0"] == rows["gpu_duty_cycle"]
    assert ["-", "-", "-", "0/4", "0"] == rows["cpu_usage"]
    assert ["-", "-", "-", "0/4", "6"] == rows["pfc_tx_rate"]
    assert "Balanced accuracy on held-out cases: 1.00;" in captured.out
    assert all(len(line) <= 100 for line in lines)
    assert ORDER == [
        metric_config.name for metric_config in load_config(output).detection_metrics()
    ]
    assert "446 windows" in output.read_text()
    assert picture.read_text().startswith("<svg ")


def test_the_same_seed_writes_the_same_bytes(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = []
    for turn in ("a", "b"):
        files = [tmp_path / f"{turn}{suffix}" for suffix in (".yaml", ".svg")]
        assert 0 == run(cases, "--seed", 5, "--output", files[0], "--picture", files[1])
        written.append([capsys.readouterr().out, *(file.read_bytes() for file in files)])
    assert written[0] == written[1]


def test_without_an_output_the_order_follows_the_table(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "detector.yaml"
    config.write_text("method: minder\nlisten: {port: 1}\n")
    assert 0 == run(cases, "--config", config)
    _, _, text = capsys.readouterr().out.partition("\n\n# Order")
    # Method minder goes on with the paper's metrics.
    others = [name for name in DetectorConfig().minder.metrics if name != "gpu_duty_cycle"]
    assert {"minder": {"metrics": ["gpu_duty_cycle", *others]}} == yaml.safe_load(f"# {text}")


def test_everything_else_of_a_configuration_is_kept(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, output = tmp_path / "detector.yaml", tmp_path / "new.yaml"
    text = (
        "# ours\nprometheus:\n  url: http://example:9090  # the big one\n"
        "metrics:\n  enabled: [cpu_usage, gpu_duty_cycle]\n"
        "  overrides: {cpu_usage: {min_effect_size: 0.2}}\n# end\n"
    )
    config.write_text(text)
    assert 0 == run(cases, "--config", config, "--output", output)
    assert (
        text.replace(" [cpu_usage, gpu_duty_cycle]", "\n    - gpu_duty_cycle\n    - cpu_usage")
        == output.read_text()
    )
    assert text == config.read_text()
    # Only what is enabled is learnt from.
    assert "pfc_tx_rate" not in capsys.readouterr().out
    # The file may be its own output.
    assert 0 == run(cases, "--config", config, "--output", config)
    assert output.read_text() == config.read_text()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", ("metrics", "enabled")),
        ("method: zscore\n", ("metrics", "enabled")),
        ("method: minder\n", ("minder", "metrics")),
        ("method: minder\nmetrics: {enabled: [cpu_usage]}\n", ("metrics", "enabled")),
    ],
)
def test_the_order_goes_where_the_configuration_reads_it(
    text: str, place: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "detector.yaml"
    path.write_text(text)
    assert place == order_setting(load_config(path))
    changed, kept = merged(text, place, ORDER)
    assert kept
    path.write_text(changed)
    config = load_config(path)
    assert place == order_setting(config)
    assert ORDER == [metric.name for metric in config.detection_metrics()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "metrics:\n  enabled:\n    - b\n    - a\n", id="empty"),
        pytest.param(
            "# only this", "# only this\nmetrics:\n  enabled:\n    - b\n    - a\n", id="comment"
        ),
        pytest.param(
            "metrics:\n    extra: []  # none\n",
            "metrics:\n    enabled:\n      - b\n      - a\n    extra: []  # none\n",
            id="another key",
        ),
        pytest.param(
            "metrics:\n  enabled:\n  - a # x\n  - b\n  # y\n\nlisten: {port: 1}\n",
            "metrics:\n  enabled:\n    - b\n    - a\n  # y\n\nlisten: {port: 1}\n",
            id="block list",
        ),
        pytest.param(
            "metrics: {extra: [], enabled: [a, b]} # c\n",
            "metrics: {extra: [], enabled: [b, a]} # c\n",
            id="flow",
        ),
        pytest.param(
            "{metrics: {extra: []}}\n",
            "{metrics: {enabled: [b, a], extra: []}}\n",
            id="flow without the key",
        ),
        pytest.param(
            "metrics:\nlisten: {port: 1} # p\n",
            "\nlisten: {port: 1} # p\nmetrics:\n  enabled:\n    - b\n    - a\n",
            id="section without keys",
        ),
        pytest.param(
            "metrics:\n  enabled: null\n  extra: []\n",
            "metrics:\n  enabled:\n    - b\n    - a\n  extra: []\n",
            id="null",
        ),
    ],
)
def test_only_the_order_changes_in_the_text(text: str, expected: str) -> None:
    assert (expected, True) == merged(text, ("metrics", "enabled"), ["b", "a"])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "minder: &m {metrics: [a]}\nmetrics: {<<: {extra: []}}\n# gone\n", id="merge key"
        ),
        pytest.param("metrics: &x\n  enabled: &y [a]\nother: *y\n# gone\n", id="alias"),
        pytest.param("metrics: {enabled: [a]}\nmetrics: {extra: []}\n# gone\n", id="key twice"),
        pytest.param("listen: {port: 1}\n...\n# gone\n", id="end of the document"),
        pytest.param("{listen: {port: 1}}\n# gone\n", id="flow at the top"),
    ],
)
def test_an_unusual_layout_loses_comments_at_most(text: str) -> None:
    changed, kept = merged(text, ("metrics", "enabled"), ["b", "a"])
    expected = yaml.safe_load(text)
    expected["metrics"] = (expected.get("metrics") or {}) | {"enabled": ["b", "a"]}
    assert expected == yaml.safe_load(changed)
    assert kept == ("# gone" in changed)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@example({"a": {"\x85": None}}, None, True)
@given(
    st.dictionaries(st.sampled_from(["a", "listen", "z"]), VALUES),
    st.none() | st.dictionaries(st.sampled_from(["enabled", "extra", "x"]), VALUES),
    st.sampled_from([True, False, None]),
)
def test_whatever_else_a_file_holds_is_kept(
    others: dict[str, object], section: dict[str, object] | None, flow: bool | None
) -> None:
    settings = others | {"metrics": section}
    text = yaml.safe_dump(settings, default_flow_style=flow, sort_keys=True)
    changed, _ = merged(text, ("metrics", "enabled"), ["b", "a"])
    expected = others | {"metrics": (section or {}) | {"enabled": ["b", "a"]}}
    assert expected == yaml.safe_load(changed)


def test_what_is_written_anew_stays_legible() -> None:
    changed, kept = merged("{prometheus: {headers: {X: é}}}\n", ("metrics", "enabled"), ["a"])
    assert ("X: é" in changed, kept) == (True, False)


def test_a_snippet_holds_its_comment_and_the_order() -> None:
    text = snippet(("minder", "metrics"), ["b", "a"], "one\ntwo")
    assert "# one\n# two\nminder:\n  metrics:\n    - b\n    - a\n" == text


def test_lost_comments_are_told(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, output = tmp_path / "detector.yaml", tmp_path / "new.yaml"
    config.write_text("{listen: {port: 1}}\n# gone\n")
    assert 0 == run(cases, "--config", config, "--output", output)
    assert f"{output} has its settings without its comments" in capsys.readouterr().err
    assert 1 == load_config(output).listen.port
    assert ORDER == [
        metric_config.name for metric_config in load_config(output).detection_metrics()
    ]


def test_a_broken_case_is_named_and_the_others_are_used(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = write_case(tmp_path / "broken", truth=FAULT)
    (broken / "samples.npz").write_bytes(b"PK")
    unlabelled = write_case(tmp_path / "unlabelled")
    output = tmp_path / "order.yaml"
    assert 2 == run(broken, cases, unlabelled, "--output", output)
    captured = capsys.readouterr()
    flagged = [
        line for line in captured.err.splitlines() if line.startswith("peerwatch-detector: ")
    ]
    assert 2 == len(flagged)
    assert f"{broken}: is not a case" in flagged[0]
    assert f"{unlabelled}/case.json: has no truth" in flagged[1]
    assert captured.out.startswith("6 cases, 4 with a fault")
    assert ORDER == [
        metric_config.name for metric_config in load_config(output).detection_metrics()
    ]


def test_a_node_without_samples_is_named_and_its_case_used(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    level = healthy(4, 200) * 100
    level[3] = np.nan
    arrays = dict.fromkeys(("cpu_usage", "unheard_of"), level)
    arrays["gpu_duty_cycle"] = np.stack([level] * 2, axis=1)
    folder = write_case(tmp_path / "gap", truth={"fault": None, "nodes": []}, arrays=arrays)
    assert 2 == run(cases, folder)
    captured = capsys.readouterr()
    assert (
        f"{folder}/samples.npz: no sample of node-03 in any metric; used without." in captured.err
    )
    assert captured.out.startswith("7 cases, 4 with a fault; 471 windows")


def test_no_usable_case_has_one_line_for_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [write_case(tmp_path / name) for name in ("one", "two")]
    assert 2 == run(*folders)
    captured = capsys.readouterr()
    told = [line for line in captured.err.splitlines() if line.startswith("peerwatch-detector: ")]
    assert ("", 2) == (captured.out, len(told))
    assert all(str(folder) in line for folder, line in zip(folders, told, strict=True))


def test_too_few_faults_are_an_error_and_nothing_is_written(cases: Path, tmp_path: Path) -> None:
    output = tmp_path / "order.yaml"
    few = [cases / f"case-{index}" for index in (0, 1, 3)]
    with pytest.raises(TrainingError, match=r"Of 3 usable case\(s\) 1 have a whole window"):
        run(*few, "--output", output)
    assert not output.exists()


def test_wrong_places_are_told_before_the_work(cases: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.png: is drawn as SVG; name it \*\.svg\."):
        run(cases, "--picture", tmp_path / "x.png")
    for flag, name in (("--picture", "x.svg"), ("--output", "x.yaml")):
        with pytest.raises(OutputError, match="cannot be written; its folder must exist"):
            run(cases, flag, tmp_path / "nowhere" / name)


@pytest.mark.parametrize(
    ("flag", "value", "limits"),
    [
        ("--depth", "0", "1 to 20"),
        ("--depth", "21", "1 to 20"),
        ("--depth", "two", "1 to 20"),
        ("--seed", "-1", "0 to 4294967295"),
    ],
)
def test_options_beyond_their_limits_are_refused(
    flag: str, value: str, limits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        options_of("cases", f"{flag}={value}")
    assert 2 == caught.value.code
    assert f"{value!r} must be a whole number from {limits}" in capsys.readouterr().err


def test_the_options_need_no_extras() -> None:
    code = (
        "import json, sys\n"
        "for name in ('numpy', 'pydantic', 'yaml', 'sklearn'): sys.modules[name] = None\n"
        "import peerwatch_detector.priority.options\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)


def test_what_is_missing_is_scikit_learn(cases: Path) -> None:
    code = (
        "import sys\nsys.modules['sklearn'] = None\n"
        "try:\n    import peerwatch_detector.priority.command\n"
        "except ModuleNotFoundError as error:\n    print(error.name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=_environment(), capture_output=True, text=True, check=True
    )
    # The command line turns this name into the line that says how to install it.
    assert "sklearn.metrics\n" == done.stdout


def _environment() -> dict[str, str]:
    import os

    import peerwatch_detector
    import peerwatch_exporter

    roots = [str(Path(m.__file__).parents[1]) for m in (peerwatch_exporter, peerwatch_detector)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(roots)}
