"""The windows and the tree that the metric priority is learnt from."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from detector.fakes import ONSET, healthy, metric, shifted
from detector.small_case import write_case
from late import late
from peerwatch_detector.backtest.run import CaseResult
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import TrainingError
from peerwatch_detector.priority.windows import LabelledWindows, largest_zscores, read_windows

PRIORITY = "peerwatch_detector.priority"
folds, window_weights = late(f"{PRIORITY}.fit", "folds"), late(f"{PRIORITY}.fit", "window_weights")
draw, figure_of = late(f"{PRIORITY}.picture", "draw"), late(f"{PRIORITY}.picture", "figure_of")
learn = late(f"{PRIORITY}.tree", "learn")
# Scikit-learn is loaded by one worker.
pytestmark = pytest.mark.xdist_group("scikit-learn")

METRICS = ("first", "second", "third", "fourth")
SVG = "{http://www.w3.org/2000/svg}"


def windows_of(
    name: str, features: np.ndarray, faulty: np.ndarray, lacking: tuple[int, ...] = ()
) -> LabelledWindows:
    missing = np.isin(np.arange(features.shape[1]), lacking)
    return LabelledWindows(CaseResult(Path(name), name), features, faulty, missing)


def some_cases(count: int = 12, *, seed: int = 1) -> list[LabelledWindows]:
    """Every other case has a fault: most show in ``third``, the rest in ``second``."""
    random = np.random.default_rng(seed)
    cases = []
    for index in range(count):
        features = random.uniform(0.0, 2.0, (40, len(METRICS)))
        faulty = (np.arange(40) >= 25) & (index % 2 == 0)
        features[faulty, 2 if index % 3 else 1] += 3.0
        cases.append(windows_of(f"case-{index}", features, faulty))
    return cases


def learnt(cases: list[LabelledWindows], depth: int = 4, seed: int = 0):
    return learn(cases, METRICS, depth=depth, seed=seed)


def naive_largest(values: np.ndarray, length: int) -> list[float]:
    """Return the largest absolute Z-score of every window, spelt out; no gaps."""
    found = []
    for start in range(0, values.shape[1] - length + 1, length):
        means = [float(np.mean(row[start : start + length].astype(float))) for row in values]
        middle = sum(means) / len(means)
        spread = (sum((mean - middle) ** 2 for mean in means) / len(means)) ** 0.5
        found.append(max(abs(mean - middle) / spread for mean in means))
    return found


@pytest.mark.parametrize("shift", [-0.4, 0.4], ids=["falls", "rises"])
def test_a_window_is_the_largest_deviation_to_either_side(shift: float) -> None:
    values = shifted(8, 604, {2: shift})
    actual = largest_zscores(values, 8, 600, 3)
    assert (75,) == actual.shape
    np.testing.assert_allclose(naive_largest(values, 8), actual, rtol=1e-9)
    assert (actual[ONSET // 8 + 1 :] > 2.5).all()


def test_gaps_are_filled_and_what_cannot_be_compared_is_no_deviation() -> None:
    values = healthy(4, 80)
    whole = largest_zscores(values, 8, 600, 3)
    values[1, 40:48] = np.nan
    filled = largest_zscores(values, 8, 600, 3)
    np.testing.assert_array_equal(np.delete(whole, 5), np.delete(filled, 5))
    assert filled[5] > 0
    values[1:3] = np.nan
    assert [0.0] * 10 == largest_zscores(values, 8, 600, 3).tolist()
    assert [0.0] * 10 == largest_zscores(np.ones((4, 80), np.float32), 8, 600, 3).tolist()


def read(folder: Path, **settings: object) -> LabelledWindows:
    config = DetectorConfig.model_validate(settings)
    return read_windows(folder, config.detection_metrics(), config)


@pytest.mark.parametrize(
    ("onset", "halt", "healthy_windows", "faulty_windows"),
    [
        pytest.param(96, None, 12, 13, id="lasts to the end, begins with a window"),
        pytest.param(100, None, 12, 12, id="the window across the onset is left out"),
        pytest.param(96, 150, 12, 6, id="what reaches beyond the halt is left out"),
        pytest.param(96, 100, 12, 0, id="too short for a window"),
    ],
)
def test_the_faulty_stretch_runs_from_the_onset_to_the_halt(
    onset: float, halt: float | None, healthy_windows: int, faulty_windows: int, tmp_path: Path
) -> None:
    truth = {"fault": "nic", "nodes": ["node-01"], "onset_seconds": onset, "halt_seconds": halt}
    found = read(write_case(tmp_path / "case", truth=truth))
    assert "" == found.result.error
    expected = [False] * healthy_windows + [True] * faulty_windows
    assert expected == found.faulty.tolist()
    assert len(expected) == len(found.features)


def test_the_onset_counts_in_seconds_whatever_the_step(tmp_path: Path) -> None:
    truth = {"fault": "nic", "nodes": ["node-01"], "onset_seconds": 960.0}
    arrays = dict.fromkeys(("cpu_usage", "gpu_duty_cycle", "unheard_of"), healthy(4, 200))
    folder = write_case(
        tmp_path / "case", truth=truth, step_seconds=10.0, seconds=2000, arrays=arrays
    )
    assert [False] * 12 + [True] * 13 == read(folder).faulty.tolist()


def test_a_metric_without_samples_is_lacking_and_no_deviation(tmp_path: Path) -> None:
    empty = np.full((4, 200), np.nan)
    truth = {"fault": None, "nodes": []}
    folder = write_case(tmp_path / "case", truth=truth, arrays={"gpu_power": empty})
    config = DetectorConfig()
    found = read(folder)
    lacking = dict(
        zip(
            [metric_config.name for metric_config in config.detection_metrics()],
            found.lacking,
            strict=True,
        )
    )
    # The unit of gpu_power is another one, too: percent.
    assert {"cpu_usage", "gpu_duty_cycle"} == {name for name, lacks in lacking.items() if not lacks}
    assert not found.features[:, found.lacking].any()
    assert found.features[:, ~found.lacking].all()
    only = metric("gpu_power", unit="ratio")
    found = read(folder, metrics={"enabled": ["mine"], "extra": [only | {"name": "mine"}]})
    assert "none of its metrics is known" in found.result.error


def test_a_gpu_metric_counts_by_the_mean_of_its_node(tmp_path: Path) -> None:
    truth = {"fault": None, "nodes": []}
    found = read(write_case(tmp_path / "case", truth=truth))
    names = [metric_config.name for metric_config in DetectorConfig().detection_metrics()]
    # The GPUs of the small case are the node's CPU usage and the same less 5 percent.
    np.testing.assert_allclose(
        found.features[:, names.index("cpu_usage")],
        found.features[:, names.index("gpu_duty_cycle")],
        rtol=1e-3,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({}, "has no truth", id="no truth"),
        pytest.param(
            {"truth": {"fault": "nic", "nodes": ["node-01"]}}, "no onset_seconds", id="no onset"
        ),
        pytest.param(
            {"truth": {"fault": None}, "nodes": 2}, "at least min_nodes = 3", id="two nodes"
        ),
        pytest.param(
            {"truth": {"fault": None}, "seconds": 7}, "7 steps are less than one", id="short"
        ),
    ],
)
def test_a_case_that_says_nothing_is_named(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    found = read(write_case(tmp_path / "case", **changes))
    assert reason in found.result.error
    assert f"{tmp_path}/case/case.json" in found.result.error
    assert 0 == len(found.features)


def test_what_tells_most_comes_first_and_what_is_never_asked_keeps_its_order() -> None:
    found = learnt(some_cases())
    assert ("third", "second", "first", "fourth") == found.order
    first, second, *others = found.ranking
    assert (0, 1) == (first.depth, second.depth)
    assert ("above", "above") == (first.side, second.side)
    assert 1.0 == pytest.approx(first.importance + second.importance)
    assert (5, 5) == (first.folds, found.folds)
    assert [(None, 0.0, "")] * 2 == [(rank.depth, rank.importance, rank.side) for rank in others]
    assert (12, 6, 480, 90) == (found.cases, found.faults, found.windows, found.faulty_windows)
    assert found.accuracy > 0.95
    assert 20 == len(found.permuted)
    assert list(found.permuted) == sorted(found.permuted)
    assert found.permuted[-1] < found.accuracy


def test_metrics_of_one_depth_come_by_importance() -> None:
    window = np.arange(40)
    upper = window < 20
    # Of the upper half nearly all are faulty, of the lower one few.
    faulty = (window < 18) | (window >= 36)
    features = np.zeros((40, 4))
    features[:, 3] = np.where(upper, 4, 0)
    # Each of the two tells of its half all, of the other one nothing.
    features[:, 0] = np.where(upper, faulty, window % 2)
    features[:, 1] = np.where(upper, window % 2, faulty)
    cases = [windows_of(f"case-{index}", features, faulty) for index in range(4)]
    found = learnt(cases, depth=2)
    assert ("fourth", "second", "first", "third") == found.order
    assert [0, 1, 1, None] == [rank.depth for rank in found.ranking]
    assert found.ranking[1].importance > found.ranking[2].importance > 0


def test_a_metric_that_is_low_in_faults_says_so() -> None:
    cases = some_cases()
    for case in cases:
        case.features[:, 3] = np.where(case.faulty, 0.1, 2.0)
    first = learnt(cases).ranking[0]
    assert ("fourth", "below", 0) == (first.metric, first.side, first.depth)
    assert 1.0 == pytest.approx(first.importance)


def test_what_cases_lack_is_counted() -> None:
    cases = some_cases()
    cases[3] = windows_of("case-3", cases[3].features, cases[3].faulty, (0, 2))
    ranking = {rank.metric: rank.lacking for rank in learnt(cases).ranking}
    assert {"first": 1, "second": 0, "third": 1, "fourth": 0} == ranking


def test_labels_that_say_nothing_are_told_no_better_than_permuted_ones() -> None:
    random = np.random.default_rng(5)
    cases = [
        windows_of(f"case-{index}", random.uniform(0, 2, (40, 4)), case.faulty)
        for index, case in enumerate(some_cases(20))
    ]
    found = learnt(cases)
    assert 0.4 < found.accuracy < 0.6
    assert found.permuted[0] <= found.accuracy <= found.permuted[-1]


def test_the_same_seed_gives_the_same_and_the_cases_order_does_not_name_another() -> None:
    cases = some_cases()
    assert learnt(cases) == learnt(cases)
    assert learnt(cases, seed=1).permuted != learnt(cases).permuted
    assert learnt(cases).order == learnt(cases[::-1]).order


def test_windows_of_one_case_never_lie_on_both_sides_of_the_cross_validation() -> None:
    """Each case has a mark of its own; seen in training it would tell the case's windows."""
    random = np.random.default_rng(7)
    cases = []
    for index in range(10):
        features = random.uniform(0, 0.01, (40, 4))
        faulty = np.arange(40) >= 20
        # Where the halves lie differs from case to case: a tree that knows the case is right.
        features[:, 0] = index + np.where(faulty, 0.5, 0.0) * (1 if index % 2 else -1)
        cases.append(windows_of(f"case-{index}", features, faulty))
    found = learnt(cases, depth=20)
    assert found.tree.get_n_leaves() > 1
    assert found.accuracy < 0.8
    parts = list(folds([True] * 5 + [False] * 5, 0))
    assert 5 == len(parts)
    held_out = []
    for learnt_from, test in parts:
        assert list(range(10)) == sorted(learnt_from + test)
        # A faulty case and a healthy one.
        assert [True, False] == [case < 5 for case in sorted(test)]
        held_out += test
    assert list(range(10)) == sorted(held_out)


