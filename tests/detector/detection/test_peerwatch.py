from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detector.fakes import START, config_for, healthy, metric
from detector.fakes import Replay as PlainReplay
from detector.training_job import (
    FAULT,
    ONSET,
    Values,
    changed,
    found,
    node_names,
    nodes_found,
    replay,
    stopped_rank,
    training,
)
from peerwatch_detector.frame import JobFrame

# Of each finding node, GPU, onset and time.
Found = list[tuple[str, str, int, int]]
# One sign is enough: for tests of what else decides.
ALONE = {"company": False}


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_job_with_a_checkpoint_and_a_stall_is_quiet(seed: int) -> None:
    values = training(1500, rests=(700, 740), waits=(900, 915), seed=seed)
    assert [] == found(values, quiet=0)


def test_a_node_that_holds_the_others_up_is_named_within_a_minute() -> None:
    ((node, gpu, since, raised),) = found(stopped_rank(), cycle=5, peerwatch=ALONE)
    assert ("node-02", "") == (node, gpu)
    assert abs(since - ONSET) <= 10
    assert 45 <= raised - ONSET <= 65


def test_between_two_steps_the_evidence_stands() -> None:
    here = replay(stopped_rank())
    here.run(ONSET + 30)
    seen = [here.step(ONSET + 30 + second).fault_scores["node-02"] for second in range(1, 8)]
    assert 0 < min(seen)


def test_two_metrics_name_it_sooner() -> None:
    values = changed(stopped_rank(), "network_throughput", 2, 0.05, FAULT)
    ((node, _, _, raised),) = found(values, cycle=5)
    assert "node-02" == node
    assert 25 <= raised - ONSET <= 45


@pytest.mark.parametrize(
    "settings",
    [{"fast": False}, {"progress": False}],
    ids=["no fast track", "no progress"],
)
def test_without_the_fast_track_it_takes_the_whole_continuity(settings: dict) -> None:
    raised = [finding[3] for finding in found(stopped_rank(), peerwatch=settings)]
    assert all(time - ONSET >= 240 for time in raised)
    assert len(raised) == (1 if settings == {"progress": False} else 0)


def test_a_slow_node_is_named_if_the_job_lost_progress() -> None:
    values = changed(training(1100, slower=0.1), "cpu_usage", 1, 0.5, FAULT)
    ((node, _, since, raised),) = found(values, cycle=5)
    assert "node-01" == node
    assert 240 <= raised - since <= 250


def test_a_deviation_that_costs_nothing_is_no_finding() -> None:
    values = changed(training(1500), "cpu_usage", 1, 0.5, FAULT)
    assert [] == found(values)
    assert ["node-01"] == nodes_found(values, peerwatch={"progress": False})


def test_a_metric_that_warns_is_a_warning_where_nothing_was_lost() -> None:
    values = changed(training(1100), "cpu_usage", 1, 0.5, FAULT)
    metrics = {"enabled": list(values), "overrides": {"cpu_usage": {"warns": True}}}
    (finding,) = replay(values, metrics=metrics).run()
    assert ("node-01", "warning") == (finding.node, finding.severity)


def test_a_program_beside_the_job_is_no_finding() -> None:
    values = changed(training(1500), "cpu_usage", 4, 1.8, FAULT)
    values = changed(values, "network_throughput", 4, 30.0, FAULT)
    assert [] == found(values)


def test_a_late_writer_is_no_finding() -> None:
    values = training(1200, rests=(ONSET - 40, ONSET), waits=(ONSET, ONSET + 90))
    for name, factor in (("cpu_usage", 1.5), ("network_throughput", 100.0)):
        changed(values, name, 3, factor, slice(ONSET - 40, ONSET + 90))
    assert [] == found(values)
    assert ["node-03"] == nodes_found(values, peerwatch={"load": False} | ALONE)


def test_high_load_that_takes_the_jobs_progress_is_named() -> None:
    values = changed(training(1100, slower=0.3), "cpu_usage", 4, 2.5, FAULT)
    assert ["node-04"] == nodes_found(values)


