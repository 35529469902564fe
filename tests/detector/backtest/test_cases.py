from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from detector.fakes import START, FakeClock, FakeReader, config_for, healthy, metric, node_names
from detector.small_case import write_case
from peerwatch_common.errors import ConfigError
from peerwatch_detector.backtest.cases import load_case, save_case
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.errors import CaseError, TrainingError
from peerwatch_detector.training.healthy import windows_from_cases, windows_from_prometheus

FAULT = {"fault": "slow_nic", "nodes": ["node-01"], "onset_seconds": 50.0, "halt_seconds": None}


def test_a_case_is_read_in_base_units_with_its_truth(tmp_path: Path) -> None:
    case = load_case(write_case(tmp_path / "one", truth=FAULT))
    assert ("one", "job-1", 1.0) == (case.name, case.job_id, case.step_seconds)
    assert ("slow_nic", ("node-01",), 50.0, None) == (
        case.truth.fault,
        case.truth.nodes,
        case.truth.onset_seconds,
        case.truth.halt_seconds,
    )
    frame = case.frames["cpu_usage"]
    assert node_names(4) == frame.nodes
    assert [0.0, 1.0, 199.0] == [*frame.times[:2], frame.times[-1]]
    np.testing.assert_allclose(frame.values, healthy(4, 200), rtol=1e-5)
    gpus = case.frames["gpu_duty_cycle"]
    assert ("0", "1") == gpus.gpus
    np.testing.assert_allclose(gpus.values, healthy(4, 200) - 0.025, rtol=1e-5)
    fitting = [m.name for m in DetectorConfig().detection_metrics() if case.fits(m)]
    assert ["cpu_usage", "gpu_duty_cycle"] == fitting


def test_a_case_may_keep_its_truth_to_itself(tmp_path: Path) -> None:
    assert load_case(write_case(tmp_path / "one")).truth is None


def test_a_healthy_case_has_no_fault(tmp_path: Path) -> None:
    truth = {"fault": None, "nodes": [], "onset_seconds": None, "halt_seconds": None}
    case = load_case(write_case(tmp_path / "one", truth=truth))
    assert (None, ()) == (case.truth.fault, case.truth.nodes)


def break_json(folder: Path) -> None:
    (folder / "case.json").write_text("{")


def break_list(folder: Path) -> None:
    (folder / "case.json").write_text("[]")


def drop_nodes(folder: Path) -> None:
    change(folder, nodes=None)


def drop_a_node(folder: Path) -> None:
    change(folder, nodes=["a", "b", "c"])


def longer(folder: Path) -> None:
    change(folder, seconds=201)


def list_of_metrics(folder: Path) -> None:
    change(folder, metrics=["cpu_usage"])


def metric_without_samples(folder: Path) -> None:
    change(folder, metrics={"power": {"unit": "watts", "axes": ["node", "time"]}})


def truth_is_a_list(folder: Path) -> None:
    change(folder, truth=["slow_nic"])


def truth_names_a_string(folder: Path) -> None:
    change(folder, truth={"fault": "x", "nodes": "node-01"})


def no_samples(folder: Path) -> None:
    (folder / "samples.npz").unlink()


def empty_samples(folder: Path) -> None:
    (folder / "samples.npz").write_bytes(b"")


def garbage(folder: Path) -> None:
    (folder / "samples.npz").write_bytes(b"garbage" * 100)


def cut_short(folder: Path) -> None:
    path = folder / "samples.npz"
    path.write_bytes(path.read_bytes()[:-200])


