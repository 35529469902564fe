"""export-case against fakes, and once against a real Prometheus filled with known samples."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from detector.backfilled import backfilled
from detector.fakes import (
    START,
    FakeClock,
    FakeReader,
    config_for,
    healthy,
    healthy_gpus,
    metric,
    node_names,
    shifted,
)
from peerwatch_detector.__main__ import main
from peerwatch_detector.backtest.cases import Case, Truth, load_case
from peerwatch_detector.backtest.export_case import Stretch, export_case
from peerwatch_detector.backtest.reading import read_metrics
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import CaseError, ReadError
from peerwatch_detector.reading import Grid

NODES = node_names(4)
STRETCH = Stretch("job-1", START + 100.0, START + 299.0)


def world(**settings: object) -> tuple[DetectorConfig, FakeReader]:
    config = config_for(
        metric("load"), metric("power", scope="gpu", unit="watts"), metric("silent"), **settings
    )
    reader = FakeReader(FakeClock(START + 5000), config)
    values = {"load": healthy(4, 600), "power": healthy_gpus(4, 2, 600)}
    values["load"][2, 150:160] = np.nan
    reader.add_job("job-1", values, NODES, START)
    return config, reader


def assert_equal(expected: Case, actual: Case) -> None:
    for name in ("name", "job_id", "step_seconds", "truth", "units", "nodes", "seconds"):
        assert getattr(expected, name) == getattr(actual, name)
    assert list(expected.frames) == list(actual.frames)
    for name, frame in expected.frames.items():
        other = actual.frames[name]
        assert (frame.nodes, frame.gpus) == (other.nodes, other.gpus)
        np.testing.assert_array_equal(frame.times, other.times)
        np.testing.assert_array_equal(frame.values, other.values)
        if frame.gpu_values is not None:
            np.testing.assert_array_equal(frame.gpu_values, other.gpu_values)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "joined"])
def test_what_was_read_is_what_load_case_gives_back(recorded: bool, tmp_path: Path) -> None:
    config, reader = world(prometheus={"recorded": recorded})
    truth = Truth("slow_nic", ("node-01",), 40.0, None)
    made = export_case(tmp_path / "incident", STRETCH, truth, config, reader)
    assert_equal(made, load_case(tmp_path / "incident"))
    assert ("incident", "job-1", 200.0) == (made.name, made.job_id, made.seconds)
    assert {"load": "ratio", "power": "watts"} == made.units
    np.testing.assert_array_equal(healthy(4, 600)[1, 100:300], made.frames["load"].values[1])
    assert np.isnan(made.frames["load"].values[2, 50:60]).all()
    assert (4, 2, 200) == made.frames["power"].gpu_values.shape
    about = json.loads((tmp_path / "incident" / "case.json").read_text())
    assert (START + 100, 2) == (about["start_timestamp_seconds"], about["gpus_per_node"])


def test_a_node_of_the_job_without_samples_is_in_the_case(tmp_path: Path) -> None:
    config, reader = world()
    reader.members["job-1", "node-99"] = reader.members["job-1", NODES[0]]
    made = export_case(tmp_path / "one", STRETCH, None, config, reader)
    assert (*NODES, "node-99") == made.nodes
    assert ("node-99",) == load_case(tmp_path / "one").nodes_without_samples()


@pytest.mark.parametrize(
    ("stretch", "truth", "reason"),
    [
        (Stretch("job-7", START, START + 99.0), None, "'job-7' is unknown .*jobs there: job-1"),
        (Stretch("job-1", START + 50.0, START + 50.5), None, "is empty"),
        (Stretch("job-1", START + 50.0, START + 10.0), None, "is empty"),
        (Stretch("job-1", START, float("inf")), None, "must be finite"),
        (Stretch("job-1", START - 900.0, START - 800.0), None, "is unknown .*jobs there: none"),
        (Stretch("job-1", START + 700.0, START + 800.0), None, "ran on 4 nodes .* but none of"),
        (STRETCH, Truth("x", ("node-9",), 5.0, None), "--truth-node node-9: not of this job"),
        (STRETCH, Truth("x", ("node-01",), 500.0, None), "--onset: lies 500 s after --start"),
        (STRETCH, Truth("x", ("node-01",), 5.0, 201.0), "--halt: lies 201 s after --start"),
    ],
)
def test_what_cannot_be_exported_is_told_and_leaves_no_folder(
    stretch: Stretch, truth: Truth | None, reason: str, tmp_path: Path
) -> None:
    config, reader = world()
    with pytest.raises(CaseError, match=reason):
        export_case(tmp_path / "one", stretch, truth, config, reader)
    assert [] == list(tmp_path.iterdir())


def test_a_case_has_the_steps_of_the_configuration(tmp_path: Path) -> None:
    config, reader = world(step_seconds=10)
    case = export_case(tmp_path / "one", STRETCH, None, config, reader)
    # START + 100 is on the grid; of the samples of a second the latest of each step counts.
    assert (10.0, 200.0) == (case.step_seconds, case.seconds)
    times = case.frames["load"].times
    assert [0.0, 10.0, 190.0] == times[[0, 1, -1]].tolist()
    assert np.isfinite(case.frames["load"].values[0]).all()


def test_a_prometheus_that_cannot_be_read_leaves_no_folder(tmp_path: Path) -> None:
    config, reader = world()
    reader.failure = "timeout"
    with pytest.raises(ReadError):
        export_case(tmp_path / "one", STRETCH, None, config, reader)
    assert [] == list(tmp_path.iterdir())


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    config, reader = world()
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    for target in (folder, folder / "notes.txt"):
        with pytest.raises(CaseError, match="exists and is not empty"):
            export_case(target, STRETCH, None, config, reader)
    assert [] == reader.requests
    (folder / "notes.txt").unlink()
    export_case(folder, STRETCH, None, config, reader)
    assert 200.0 == load_case(folder).seconds


BASE = ["export-case", "--job-id", "j", "--start", "100", "--end", "200"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--truth-node", "a"], "--truth-fault, --onset missing"),
        (["--truth-fault", "x", "--onset", "0"], "--truth-node missing"),
        (["--halt", "150"], "--truth-node, --truth-fault, --onset missing"),
        (["--healthy", "--onset", "5"], "--healthy: contradicts --onset"),
    ],
)
def test_half_a_truth_is_refused(
    more: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main([*BASE, *more, str(tmp_path / "one")])
    assert reason in capsys.readouterr().err


def test_a_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["export-case", "--job-id", "j", "--start", "noon", "--end", "200", "x"])
    assert 2 == caught.value.code
    assert "'noon' is no time; give Unix seconds or ISO 8601" in capsys.readouterr().err


@dataclass
class Filled:
    """A real Prometheus, and what is in it."""

    url: str
    start: int
    cpu: np.ndarray
    power: np.ndarray


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """Half an hour ago a job ran for ten minutes; its samples are written as a block."""
    directory = tmp_path_factory.mktemp("prometheus")
    start = int(time.time()) - 1800
    cpu = shifted(6, 600, {3: -0.35}).astype(np.float64)
    power = 400 + 100 * healthy_gpus(6, 2, 600).astype(np.float64)
    lines = []
    for name, text in (
        ("host_job_info", lambda node, step: "1"),
        ("job_node:cpu_usage:ratio", lambda node, step: repr(float(cpu[node, step]))),
    ):
        lines.append(f"# TYPE {name} gauge")
        lines += [
            f'{name}{{job_id="j",node="node-{node}"}} {text(node, step)} {start + step}'
            for node in range(6)
            for step in range(600)
        ]
    lines.append("# TYPE job_gpu:power:watts gauge")
    lines += [
        f'job_gpu:power:watts{{job_id="j",node="node-{node}",gpu="{gpu}"}} '
        f"{float(power[node, gpu, step])!r} {start + step}"
        for node in range(6)
        for gpu in range(2)
        for step in range(600)
    ]
    with backfilled(directory, "\n".join([*lines, "# EOF"]) + "\n") as url:
        yield Filled(url, start, cpu, power)


@pytest.mark.e2e
@pytest.mark.xdist_group("plays-2")
def test_a_live_incident_becomes_a_case_that_the_backtest_understands(
    filled: Filled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, start = tmp_path / "incident", filled.start
    truth = ["--truth-node", "node-3", "--truth-fault", "slow_nic", "--onset", str(start + 300)]
    span = ["--job-id", "j", "--start", str(start), "--end", str(start + 599)]
    server = ["--prometheus", filled.url]
    assert 0 == main(["export-case", *server, *span, *truth, str(folder)])
    assert f"{folder}: 6 nodes, 600 s, 2 metrics\n" == capsys.readouterr().out
    case = load_case(folder)
    assert Truth("slow_nic", ("node-3",), 300.0, None) == case.truth
    np.testing.assert_array_equal(filled.cpu.astype(np.float32), case.frames["cpu_usage"].values)
    np.testing.assert_array_equal(
        filled.power.astype(np.float32), case.frames["gpu_power"].gpu_values
    )
    config = tmp_path / "detector.yaml"
    config.write_text(
        yaml.safe_dump({"continuity": {"threshold_seconds": 60}, "peerwatch": {"progress": False}})
    )
    report = tmp_path / "report.json"
    arguments = [str(folder), "--config", str(config), "--output", str(report), "-j", "1"]
    assert 0 == main(["evaluate", *arguments])
    overall = json.loads(report.read_text())["methods"]["peerwatch"]["overall"]
    assert (1, 0) == (overall["true_positives"], overall["false_positives"])
    # The folder is there now.
    assert 2 == main(["export-case", *server, *span, str(folder)])
    assert "exists and is not empty" in capsys.readouterr().err


@pytest.mark.e2e
@pytest.mark.xdist_group("plays-2")
def test_a_live_server_tells_which_jobs_it_knows(
    filled: Filled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    span = ["--start", str(filled.start), "--end", str(filled.start + 99)]
    asked = ["export-case", "--prometheus", filled.url, "--job-id", "other", *span]
    assert 2 == main([*asked, str(tmp_path / "x")])
    captured = capsys.readouterr()
    assert "" == captured.out
    assert "Job 'other' is unknown" in captured.err
    assert "jobs there: j." in captured.err


def test_metrics_are_read_some_at_a_time_and_each_is_counted() -> None:
    config = config_for(*(metric(f"load_{number}") for number in range(5)))
    reader = FakeReader(FakeClock(1000.0), config)
    reads, counts = [], []
    whole = reader.read

    def read(selections, *arguments):
        reads.append([selection.metric for selection in selections])
        return whole(selections, *arguments)

    reader.read = read
    connections = config.prometheus.reading.connections
    found = read_metrics(
        reader, config, "job", Grid.of_seconds(900, 960, 1.0), ("a",), counts.append
    )
    names = [*(f"load_{number}" for number in range(5)), "rank_steps", "collectives"]
    assert names == [of.name for of, _ in found]
    assert names == [name for part in reads for name in part]
    assert all(len(part) <= connections for part in reads)
    assert [len(part) for part in reads] == counts