def test_a_program_that_ends_does_not_make_its_node_low() -> None:
    values = changed(training(1200, slower=0.1), "cpu_usage", 5, 1.8, slice(0, ONSET))
    assert [] == found(values, quiet=0)
    assert ["node-05"] == nodes_found(values, peerwatch={"away": False, "weak": False})


def test_who_is_like_its_peers_again_is_no_suspect_in_a_later_wait() -> None:
    """A backup that ran from before the job began has ended long ago."""
    values = training(1200, waits=(1000, 1190))
    for name, factor in (("network_throughput", 30.0), ("cpu_usage", 1.5)):
        changed(values, name, 5, factor, slice(0, 300))
        # A little below the others, as half of all nodes are.
        changed(values, name, 5, 0.95, slice(300, None))
    assert [] == found(values, quiet=0)


def test_a_node_that_always_differed_is_its_own_measure() -> None:
    values = changed(training(1500, slower=0.1), "cpu_usage", 5, 1.8, slice(0, None))
    values = changed(values, "gpu_power", 1, 0.7, slice(0, None))
    assert [] == found(values, quiet=0)
    off = nodes_found(values, similarity={"baseline_seconds": 0})
    assert {"node-01"} == set(off)


def test_nothing_is_evaluated_while_the_gpus_rest() -> None:
    values = changed(training(1500, rests=(ONSET, 1500)), "cpu_usage", 1, 0.2, FAULT)
    replayed = replay(values)
    assert [] == replayed.run()
    assert 0.0 == replayed.detection.fault_scores["node-01"]


def test_a_rest_neither_counts_nor_breaks_a_deviation() -> None:
    values = training(1300, slower=0.1, rests=(700, 800))
    values = changed(values, "cpu_usage", 1, 0.5, slice(ONSET, 700))
    values = changed(values, "cpu_usage", 1, 0.5, slice(800, None))
    ((node, _, since, raised),) = found(values, cycle=5)
    assert ("node-01", True) == (node, abs(since - ONSET) <= 10)
    assert 340 - 25 <= raised - ONSET <= 340 + 25


def test_congestion_that_comes_to_two_nodes_at_once_names_nobody() -> None:
    values = training(1100, slower=0.1)
    changed(values, "ecn_rate", 1, 6.0, FAULT)
    changed(values, "ecn_rate", 4, 5.0, slice(ONSET + 20, None))
    # Few enough to be no common cause by their number.
    similarity = {"largest_share": 0.5}
    replayed = replay(values, similarity=similarity)
    assert [] == replayed.run()
    assert replayed.detection.comparable is False
    off = nodes_found(values, similarity=similarity, peerwatch={"common_cause": False})
    assert {"node-01", "node-04"} == set(off)


@pytest.mark.parametrize(
    ("all_feel", "expected"), [(1.0, ["node-02"]), (6.0, [])], ids=["alone", "with all"]
)
def test_congestion_that_all_feel_unequally_names_nobody(
    all_feel: float, expected: list[str]
) -> None:
    values = changed(training(1200, slower=0.1), "ecn_rate", slice(None), all_feel, FAULT)
    changed(values, "ecn_rate", 2, 4.0, FAULT)
    assert expected == nodes_found(values)


def test_one_gpu_is_seen_among_the_gpus_of_all_nodes() -> None:
    values = training(1100, slower=0.1)
    values["gpu_power"][2, 3, FAULT] *= 0.8
    assert [("node-02", "3")] == [finding[:2] for finding in found(values)]
    assert [] == found(values, peerwatch={"per_gpu": False})


def test_a_node_whose_gpus_all_fall_is_named_without_a_gpu() -> None:
    values = changed(training(1100, slower=0.1), "gpu_power", 2, 0.8, FAULT)
    assert [("node-02", "")] == [finding[:2] for finding in found(values)]