def flipped(folder: Path) -> None:
    path = folder / "samples.npz"
    with np.load(path) as data:
        arrays = dict(data)
    np.savez_compressed(path, **arrays)
    body = bytearray(path.read_bytes())
    body[len(body) // 2 : len(body) // 2 + 40] = b"\xff" * 40
    path.write_bytes(bytes(body))


def one_array(folder: Path) -> None:
    with (folder / "samples.npz").open("wb") as file:
        np.save(file, np.ones(3))


def change(folder: Path, **changes: object) -> None:
    path = folder / "case.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "damage",
    [
        break_json,
        break_list,
        drop_nodes,
        drop_a_node,
        longer,
        list_of_metrics,
        metric_without_samples,
        truth_is_a_list,
        truth_names_a_string,
        no_samples,
        empty_samples,
        garbage,
        cut_short,
        flipped,
        one_array,
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_case_is_refused_by_name(tmp_path: Path, damage) -> None:
    folder = write_case(tmp_path / "damaged")
    damage(folder)
    with pytest.raises(CaseError, match="damaged"):
        load_case(folder)


def test_a_saved_case_is_read_back_equal(tmp_path: Path) -> None:
    case = load_case(write_case(tmp_path / "one", truth=FAULT))
    gpus = case.frames["gpu_duty_cycle"]
    flagged = replace(case, frames=case.frames | {"gpu_duty_cycle": replace(gpus, gpus=("2", "5"))})
    save_case(flagged, tmp_path / "two", more={"site": "here"})
    again = load_case(tmp_path / "two")
    for name in ("name", "job_id", "step_seconds", "truth", "units", "nodes", "seconds"):
        assert getattr(case, name) == getattr(again, name)
    for name, frame in flagged.frames.items():
        other = again.frames[name]
        assert (frame.nodes, frame.gpus) == (other.nodes, other.gpus)
        np.testing.assert_array_equal(frame.values, other.values)
    assert "here" == json.loads((tmp_path / "two" / "case.json").read_text())["site"]


def test_infinite_samples_are_missing_ones(tmp_path: Path) -> None:
    values = np.full((4, 200), 50.0)
    values[1, 7], values[2, 9] = np.inf, -np.inf
    case = load_case(write_case(tmp_path / "one", arrays={"cpu_usage": values}))
    missing = np.argwhere(np.isnan(case.frames["cpu_usage"].values))
    assert [[1, 7], [2, 9]] == missing.tolist()


def test_what_is_not_looked_at_is_told_with_its_unit(tmp_path: Path) -> None:
    case = load_case(write_case(tmp_path / "one"))
    known = [
        MetricConfig.model_validate(settings)
        for settings in (metric("cpu_usage"), metric("gpu_duty_cycle", unit="percent"))
    ]
    assert ("gpu_duty_cycle (ratio)", "unheard_of (ratio)") == case.not_compared(known)


def test_a_node_is_unheard_only_if_no_metric_has_a_sample(tmp_path: Path) -> None:
    node_values = np.full((4, 200), 50.0)
    node_values[1:3] = np.nan
    gpu_values = np.full((4, 2, 200), 50.0)
    gpu_values[[1, 3]] = np.nan
    arrays = {"cpu_usage": node_values, "unheard_of": node_values, "gpu_duty_cycle": gpu_values}
    assert ("node-01",) == load_case(
        write_case(tmp_path / "one", arrays=arrays)
    ).nodes_without_samples()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metrics": {}}, "lists no metrics"),
        ({"seconds": 0}, "does not go forward"),
        ({"step_seconds": float("nan")}, "does not go forward"),
        ({"nodes": []}, "at least one, each once"),
        ({"truth": FAULT | {"nodes": ["nobody"]}}, "truth names ['nobody']"),
        (
            {"truth": FAULT | {"onset_seconds": "50"}},
            "truth.onset_seconds is '50'; it must be a number of seconds from the start",
        ),
        ({"truth": FAULT | {"onset_seconds": float("nan")}}, "truth.onset_seconds is nan; it must"),
        ({"truth": FAULT | {"halt_seconds": [90]}}, "truth.halt_seconds is [90]; it must be a num"),
    ],
)
def test_a_contradiction_is_told_with_its_file(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    folder = write_case(tmp_path / "one")
    change(folder, **changes)
    with pytest.raises(CaseError, match=re.escape(reason)) as caught:
        load_case(folder)
    assert str(caught.value).startswith(f"{folder}/case.json: ")


def test_a_description_in_another_encoding_is_told_without_being_shown(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "one")
    path = folder / "case.json"
    text = path.read_text()
    # As editors of Windows mark it.
    path.write_text(text, encoding="utf-8-sig")
    assert "one" == load_case(folder).name
    path.write_text(text, encoding="utf-16")
    with pytest.raises(CaseError, match=r"is no text in UTF-8: .* at byte 0; save it as") as caught:
        load_case(folder)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("gpus", [["0"], ["0", "0"], "01", ["0", "1", "2"], None], ids=str)
def test_gpus_that_are_not_those_of_the_samples_are_refused(tmp_path: Path, gpus: object) -> None:
    folder = write_case(tmp_path / "one")
    metrics = json.loads((folder / "case.json").read_text())["metrics"]
    change(folder, metrics=metrics | {"gpu_duty_cycle": {"unit": "percent", "gpus": gpus}})
    expected = f"case.json: gpus of metric 'gpu_duty_cycle' are {gpus!r}; it must be a list of 2"
    with pytest.raises(CaseError, match=re.escape(expected)):
        load_case(folder)


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="cannot be read"):
        load_case(tmp_path / "nowhere")


def test_windows_from_cases_take_the_time_before_the_onset_only(tmp_path: Path) -> None:
    sick = np.full((4, 200), 50.0)
    sick[:, 50:] = 99.0
    folders = [
        write_case(tmp_path / "sick", truth=FAULT, arrays={"cpu_usage": sick}),
        write_case(tmp_path / "well", seconds=100),
    ]
    gathered = windows_from_cases(DetectorConfig(), folders)
    assert {"cpu_usage", "gpu_duty_cycle"} == set(gathered)
    cut = gathered["cpu_usage"]
    assert (4 * (50 - 7) + 4 * (100 - 7), 8) == cut.shape
    assert cut.max() < 0.8
    np.testing.assert_allclose(cut[: 4 * 43], 0.5, rtol=1e-5)
    well = healthy(4, 100)
    # Windows come step by step, node by node.
    np.testing.assert_allclose(cut[4 * 43 + 5], well[1, 1:9], rtol=1e-4)


