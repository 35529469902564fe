from __future__ import annotations

import math

import numpy as np
import pytest

from detector.fakes import (
    ONSET,
    START,
    Replay,
    config_for,
    flagged,
    healthy,
    healthy_gpus,
    metric,
    shifted,
)
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.gpu_attribution import deviating_gpu


@pytest.mark.parametrize("nodes", [3, 4, 8, 16])
def test_healthy_job_with_static_offsets_is_quiet_for_half_an_hour(nodes: int) -> None:
    offsets = np.linspace(0, 0.3, nodes, dtype=np.float32)[:, None]
    replay = Replay(config_for(), {"load": healthy(nodes, 1800, nodes) * 0.6 + offsets})
    assert [] == replay.run()
    assert 0.0 == max(replay.detection.fault_scores.values())


def test_healthy_job_per_gpu_is_quiet() -> None:
    config = config_for(metric(scope="gpu"))
    assert [] == Replay(config, {"load": healthy_gpus(4, 4, 1800)}).run()


@pytest.mark.parametrize("shift", [-0.3, 0.3], ids=["lower", "higher"])
@pytest.mark.parametrize("nodes", [3, 4, 8, 16])
def test_one_shifting_node_is_named_after_the_continuity_threshold_and_not_before(
    nodes: int, shift: float
) -> None:
    values = healthy(nodes, 900, spread=0.01 if nodes == 3 else 0.04)
    values[1, ONSET:] += shift
    replay = Replay(config_for(), {"load": values})
    assert [] == replay.run(until=ONSET + 240, cycle=5)
    assert [("node-01", "load")] == flagged(replay.run(cycle=5))
    finding = replay.raised[0]
    assert 0 <= finding.since - (START + ONSET) <= 8
    assert 240 <= finding.raised - finding.since <= 246
    assert ("", "peerwatch", "critical") == (finding.gpu, finding.method, finding.severity)
    # In minimum effect sizes: a factor of 0.8 / 0.5, or 0.5 / 0.2, against one of 0.6 / 0.5.
    assert 2 <= finding.score <= 6


def test_the_threshold_of_the_configuration_is_kept() -> None:
    config = config_for(continuity={"threshold_seconds": 30})
    replay = Replay(config, {"load": shifted(4, 400, {2: 0.3})})
    replay.run(cycle=1)
    assert [30.0] == [finding.raised - finding.since for finding in replay.raised]


def test_a_shift_below_the_minimum_effect_size_names_nobody() -> None:
    values = healthy(8, 1200, noise=0.002)
    values[3, ONSET:] += 0.08
    assert [] == Replay(config_for(), {"load": values}).run()


@pytest.mark.parametrize(("direction", "found"), [("high", 0), ("low", 1), ("both", 1)])
def test_only_the_harmful_direction_counts(direction: str, found: int) -> None:
    replay = Replay(config_for(metric(direction=direction)), {"load": shifted(8, 700, {3: -0.3})})
    assert found == len(replay.run())


def test_the_metric_that_deviates_is_the_one_named() -> None:
    config = config_for(metric("first"), metric("second"), metric("third"))
    values = {
        "first": healthy(8, 800, 1),
        "second": shifted(8, 800, {5: 0.3}, 2),
        "third": healthy(8, 800, 3),
    }
    assert [("node-05", "second")] == flagged(Replay(config, values).run())


def test_the_metric_of_higher_priority_is_named_when_two_deviate_at_once() -> None:
    config = config_for(metric("first"), metric("second"))
    values = {
        "second": shifted(8, 800, {5: 0.3}, 2),
        "first": shifted(8, 800, {5: 0.3}, 1),
    }
    assert [("node-05", "first")] == flagged(Replay(config, values).run(cycle=1))


def test_symptoms_on_peers_are_not_named() -> None:
    config = config_for(metric("cause"), metric("symptom"))
    values = {
        "cause": shifted(8, 1200, {2: 0.4}),
        "symptom": shifted(8, 1200, {3: 0.4}),
    }
    assert [("node-02", "cause")] == flagged(Replay(config, values).run())


@pytest.mark.parametrize("nodes", [8, 16])
def test_two_faulty_nodes_are_both_named(nodes: int) -> None:
    replay = Replay(config_for(), {"load": shifted(nodes, 900, {1: 0.3, 6: 0.3})})
    assert [("node-01", "load"), ("node-06", "load")] == sorted(flagged(replay.run()))


