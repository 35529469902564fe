from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector import naive
from detector.fakes import ONSET, START, Replay, config_for, healthy, metric, node_names, shifted
from peerwatch_common.errors import ConfigError
from peerwatch_detector.backtest.ablation import VARIANTS, method_ablations, method_config
from peerwatch_detector.config import DetectorConfig, load_config
from peerwatch_detector.detection.methods.minder.windows import causal_windows

SEVEN = [
    "pfc_tx_rate",
    "cpu_usage",
    "gpu_duty_cycle",
    "gpu_power",
    "gpu_graphics_activity",
    "gpu_tensor_activity",
    "nvlink_bandwidth",
]
# Nothing falls again, as in the slow version.
FOR_GOOD = {"threshold_seconds": 20, "clear_seconds": 7200}
MD = {"model": "raw", "join": "concatenated", "distance": "mahalanobis"}


def several(*names: str, **settings: Any) -> DetectorConfig:
    metrics = [metric(name) for name in names or ("load", "power")]
    return config_for(*metrics, **({"method": "minder", "continuity": FOR_GOOD} | settings))


def found(replay: Replay) -> list[tuple[str, int, int, int]]:
    return [
        (
            finding.metric,
            replay.nodes.index(finding.node),
            int(finding.since) - START,
            int(finding.raised) - START,
        )
        for finding in replay.raised
    ]


def rough(nodes: int, seconds: int, seed: int) -> dict[str, np.ndarray]:
    """Two metrics, faults of two nodes, outages of single nodes and of all, one silent metric."""
    rng = np.random.default_rng(seed)
    values = {}
    for name in ("load", "power", "nothing"):
        grid = np.clip(rng.normal(0.5, 0.04, (nodes, seconds)), 0, 1).astype(np.float32)
        for _ in range(4):
            node, start = int(rng.integers(nodes)), int(rng.integers(seconds))
            grid[node, start : start + int(rng.integers(1, 25))] = np.nan
        values[name] = grid
    values["power"][2, 40:] = np.clip(values["power"][2, 40:] + 0.3, 0, 1)
    values["load"][4, 75:110] = np.clip(values["load"][4, 75:110] - 0.3, 0, 1)
    values["load"][:, 60:64] = np.nan
    values["nothing"][:] = np.nan
    return values


VARIANT_SETTINGS: list[dict[str, Any]] = [
    {},
    {"distance": "manhattan"},
    {"distance": "chebyshev"},
    {"join": "concatenated"},
    {"join": "concatenated", "distance": "chebyshev"},
    MD,
    {"fill_seconds": 3},
]