def test_depth_is_a_limit() -> None:
    trees = [learnt(some_cases(), depth=depth).tree for depth in (1, 2)]
    assert [1, 2] == [tree.get_depth() for tree in trees]


def test_every_case_weighs_the_same_and_so_do_both_labels() -> None:
    labels = [
        np.array([False] * 30 + [True] * 10),
        np.array([False] * 5),
        np.array([True] * 2),
    ]
    weights = np.split(window_weights(labels), [40, 45])
    assert [0.25, 0.25, 0.25, 0.25] == pytest.approx(
        [weights[0][:30].sum(), weights[0][30:].sum(), weights[1].sum(), weights[2].sum()]
    )


def test_accuracy_is_the_mean_of_both_labels_over_the_windows_weights() -> None:
    """The held-out accuracy of a tree that is right but for the windows of one case."""
    cases = some_cases(10)
    # One fault that shows in nothing: whoever has not seen it takes its windows for healthy.
    odd = cases[2]
    odd.features[odd.faulty] = 0.5
    found = learnt(cases)
    faults = sum(bool(case.faulty.any()) for case in cases)
    assert pytest.approx((1 - 1 / faults + 1) / 2, abs=0.02) == found.accuracy


def test_fewer_healthy_cases_than_folds_are_enough() -> None:
    parts = list(folds([True] * 4 + [False], 0))
    assert [1, 1, 1, 2] == sorted(len(test) for _, test in parts)