@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_half_of_the_nodes_against_the_other_half_names_nobody(nodes: int) -> None:
    faulty = dict.fromkeys(range(nodes // 2), 0.3)
    assert [] == Replay(config_for(), {"load": shifted(nodes, 900, faulty)}).run()


@pytest.mark.parametrize("nodes", [9, 12, 16])
def test_a_common_cause_names_nobody(nodes: int) -> None:
    faulty = dict.fromkeys(range(nodes // 3), 0.4)
    replay = Replay(config_for(), {"load": shifted(nodes, 900, faulty)})
    assert [] == replay.run()
    assert replay.detection.comparable is False


def test_a_job_is_comparable_again_after_a_common_cause() -> None:
    values = healthy(9, 1500)
    values[:3, ONSET : ONSET + 100] += 0.4
    values[6, 700:] += 0.3
    replay = Replay(config_for(), {"load": values})
    replay.run(until=ONSET + 50)
    assert replay.detection.comparable is False
    assert [("node-06", "load")] == flagged(replay.run())
    assert replay.detection.comparable is True


def test_too_few_nodes_are_not_compared() -> None:
    replay = Replay(config_for(), {"load": shifted(2, 900, {1: 0.4})})
    assert [] == replay.run()
    assert replay.detection.comparable is False


def test_the_smallest_job_is_a_setting() -> None:
    values = {"load": shifted(8, 700, {1: 0.3})}
    replay = Replay(config_for(min_nodes=9), values)
    assert [] == replay.run()
    assert replay.detection.comparable is False
    assert 1 == len(Replay(config_for(min_nodes=8), values).run())


def test_a_vanished_node_is_named_and_its_peers_symptoms_are_not() -> None:
    values = healthy(8, 900)
    values[4, ONSET:] = np.nan
    values[5, ONSET:] += 0.3
    replay = Replay(config_for(), {"load": values})
    replay.absent_since = {"node-04": START + ONSET - 1.0}
    assert [("node-04", "absent")] == flagged(replay.run())
    finding = replay.raised[0]
    assert START + ONSET - 1 == finding.since
    assert 60 <= finding.raised - finding.since < 80
    assert "critical" == finding.severity


def test_an_absent_finding_falls_only_after_the_node_is_back_for_the_clear_time() -> None:
    values = healthy(8, 900)
    values[4, ONSET : ONSET + 100] = np.nan
    replay = Replay(config_for(), {"load": values})
    replay.absent_since = {"node-04": START + ONSET - 1.0}
    replay.run(until=ONSET + 100, cycle=5)
    assert [("node-04", "absent")] == flagged(replay.raised)
    replay.absent_since = {}
    replay.run(until=ONSET + 200, cycle=5)
    assert ["node-04"] == list(replay.standing)
    replay.run(until=ONSET + 230, cycle=5)
    assert {} == replay.standing


def test_a_finding_of_a_node_that_left_the_job_falls() -> None:
    replay = Replay(config_for(), {"load": shifted(8, 900, {7: 0.3})})
    replay.run(until=600)
    assert ["node-07"] == list(replay.standing)
    replay.values = {"load": replay.values["load"][:7]}
    replay.step(620)
    assert {} == replay.standing
    assert "node-07" not in replay.detection.fault_scores


def test_a_finding_falls_after_the_clear_time_and_not_before() -> None:
    values = healthy(8, 1200)
    values[1, ONSET:700] += 0.3
    replay = Replay(config_for(), {"load": values})
    replay.run(until=700 + 115, cycle=5)
    assert ["node-01"] == list(replay.standing)
    replay.run(until=700 + 135, cycle=5)
    assert {} == replay.standing
    assert 1 == len(replay.raised)


def test_a_long_fault_stands_until_it_ends() -> None:
    values = healthy(8, 3600)
    values[1, ONSET:] += 0.3
    replay = Replay(config_for(), {"load": values})
    replay.run()
    assert ["node-01"] == list(replay.standing)
    assert 1 == len(replay.raised)


def test_one_faulty_gpu_is_named() -> None:
    values = healthy_gpus(6, 4, 800)
    values[2, 3, ONSET:] -= 0.45
    config = config_for(metric(scope="gpu", min_effect_size=0.05))
    replay = Replay(config, {"load": values})
    replay.run()
    assert [("node-02", "3")] == [(finding.node, finding.gpu) for finding in replay.raised]


def test_a_node_whose_gpus_all_deviate_is_named_without_a_gpu() -> None:
    values = healthy_gpus(4, 4, 800)
    values[2, :, ONSET:] -= 0.3
    replay = Replay(config_for(metric(scope="gpu")), {"load": values})
    replay.run()
    assert [("node-02", "")] == [(finding.node, finding.gpu) for finding in replay.raised]


def test_no_gpu_is_faulty_without_samples() -> None:
    config = config_for(metric(scope="gpu"))
    values = np.full((3, 2, 40), np.nan, dtype=np.float32)
    frame = Replay(config, {"load": values}).frame("load", 0, 40)
    assert "" == deviating_gpu(frame, 0, config.detection_metrics()[0])


def test_single_nodes_and_single_gpus_do_not_break() -> None:
    config = config_for(metric(scope="gpu"), min_nodes=2)
    assert [] == Replay(config, {"load": healthy_gpus(1, 1, 300)}).run()
    assert [] == Replay(config, {"load": healthy_gpus(2, 1, 300)}).run()


def test_missing_samples_neither_break_nor_clear() -> None:
    values = shifted(8, 900, {1: 0.3})
    rng = np.random.default_rng(1)
    values[rng.random(values.shape) < 0.2] = np.nan
    values[:, 400:440] = np.nan
    replay = Replay(config_for(), {"load": values})
    assert [("node-01", "load")] == flagged(replay.run())
    assert ["node-01"] == list(replay.standing)


def test_scores_of_nodes_that_cannot_be_evaluated_are_not_numbers() -> None:
    values = healthy(4, 200)
    values[3, 100:] = np.nan
    replay = Replay(config_for(), {"load": values})
    replay.run()
    detection = replay.detection
    assert math.isnan(detection.normal_scores["load"]["node-03"])
    assert math.isfinite(detection.normal_scores["load"]["node-00"])
    assert {"load": 0.75} == detection.coverage
    assert START + 199 == detection.time


def test_a_job_without_any_sample_is_evaluated_without_complaint() -> None:
    replay = Replay(config_for(), {"load": np.full((4, 100), np.nan, dtype=np.float32)})
    assert [] == replay.run()
    assert {"load": 0.0} == replay.detection.coverage


def test_a_frame_shorter_than_a_window_waits() -> None:
    replay = Replay(config_for(), {"load": healthy(4, 100)})
    detection = replay.step(3)
    assert not np.isfinite(list(detection.normal_scores["load"].values())).any()
    assert {"load": 0.0} == detection.coverage


def test_nodes_that_change_between_two_samples_do_not_break_the_cycle() -> None:
    replay = Replay(config_for(), {"load": shifted(8, 500, {7: 0.3})})
    replay.run(until=450)
    replay.values = {"load": np.concatenate([replay.values["load"], healthy(1, 500)])}
    replay.step(450)
    replay.values = {"load": replay.values["load"][:4]}
    replay.step(450)
    assert [] == flagged(list(replay.standing.values()))


def test_a_node_that_joins_late_is_compared_once_its_past_is_known() -> None:
    values = np.concatenate([healthy(8, 900), healthy(1, 900, 9)])
    values[8, :400] = np.nan
    values[8, 600:] += 0.3
    assert [("node-08", "load")] == flagged(Replay(config_for(), {"load": values}).run())


def test_deviations_tell_how_far_a_node_is() -> None:
    replay = Replay(config_for(), {"load": shifted(8, 900, {1: 0.3})})
    replay.run(until=ONSET + 120)
    (deviation,) = [s for s in replay.detection.deviations if s.method == "peerwatch"]
    assert ("node-01", "load", 1, 240.0) == (
        deviation.node,
        deviation.metric,
        deviation.rank,
        deviation.threshold,
    )
    assert 100 <= deviation.seconds <= 120
    assert deviation.seconds == replay.detection.continuity["load"]["node-01"]
    assert 0.4 <= replay.detection.fault_scores["node-01"] <= 0.5


def test_the_defaults_take_the_shipped_metrics_in_their_order() -> None:
    config = DetectorConfig()
    values = {"cpu_usage": shifted(4, 700, {2: 0.4})}
    assert [("node-02", "cpu_usage")] == flagged(Replay(config, values).run())