@pytest.mark.parametrize("variant", VARIANT_SETTINGS, ids=str)
@pytest.mark.parametrize(("seed", "nodes", "cycle"), [(0, 6, 1), (1, 8, 7), (2, 9, 150)])
def test_every_variant_is_its_slow_version(
    seed: int, nodes: int, cycle: int, variant: dict[str, Any]
) -> None:
    values = rough(nodes, 150, seed)
    replay = Replay(several("load", "power", "nothing", minder=variant), values)
    replay.run(cycle=cycle)
    expected = naive.minder(
        {name: grid.tolist() for name, grid in values.items()},
        20.0,
        joined=variant.get("join") == "concatenated",
        distance=variant.get("distance", "euclidean"),
        limit=variant.get("fill_seconds", 600),
    )
    # ``raised`` is the end of the cycle in which the window was evaluated.
    ends = [min(150, -(-(end + 1) // cycle) * cycle) - 1 for *_, end in expected]
    assert [(*deviation[:3], end) for deviation, end in zip(expected, ends, strict=True)] == found(
        replay
    )


def test_the_slow_version_finds_what_was_planted() -> None:
    values = {name: grid.tolist() for name, grid in rough(8, 150, 1).items()}
    assert {("load", 4), ("power", 2)} == {
        deviation[:2] for deviation in naive.minder(values, 20.0)
    }


def test_a_metric_further_down_is_not_asked_while_one_above_has_a_node() -> None:
    values = {"load": shifted(8, 600, {1: 0.3}), "power": shifted(8, 600, {5: 0.3}, 1)}
    whole = Replay(several("load", "power"), values)
    assert [("node-01", "load")] == [(finding.node, finding.metric) for finding in whole.run()]
    below = Replay(several("load", "power"), values | {"load": healthy(8, 600)})
    assert [("node-05", "power")] == [(finding.node, finding.metric) for finding in below.run()]


def test_another_candidate_ends_a_deviation_even_while_the_node_is_silent() -> None:
    values = healthy(8, 300, noise=0.002, spread=0.001)
    values[1, 50:] += 0.2
    values[1, 100:115] = np.nan
    values[6, 104:108] += 0.6
    config = several("load", continuity={"threshold_seconds": 60}, minder={"fill_seconds": 0})
    replay = Replay(config, {"load": values})
    replay.run(cycle=1)
    assert [("node-01", 122)] == [
        (finding.node, finding.since - START) for finding in replay.raised
    ]


def test_without_continuity_a_single_window_names() -> None:
    values = np.tile(healthy(1, 120), (8, 1))
    values[3, 60] += 0.3
    assert [] == Replay(several("load"), {"load": values}).run(cycle=1)
    replay = Replay(several("load", minder={"continuity": False}), {"load": values})
    replay.run(until=61, cycle=1)
    assert [("load", 3, 60, 60)] == found(replay)


def test_concatenated_metrics_show_what_none_shows_alone() -> None:
    config = {"similarity": {"threshold": 2.4}}
    rng = np.random.default_rng(0)
    values = {name: rng.normal(0.5, 0.02, (9, 200)) for name in ("a", "b", "c", "d")}
    for index, name in enumerate(values):
        values[name] = values[name].astype(np.float32)
        values[name][2, 60:] += 0.1
        # In every metric another node is as far away.
        values[name][4 + index, 60:] -= 0.1
    alone = Replay(several(*values, **config), values)
    assert "node-02" not in [finding.node for finding in alone.run()]
    joined = Replay(several(*values, minder={"join": "concatenated"}, **config), values)
    assert ["node-02"] == [finding.node for finding in joined.run()]


def test_an_absent_node_is_no_finding_of_the_papers_methods() -> None:
    values = healthy(8, 500)
    values[3, 100:] = np.nan
    for method, expected in (("minder", []), ("zscore", []), ("peerwatch", ["node-03"])):
        replay = Replay(config_for(method=method), {"load": values})
        replay.absent_since = {"node-03": START + 99.0}
        assert expected == [finding.node for finding in replay.run()]


def test_a_job_too_small_to_compare_names_nobody() -> None:
    config = several("load", similarity={"threshold": 1.0}, min_nodes=4)
    three, four = (np.tile(healthy(1, 600), (nodes, 1)) for nodes in (3, 4))
    three[1, ONSET:] += 0.3
    four[1, ONSET:] += 0.3
    assert [] == Replay(config, {"load": three}).run()
    assert ["node-01"] == [finding.node for finding in Replay(config, {"load": four}).run()]


@settings(max_examples=40)
@given(data=st.data(), limit=st.integers(0, 12))
def test_windows_are_filled_from_the_nearest_sample_not_after_them(
    data: st.DataObject, limit: int
) -> None:
    sample = st.sampled_from([math.nan, math.nan, 0.25, 0.5, 0.75])
    values = np.array(data.draw(st.lists(sample, min_size=8, max_size=30)), np.float32)[None]
    got = causal_windows(values, 8, limit)
    expected = [
        naive.filled_window(values[0].tolist(), end - 7, end, limit)
        for end in range(7, values.shape[1])
    ]
    np.testing.assert_array_equal(got[:, 0], np.array(expected, np.float32))


def test_minder_compares_the_papers_seven_metrics_in_its_priority() -> None:
    names = [
        metric_config.name for metric_config in DetectorConfig(method="minder").detection_metrics()
    ]
    assert SEVEN == names
    extra = {"metrics": {"extra": [metric("mine")]}, "method": "minder"}
    config = DetectorConfig.model_validate(extra)
    assert [*SEVEN, "mine"] == [metric_config.name for metric_config in config.detection_metrics()]
    chosen = {"metrics": {"enabled": ["gpu_power", "cpu_usage"]}, "method": "minder"}
    config = DetectorConfig.model_validate(chosen)
    assert ["gpu_power", "cpu_usage"] == [
        metric_config.name for metric_config in config.detection_metrics()
    ]


REFUSED = [
    ("minder: {distance: mahalanobis}", "minder: distance mahalanobis", "needs model raw and join"),
    ("minder: {distance: mahalanobis, model: raw}", "minder: distance mahalanobis", "per_metric"),
    ("minder: {join: together}", "minder.join: ", "'together'"),
    ("minder: {join: integrated, model: raw}", "minder: join integrated", "got model raw"),
    (
        "minder: {join: integrated, distance: mahalanobis}",
        "minder: distance mahalanobis",
        "needs model raw and join concatenated",
    ),
    ("minder: {distance: cosine}", "minder.distance: ", "'cosine'"),
    ("minder: {metrics: [cpu]}", "minder: metrics: unknown metric 'cpu'", "cpu_usage"),
    ("minder: {metrics: [cpu_usage, cpu_usage]}", "minder: metrics: 'cpu_usage'", "twice"),
    ("minder: {metrics: []}", "minder.metrics: ", "[]"),
]


@pytest.mark.parametrize(("text", "start", "part"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str, start: str, part: str) -> None:
    path = tmp_path / "detector.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    (mistake,) = caught.value.mistakes
    assert mistake.startswith(start)
    assert part in mistake


def test_a_variant_is_named_after_its_method() -> None:
    config = DetectorConfig()
    assert ("minder", "raw") == (
        method_config(config, "minder:raw").method,
        method_config(config, "minder:raw").minder.model,
    )
    both = method_config(config, "minder:con+chebyshev").minder
    assert ("concatenated", "chebyshev") == (both.join, both.distance)
    assert MD == method_config(config, "minder:md").minder.model_dump(include=set(MD))
    for name, part in (
        ("minder:magic", "unknown variant 'magic'; variants of minder are raw, con, "),
        ("peerwatch:raw", "it has none"),
        ("minder:md+manhattan", "disagree on minder.distance"),
        ("magic", "method"),
    ):
        with pytest.raises(ConfigError, match=part):
            method_config(config, name)


def test_the_rows_are_those_of_the_methods_asked_for() -> None:
    config = DetectorConfig()
    variants = [f"minder:{name}" for name in VARIANTS["minder"]]
    assert variants == list(method_ablations(config, ["minder"]))
    assert {"minder"} == {
        variant.method for variant in method_ablations(config, ["minder:raw"]).values()
    }
    both = list(method_ablations(config, ["peerwatch", "minder"]))
    assert "without fast" in both
    assert variants == both[-len(variants) :]
    assert "without fast" in method_ablations(config, ["zscore"])


def test_variants_do_not_touch_the_nodes_names() -> None:
    replay = Replay(several("load", minder=MD), {"load": shifted(9, 500, {3: 0.3})})
    replay.run()
    assert [node_names(9)[3]] == [finding.node for finding in replay.raised]
    assert replay.raised[0].since - START >= ONSET