def test_what_follows_a_finding_on_another_node_is_its_symptom() -> None:
    values = changed(training(1500, slower=0.1), "cpu_usage", 1, 0.4, FAULT)
    values = changed(values, "gpu_power", 3, 0.8, slice(ONSET + 120, None))
    assert ["node-01"] == nodes_found(values)
    assert ["node-01", "node-03"] == nodes_found(values, peerwatch={"symptoms": False})


def test_two_nodes_that_fail_together_are_both_named() -> None:
    values = training(1500, slower=0.1, nodes=9)
    for node in (1, 3):
        changed(values, "cpu_usage", node, 0.4, FAULT)
    assert ["node-01", "node-03"] == sorted(nodes_found(values))


def test_a_metric_that_collapsed_for_all_is_not_evaluated() -> None:
    # While the ranks wait, hardly any packet is marked, and one more or less means nothing.
    values = training(850, waits=(ONSET, 850))
    changed(values, "ecn_rate", 1, 30.0, FAULT)
    assert [] == found(values)
    assert ["node-01"] == nodes_found(values, peerwatch={"collapsed_share": 0})
    changed(values, "ecn_rate", 1, 80.0, FAULT)
    assert ["node-01"] == nodes_found(values)


def test_after_long_waiting_weaker_deviations_count() -> None:
    values = changed(training(1100, waits=(ONSET, 1100)), "cpu_usage", 1, 0.75, FAULT)
    ((node, _, since, raised),) = found(values, cycle=5)
    assert "node-01" == node
    assert 110 <= since - ONSET + 20
    assert 110 + 35 <= raised - ONSET <= 110 + 65
    assert [] == found(values, peerwatch={"relaxed": 1.0})


def test_a_node_that_stopped_reporting_when_the_wait_began_explains_it() -> None:
    here = replay(stopped_rank(node=4))
    here.absent_since = {"node-02": START + ONSET + 5.0}
    assert [("node-02", "absent")] == [
        (finding.node, finding.metric) for finding in here.run(ONSET + 120, 5)
    ]


def test_a_node_that_is_heard_again_explains_nothing() -> None:
    here = replay(stopped_rank(node=4), peerwatch=ALONE)
    here.absent_since = {"node-02": START + ONSET + 5.0}
    assert [] == here.run(ONSET + 50, 5)
    here.absent_since = {}
    assert ["node-04"] == [finding.node for finding in here.run(ONSET + 80, 5)]


def test_a_silent_node_that_the_job_works_on_without_has_the_whole_continuity() -> None:
    here = replay(training(1100))
    here.absent_since = {"node-02": START + ONSET + 0.0}
    assert [] == here.run(ONSET + 235, 5)
    (finding,) = here.run(ONSET + 300, 5)
    assert ("node-02", "absent") == (finding.node, finding.metric)
    assert 240 <= finding.raised - finding.since <= 250


def test_a_silent_node_that_the_job_worked_on_without_explains_no_later_wait() -> None:
    here = replay(stopped_rank(node=4), peerwatch=ALONE)
    here.absent_since = {"node-02": START + ONSET - 50.0}
    assert ["node-04"] == [finding.node for finding in here.run(ONSET + 120, 5)]


@pytest.mark.parametrize(("after", "needed"), [(20, 60), (50, 240)])
@pytest.mark.parametrize("pause", ["waits", "rests"])
def test_a_node_that_was_there_long_into_a_pause_is_not_its_reason(
    pause: str, after: int, needed: int
) -> None:
    """All wait for a storage, or are started anew, and meanwhile a node's exporters are updated."""
    span = (ONSET, 1100)
    here = replay(training(1100, waits=span) if pause == "waits" else training(1100, rests=span))
    here.absent_since = {"node-02": START + ONSET + after}
    assert [] == here.run(ONSET + after + needed - 5, 5)
    (finding,) = here.run(ONSET + after + needed + 15, 5)
    assert ("node-02", "absent") == (finding.node, finding.metric)


def test_a_node_that_was_there_long_into_a_wait_holds_no_finding_back() -> None:
    here = replay(stopped_rank(node=4), peerwatch=ALONE)
    here.absent_since = {"node-02": START + ONSET + 50.0}
    assert ["node-04"] == [finding.node for finding in here.run(ONSET + 90, 5)]


