"""What the documents say about the detector agrees with its code."""

import argparse
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from all_metrics import ALL_METRICS
from each_case import each_case
from peerwatch_detector.backtest.cases import Truth, load_case
from peerwatch_detector.command_line import parser
from peerwatch_detector.config import (
    DetectorConfig,
    PrometheusConfig,
    load_config,
    load_preset,
)
from peerwatch_detector.config.methods import PeerwatchConfig

ROOT = Path(__file__).parents[1]
README = ROOT / "detector" / "README.md"
DETECTION = ROOT / "docs" / "detection.md"
RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
GUIDES = tuple(
    ROOT / "docs" / f"{name}.md" for name in ("architecture", "faq", "install", "reading-a-finding")
)
DOCUMENTS = (
    README,
    ROOT / "README.md",
    ROOT / "docs" / "evaluation.md",
    DETECTION,
    ROOT / "docs" / "rules.md",
    *GUIDES,
    *RUNBOOKS,
)
SECTIONS = {
    name: field
    for name, field in DetectorConfig.model_fields.items()
    if hasattr(field.annotation, "model_fields")
}
SECTIONS["prometheus.reading"] = PrometheusConfig.model_fields["reading"]
# Names that are no longer there; recorded series keep theirs.
RENAMED = {"tcp_throughput", "rdma_throughput"}


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def commands_in(text: str) -> list[list[str]]:
    """Return the arguments of every `peerwatch-detector` line set as code."""
    lines = text.replace("\\\n", " ").splitlines()
    shown = [line for line in lines if line.startswith("    peerwatch-detector ")]
    return [shlex.split(line, comments=True)[1:] for line in shown]


def command_names() -> set[str]:
    (commands,) = (
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    return set(commands.choices)


def names_in(text: str) -> set[str]:
    return set(re.findall(r"`([a-z][a-z0-9_.]+)(?:: \w+)?(?:\{[^`]*\})?`", text))


def test_the_readme_shows_every_command() -> None:
    shown = {arguments[0] for arguments in commands_in(text_of(README))}
    assert command_names() == shown
    listed = re.findall(r"^\| `([a-z-]+)` \| [a-z]", text_of(README), re.MULTILINE)
    assert sorted(command_names()) == sorted(listed)


@pytest.mark.parametrize("path", DOCUMENTS[:3], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_commands_shown_are_commands(path: Path) -> None:
    shown = commands_in(text_of(path))
    assert shown
    for arguments in shown:
        assert arguments[0] == parser().parse_args(arguments).command


def test_every_setting_of_the_method_is_explained() -> None:
    evaluates = text_of(DETECTION).split("## The method `peerwatch`", 1)[1].split("\n## ", 1)[0]
    assert set() == set(PeerwatchConfig.model_fields) - names_in(evaluates)


def test_defaults_in_the_text_are_the_defaults() -> None:
    # What is set at the top of the file is looked for first.
    known = {"": DetectorConfig.model_fields, "peerwatch": PeerwatchConfig.model_fields}
    known |= {name: field.annotation.model_fields for name, field in SECTIONS.items()}
    found = {}
    text = text_of(README) + text_of(DETECTION)
    for name, number in re.findall(r"`([a-z_.]+)` \((\d[\d.]*)", text):
        section, _, field = name.rpartition(".")
        where = section or ("" if field in known[""] else "peerwatch")
        found[name] = (float(number), known[where][field].default)
    assert len(found) > 20
    assert {} == {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def test_settings_named_with_their_section_exist() -> None:
    for path in DOCUMENTS:
        for name in names_in(text_of(path)):
            section, _, field = name.rpartition(".")
            if section in SECTIONS and field not in ("", "py"):
                assert field in SECTIONS[section].annotation.model_fields, f"{path.name}: {name}"


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_alerts_named_exist(path: Path) -> None:
    named = set(re.findall(r"\bPeerwatch[A-Z]\w+", text_of(path)))

    assert set() == named - {file.stem for file in RUNBOOKS}


def test_the_finding_that_is_explained_has_the_columns_of_the_document() -> None:
    document = text_of(ROOT / "docs" / "reading-a-finding.md")
    web = ROOT / "detector" / "peerwatch_detector" / "web"
    template = text_of(web / "templates" / "finding.html")
    (heading,) = re.findall(r"^\| (metric \| node-2 .*) \|$", document, re.MULTILINE)
    # A term that is explained shows its first text.
    shown = re.sub(r'\{\{ term\("([^"]+)".*?\) \}\}', r"\1", template)
    columns = [
        re.sub(r"\{\{.*?\}\}", "node-2", cell) for cell in re.findall("<th.*?>(.*?)</th>", shown)
    ]

    assert columns == heading.split(" | ")


@each_case("path", DOCUMENTS)
def test_metrics_named_exist(path: Path) -> None:
    text = text_of(path)
    series = set(re.findall(r"\bpeerwatch_[a-z_]+\b", text))
    modules = {path.parent.name for path in ROOT.glob("*/peerwatch_*/__init__.py")}
    rules = "".join(file.read_text() for file in (ROOT / "rules").glob("*.rules.yaml"))
    groups = set(re.findall(r"- name: (\S+)", rules))
    assert set() == series - set(ALL_METRICS) - modules - groups
    recorded = set(re.findall(r"- record: (\S+)", rules))
    assert recorded >= {metric.recorded for metric in load_preset("peerwatch").metrics}
    assert set() == set(re.findall(r"\bjob_(?:node|gpu):[a-z_]+:[a-z]+", text)) - recorded
    assert set() == RENAMED & set(re.findall(r"(?<![:\w])[a-z]+_throughput\b(?!:)", text))


def test_the_first_screen_says_how_many_metrics_are_compared() -> None:
    count = len(DetectorConfig().detection_metrics())
    assert [str(count)] == re.findall(r"over (\d+) metrics", text_of(ROOT / "README.md"))


def test_the_runbook_tells_where_to_look_for_every_metric() -> None:
    table = text_of(ROOT / "docs" / "runbooks" / "PeerwatchFaultyNode.md")
    rows = re.findall(r"^ *\| ([a-z_, ]+) \|", table, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")} - {"metric"}
    assert {metric.name for metric in load_preset("peerwatch").metrics} == named


def test_the_case_in_the_readme_is_a_case(tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", text_of(README), re.DOTALL)
    about = json.loads(block)
    sizes = {
        "node": len(about["nodes"]),
        "gpu": about["gpus_per_node"],
        "time": round(about["seconds"] / about["step_seconds"]),
    }
    arrays = {
        name: np.zeros([sizes[axis] for axis in metric["axes"]], dtype=np.float32)
        for name, metric in about["metrics"].items()
    }
    (tmp_path / "case.json").write_text(block)
    np.savez(tmp_path / "samples.npz", **arrays)
    case = load_case(tmp_path)
    metrics = load_preset("peerwatch").metrics
    assert Truth("nic", ("gpu042",), 1680.0, None) == case.truth
    assert () == case.not_compared(metrics)


def test_the_example_names_defaults_of_metrics_too() -> None:
    shown = load_config(ROOT / "detector" / "detector.example.yaml")
    assert shown.metrics.overrides
    assert DetectorConfig().detection_metrics() == shown.detection_metrics()