@pytest.mark.parametrize(
    ("cases", "reason"),
    [
        pytest.param(some_cases()[1::2], r"^Of 6 usable case\(s\) 0 have", id="no fault"),
        pytest.param(some_cases(2), r"^Of 2 usable case\(s\) 1 have", id="one fault"),
        pytest.param(
            [windows_of(str(n), np.ones((4, 4)), np.ones(4, dtype=bool)) for n in range(3)],
            "has a healthy window",
            id="nothing healthy",
        ),
        pytest.param(
            [windows_of(str(n), np.ones((40, 4)), np.arange(40) > 20) for n in range(4)],
            "No metric's Z-scores tell faulty windows",
            id="nothing to split by",
        ),
    ],
)
def test_too_little_to_learn_from_is_told(cases: list[LabelledWindows], reason: str) -> None:
    with pytest.raises(TrainingError, match=reason):
        learnt(cases)


def test_cases_without_a_window_do_not_count() -> None:
    empty = windows_of("short", np.empty((0, 4)), np.empty(0, dtype=bool))
    assert learnt(some_cases()) == learnt([*some_cases(), empty])


def test_the_picture_has_every_split_and_answer() -> None:
    found = learn(some_cases(), ("a", "b", "pfc_tx_rate", "<&>" * 20), depth=2, seed=0)
    figure = figure_of(found)
    boxes = [text for text in figure.axes[0].texts if text.get_bbox_patch() is not None]
    texts = [" ".join(box.get_text().split()) for box in boxes]
    assert any(text.startswith("PFC transmit rate ≤") for text in texts)
    inner = found.tree.tree_
    assert inner.node_count == len(texts)
    for node, text in enumerate(texts):
        if inner.feature[node] < 0:
            assert text.endswith(f"% faulty {inner.n_node_samples[node]} windows")
        else:
            assert f"≤ {inner.threshold[node]:.2f}? " in text
    leaves = [text for text in texts if text.endswith(" windows")]
    assert len(leaves) == len(texts) - len(leaves) + 1
    assert 480 == sum(int(text.split()[-2]) for text in leaves)
    heads = [text.get_text() for text in figure.texts]
    assert any("12 cases, 6 with a fault, 480 windows" in text for text in heads)