def restarted(late: int) -> Values:
    """After a halt one node's GPUs rest on for so many seconds, while the others wait for it."""
    values = training(1500, rests=(ONSET, ONSET + 150), waits=(ONSET + 150, ONSET + 150 + late))
    for name in ("gpu_duty_cycle", "gpu_power"):
        changed(values, name, 2, 0.05, slice(ONSET + 150, ONSET + 150 + late))
    return values


def test_who_starts_late_after_a_halt_is_no_finding_unless_it_lasts() -> None:
    assert [] == found(restarted(60), cycle=5)
    ((node, _, _, raised),) = found(restarted(300), cycle=5)
    assert "node-02" == node
    assert 240 <= raised - ONSET - 150 <= 270
    # A checkpoint rests the GPUs for less.
    quick = training(1500, rests=(ONSET, ONSET + 60), waits=(ONSET + 60, ONSET + 120))
    for name in ("gpu_duty_cycle", "gpu_power"):
        changed(quick, name, 2, 0.05, slice(ONSET + 60, ONSET + 120))
    assert ["node-02"] == nodes_found(quick, peerwatch=ALONE)
    # Nor is one that is late after a checkpoint, unless its wait is long.
    assert [] == nodes_found(quick)


def test_an_older_silence_explains_no_wait() -> None:
    here = replay(stopped_rank(node=4), absent={"threshold_seconds": 600}, peerwatch=ALONE)
    here.absent_since = {"node-02": START + ONSET - 120.0}
    assert ["node-04"] == [finding.node for finding in here.run(ONSET + 80, 5)]


def was_first(begin: int = ONSET, end: int = ONSET + 30) -> Values:
    """One node's GPUs work less just before all wait; then it cannot be told from its peers."""
    values = training(900, waits=(ONSET + 30, 900))
    return changed(values, "gpu_tensor_activity", 2, 0.4, slice(begin, end))


def test_who_fell_off_just_before_all_waited_is_named_if_the_wait_is_long() -> None:
    ((node, _, since, raised),) = found(was_first(), cycle=5)
    assert "node-02" == node
    assert abs(since - ONSET) <= 15
    assert 110 <= raised - ONSET - 30 <= 150
    assert [] == found(was_first(), peerwatch={"first": False})


def test_who_was_as_before_when_the_wait_began_was_not_the_first() -> None:
    assert [] == found(was_first(ONSET - 60, ONSET - 20))


def test_a_wait_that_ends_clears_who_was_first() -> None:
    values = training(900, waits=(ONSET + 30, ONSET + 100))
    assert [] == found(changed(values, "gpu_tensor_activity", 2, 0.4, slice(ONSET, ONSET + 30)))


def test_the_embedding_can_stand_for_the_threshold() -> None:
    values = stopped_rank()
    assert [] == found(values, peerwatch={"threshold": 100})
    on = {"threshold": 100, "embedding": True}
    assert ["node-02"] == nodes_found(values, peerwatch=on)


def test_a_difference_instead_of_a_factor_asks_for_the_minimum_effect_size() -> None:
    values = changed(training(1100, slower=0.1), "cpu_usage", 1, 0.6, FAULT)
    for effect, names in ((0.1, ["node-01"]), (0.2, [])):
        metrics = {
            "enabled": list(values),
            "overrides": {"cpu_usage": {"min_effect_size": effect}},
        }
        assert names == nodes_found(values, metrics=metrics, peerwatch={"scale": "difference"})
    assert ["node-01"] == nodes_found(values, metrics=metrics)


def test_a_cadence_of_five_seconds_is_enough() -> None:
    values = stopped_rank()
    for array in values.values():
        array[..., np.arange(900) % 5 != 2] = np.nan
    ((node, _, _, raised),) = found(values, peerwatch=ALONE)
    assert ("node-02", True) == (node, raised - ONSET <= 75)