@pytest.mark.parametrize("onset", [0.0, -20.0], ids=["start", "before"])
def test_a_fault_from_the_start_leaves_no_windows_of_that_case(
    tmp_path: Path, onset: float
) -> None:
    at_once = write_case(tmp_path / "at_once", truth=FAULT | {"onset_seconds": onset})
    well = write_case(tmp_path / "well")
    both = windows_from_cases(DetectorConfig(), [at_once, well])
    alone = windows_from_cases(DetectorConfig(), [well])
    np.testing.assert_array_equal(both["cpu_usage"], alone["cpu_usage"])


def test_a_fault_without_an_onset_is_not_learned_as_healthy(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "when", truth=FAULT | {"onset_seconds": None})
    with pytest.raises(
        CaseError, match=r"when/case\.json: truth has a fault 'slow_nic' but no onset"
    ):
        windows_from_cases(DetectorConfig(), [folder])


def test_windows_with_a_hole_that_is_too_wide_are_left_out(tmp_path: Path) -> None:
    values = np.full((4, 200), 50.0)
    values[0, 100:150] = np.nan
    values[1, 100:105] = np.nan
    folder = write_case(tmp_path / "holes", arrays={"cpu_usage": values})
    cut = windows_from_cases(DetectorConfig(), [folder])["cpu_usage"]
    assert np.isfinite(cut).all()
    # Ten samples on either side of the wide hole are filled: 30 stay empty.
    assert 4 * 193 - (30 + 7) == len(cut)


def test_cases_without_any_detection_metric_are_refused(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "other")
    with pytest.raises(TrainingError, match="None of the cases"):
        windows_from_cases(config_for(metric("load")), [folder])


def world(**settings: object) -> tuple[DetectorConfig, FakeReader]:
    config = config_for(metric("load", bounds=[0, 2]), metric("missing"), **settings)
    reader = FakeReader(FakeClock(START + 5000), config)
    reader.add_job("job-1", {"load": healthy(4, 600)}, node_names(4), START)
    return config, reader


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "joined"])
def test_windows_from_prometheus_are_scaled_and_cover_the_range(recorded: bool) -> None:
    config, reader = world(prometheus={"recorded": recorded})
    gathered = windows_from_prometheus(config, reader, "job-1", START + 100.0, START + 299.0)
    assert ["load"] == list(gathered)
    assert (4 * 193, 8) == gathered["load"].shape
    expected = healthy(4, 600)[:, 100:108] / 2
    np.testing.assert_allclose(gathered["load"][:4], expected, rtol=1e-5)
    ranges = {(q.start, q.end) for q in reader.requests if q.kind != "instant"}
    assert {(START + 100.0, START + 299.0)} == ranges


@pytest.mark.parametrize(("start", "end"), [(100, 107), (300, 100), (100, float("nan"))])
def test_a_range_that_is_too_short_or_turned_round_is_refused(start: float, end: float) -> None:
    config, reader = world()
    with pytest.raises(ConfigError, match="check --start and --end"):
        windows_from_prometheus(config, reader, "job-1", start, end)
    assert [] == reader.requests


def test_a_job_without_samples_is_refused() -> None:
    config, reader = world()
    with pytest.raises(TrainingError, match="Job 'other' has no samples"):
        windows_from_prometheus(config, reader, "other", START, START + 300.0)


def test_a_metric_under_an_alias_gets_its_own_name(tmp_path: Path) -> None:
    values = np.full((1, 5), 3.0, dtype=np.float32)
    write_aliased(tmp_path / "alias", {"tcp_throughput": values})
    case = load_case(tmp_path / "alias")
    assert ["network_throughput"] == list(case.frames) == list(case.units)
    assert "network_throughput" == case.frames["network_throughput"].metric
    # The name itself wins; what else there is keeps its own.
    both = {"tcp_throughput": values, "network_throughput": values + 1}
    write_aliased(tmp_path / "both", both)
    case = load_case(tmp_path / "both")
    assert {"tcp_throughput", "network_throughput"} == set(case.frames)
    assert 4.0 == case.frames["network_throughput"].values[0, 0]


def write_aliased(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    folder.mkdir()
    about = {"unit": "bytes per second", "axes": ["node", "time"]}
    meta = {
        "name": "a",
        "job_id": "j",
        "step_seconds": 1,
        "seconds": 5,
        "nodes": ["n"],
        "metrics": dict.fromkeys(arrays, about),
    }
    (folder / "case.json").write_text(json.dumps(meta))
    np.savez(folder / "samples.npz", **arrays)


def test_a_case_longer_than_any_memory_is_refused(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "endless")
    described = folder / "case.json"
    described.write_text(json.dumps(json.loads(described.read_text()) | {"seconds": 10**15}))
    with pytest.raises(CaseError, match="is not a case"):
        load_case(folder)