@pytest.mark.parametrize("depth", [1, 2, 20])
def test_the_boxes_lie_within_the_picture_and_not_over_one_another(depth: int) -> None:
    random = np.random.default_rng(2)
    cases = some_cases(20)
    for case in cases:
        case.features[:] = random.uniform(0, 2, case.features.shape)
    figure = figure_of(learnt(cases, depth=depth))
    figure.draw_without_rendering()
    whole = figure.bbox.extents
    boxes = [
        text.get_bbox_patch().get_window_extent()
        for text in figure.axes[0].texts
        if text.get_bbox_patch() is not None
    ]
    boxes += [text.get_window_extent() for text in figure.texts]
    for index, box in enumerate(boxes):
        assert (whole[:2] <= box.min).all()
        assert (box.max <= whole[2:]).all()
        assert not any(box.overlaps(other) for other in boxes[:index])


def test_the_picture_is_svg_with_its_text_and_the_same_every_time() -> None:
    found = learnt(some_cases())
    root = ET.fromstring(draw(found))
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any("12 cases, 6 with a fault, 480 windows" in text for text in texts)
    assert draw(found) == draw(learnt(some_cases()))


def test_a_long_name_is_cut() -> None:
    names = ("a", "b", "<&>" * 20, "d")
    root = ET.fromstring(draw(learn(some_cases(), names, depth=2, seed=0)))
    assert any("…" in (text.text or "") for text in root.iter(f"{SVG}text"))