def test_samples_that_come_late_are_learned_from_and_evaluated() -> None:
    values = stopped_rank()
    for array in values.values():
        array[..., np.arange(900) % 5 != 2] = np.nan
    late = replay(values)
    frame = late.frame

    def delayed(name: str, left: int, right: int) -> JobFrame:
        # The newest eight seconds have not been written yet.
        late.values = {name: array.copy() for name, array in values.items()}
        for array in late.values.values():
            array[..., max(0, right - 8) : right] = np.nan
        return frame(name, left, right)

    late.frame = delayed  # type: ignore[method-assign]
    assert ["node-02"] == [finding.node for finding in late.run(cycle=1)]


@cache
def gaps_found(cycle: int, level_seconds: int) -> Found:
    """Return what is found of a stopped rank of whom every tenth sample is missing."""
    values = changed(stopped_rank(), "network_throughput", 2, 0.05, FAULT)
    for array in values.values():
        array[..., np.random.default_rng(5).random(900) < 0.1] = np.nan
    return found(values, cycle=cycle, quiet=0, peerwatch={"level_seconds": level_seconds})


@pytest.mark.xdist_group("peerwatch_cycles")
@pytest.mark.parametrize("cycle", [5, 7, 30, 10_000])
@pytest.mark.parametrize("level_seconds", [15, 60])
def test_findings_do_not_depend_on_how_the_cycles_fall(cycle: int, level_seconds: int) -> None:
    expected = gaps_found(15, level_seconds)
    assert 1 == len(expected)
    several = gaps_found(cycle, level_seconds)
    assert [finding[:3] for finding in expected] == [finding[:3] for finding in several]


SLOW = settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@cache
def stopped_rank_found() -> Found:
    """Return what the properties below compare with, the same for every example."""
    return found(stopped_rank())


@pytest.mark.xdist_group("peerwatch_properties")
@SLOW
@given(order=st.permutations(range(6)))
def test_the_order_of_the_nodes_means_nothing(order: list[int]) -> None:
    values = stopped_rank()
    shuffled = {name: array[order] for name, array in values.items()}
    expected = [(order.index(2), *finding[1:]) for finding in stopped_rank_found()]
    names = node_names(6)
    assert expected == [(names.index(finding[0]), *finding[1:]) for finding in found(shuffled)]
    assert expected


@pytest.mark.xdist_group("peerwatch_properties")
@SLOW
@given(factor=st.floats(1, 50))
def test_all_values_larger_by_one_factor_change_no_finding(factor: float) -> None:
    values = stopped_rank()
    larger = values | {
        name: values[name] * np.float32(factor) for name in ("cpu_usage", "network_throughput")
    }
    expected = stopped_rank_found()
    assert expected
    actual = found(larger)
    assert [finding[:1] for finding in expected] == [finding[:1] for finding in actual]
    assert all(abs(a[2] - b[2]) <= 5 for a, b in zip(expected, actual, strict=True))


@pytest.mark.xdist_group("peerwatch_properties")
@SLOW
@given(end=st.integers(100, 899))
def test_the_future_changes_nothing_that_was_found(end: int) -> None:
    values = stopped_rank()
    cut = {name: array[..., :end] for name, array in values.items()}
    for array in values.values():
        array[3, ..., end:] *= 3
    last = end - end % 15
    assert [finding for finding in found(values, quiet=0) if finding[3] < last] == [
        finding for finding in found(cut, quiet=0) if finding[3] < last
    ]


def test_the_rings_of_a_metric_may_begin_late() -> None:
    values = stopped_rank(1200)
    values["cpu_usage"][:, :300] = np.nan
    assert ["node-02"] == nodes_found(values)


def test_without_a_metric_of_progress_the_priority_of_the_metrics_holds() -> None:
    values = {"cause": healthy(8, 900, 1), "symptom": healthy(8, 900, 2)}
    values["cause"][2, 300:] += 0.3
    values["symptom"][3, 300:] += 0.4
    replayed = PlainReplay(config_for(metric("cause"), metric("symptom")), values)
    assert ["node-02"] == [finding.node for finding in replayed.run()]
    assert abs(replayed.raised[0].since - START - 300) <= 10
