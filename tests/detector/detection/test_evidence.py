from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector import naive
from detector.evidence import (
    BEGAN,
    CONFIG,
    METRICS,
    NOW,
    TRAINS,
    WAITS,
    evidence_of,
    sustained,
    weighed,
    without,
)
from peerwatch_detector.detection.methods.peerwatch.effects import Side
from peerwatch_detector.detection.methods.peerwatch.evidence import (
    Evidence,
    assess,
    collect_evidence,
)
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.methods.peerwatch.phase import Phase
from peerwatch_detector.detection.methods.peerwatch.side_tracker import SideTracker


def test_where_nothing_tells_of_progress_continuity_alone_decides() -> None:
    assert [("a", "work")] == sustained(evidence_of(seconds=240), phase=Phase())
    assert [("a", "busy")] == sustained(evidence_of("busy", seconds=240), phase=Phase())
    assert [] == sustained(evidence_of(seconds=239), phase=Phase())


@pytest.mark.parametrize(
    ("seconds", "loss", "flagged"),
    [(240, 0.02, True), (235, 0.5, False), (240, 0.019, False), (900, math.nan, False)],
)
def test_while_the_job_goes_on_only_lost_progress_makes_a_finding(
    seconds: float, loss: float, flagged: bool
) -> None:
    assert flagged is bool(sustained(evidence_of(seconds=seconds), loss=loss))


def test_the_loss_that_a_deviation_may_have_cost_is_asked_for() -> None:
    asked: list[Evidence] = []

    def loss(item: Evidence) -> float:
        asked.append(item)
        return 0.5

    item = evidence_of(since=8_765.0)
    (deviation,) = weighed(item, phase=TRAINS, loss=loss)
    assert [item] == asked
    assert "critical" == deviation.severity


@pytest.mark.parametrize(
    ("strength", "borne", "lost_before", "flagged"),
    [
        pytest.param(2.0, 0.0, 0.0, True, id="new"),
        pytest.param(2.0, 1.9, 0.0, False, id="the job kept its pace beside it"),
        pytest.param(2.0, 1.9, math.nan, False, id="not known whether it did"),
        pytest.param(2.0, 1.9, 0.02, True, id="slower since it first showed"),
        pytest.param(3.0, 2.0, 0.0, True, id="stronger by half"),
    ],
)
def test_what_comes_and_goes_at_one_pace_of_the_job_does_not_slow_it_down(
    strength: float, borne: float, lost_before: float, flagged: bool
) -> None:
    item = evidence_of(since=8_765.0, strength=strength, borne=borne, first=8_000.0)

    def loss(asked: Evidence) -> float:
        return lost_before if asked.since == 8_000.0 else 0.05

    (found,) = weighed(item, phase=TRAINS, loss=loss)
    assert flagged is found.sustained
    (off,) = weighed(item, phase=TRAINS, loss=loss, config=without(again=False))
    assert off.sustained


def test_a_metric_that_warns_is_a_warning_without_lost_progress() -> None:
    (deviation,) = weighed(evidence_of("notice"), phase=TRAINS, loss=lambda item: 0.0)
    assert (True, "warning") == (deviation.sustained, deviation.severity)
    (deviation,) = weighed(evidence_of("notice"), phase=TRAINS, loss=lambda item: 0.2)
    assert (True, "critical") == (deviation.sustained, deviation.severity)


@pytest.mark.parametrize(("seconds", "flagged"), [(40, False), (45, True)])
def test_while_the_job_waits_less_continuity_is_enough(seconds: float, flagged: bool) -> None:
    item = evidence_of(seconds=seconds)
    assert flagged is bool(sustained(item, phase=WAITS, waiting_since=BEGAN))
    assert [] == sustained(item, phase=WAITS, waiting_since=BEGAN, config=without(fast=False))


@pytest.mark.parametrize(("seconds", "flagged"), [(235, False), (240, True)])
def test_a_job_that_starts_waits_for_late_ranks_as_long_as_it_takes(
    seconds: float, flagged: bool
) -> None:
    step = JobStep(NOW, NOW, WAITS, BEGAN, starting=True)
    evidence = [evidence_of(seconds=seconds), evidence_of("other", seconds=seconds)]
    deviations = assess(evidence, step, lambda item: math.nan, CONFIG)
    assert [flagged, flagged] == [deviation.sustained for deviation in deviations]


def test_two_independent_metrics_need_still_less() -> None:
    two = evidence_of(seconds=25), evidence_of("other", seconds=25)
    assert [("a", "work"), ("a", "other")] == sustained(*two, phase=WAITS, waiting_since=BEGAN)
    assert [] == sustained(
        evidence_of(seconds=25),
        evidence_of("other", "b", seconds=25),
        phase=WAITS,
        waiting_since=BEGAN,
    )


def test_network_metrics_count_as_one() -> None:
    two = evidence_of("pause", seconds=40), evidence_of("marks", seconds=40)
    assert [] == sustained(*two, phase=WAITS, waiting_since=BEGAN)


@pytest.mark.parametrize(
    ("before", "waited", "flagged"),
    [(60, 50, True), (61, 50, False), (120, 110, True), (121, 110, False)],
)
def test_what_began_long_before_the_job_waited_does_not_explain_it(
    before: float, waited: float, flagged: bool
) -> None:
    since = NOW - waited
    item = evidence_of(began=since - before, seconds=100)
    alone = without(company=False)
    assert flagged is bool(sustained(item, phase=WAITS, waiting_since=since, config=alone))


def test_the_whole_continuity_stays_the_most_that_is_asked_for() -> None:
    config = CONFIG.model_copy(
        update={"continuity": CONFIG.continuity.model_copy(update={"threshold_seconds": 12.0})}
    )
    item = evidence_of(seconds=12)
    assert [("a", "work")] == sustained(item, phase=WAITS, waiting_since=BEGAN, config=config)


def test_high_load_is_no_sign_of_its_own() -> None:
    high = evidence_of("busy", seconds=900)
    assert [] == sustained(high, loss=0.05)
    assert [] == sustained(high, phase=WAITS, waiting_since=BEGAN)
    assert [("a", "busy")] == sustained(high, loss=0.05, config=without(load=False))
    assert [("a", "busy")] == sustained(evidence_of("busy", high=False), loss=0.05)


def test_high_load_is_a_sign_if_much_progress_is_lost_and_nothing_else_explains_it() -> None:
    high = evidence_of("busy", seconds=240)
    assert [("a", "busy")] == sustained(high, loss=0.1)
    assert [] == sustained(high, evidence_of("work", "b", seconds=20), loss=0.1)


def test_more_memory_is_load_and_less_of_it_is_a_sign_only_where_the_job_stops() -> None:
    more, less = (evidence_of("memory", high=high, seconds=300) for high in (True, False))
    assert [] == sustained(more, loss=0.05)
    assert [("a", "memory")] == sustained(more, loss=0.1)
    assert [] == sustained(more, phase=WAITS, waiting_since=BEGAN)
    assert [] == sustained(less, loss=0.5)
    assert [("a", "memory")] == sustained(less, loss=0.5, config=without(load=False))
    assert [("a", "memory")] == sustained(less, phase=WAITS, waiting_since=BEGAN)


def test_high_load_is_not_a_second_metric() -> None:
    two = evidence_of(seconds=30), evidence_of("busy", seconds=30)
    assert [] == sustained(*two, phase=WAITS, waiting_since=BEGAN)


def test_a_rank_that_is_busy_while_its_peers_wait_counts_once_no_pause_explains_the_wait() -> None:
    busy = evidence_of("own", seconds=60, strength=6.0, began=NOW - 65.0)
    assert [] == sustained(busy, phase=WAITS, waiting_since=NOW - 105)
    assert [("a", "own")] == sustained(busy, phase=WAITS, waiting_since=NOW - 110)
    paused = replace(WAITS, pause_seconds=180.0)
    assert [] == sustained(busy, phase=paused, waiting_since=NOW - 175)
    assert [("a", "own")] == sustained(busy, phase=paused, waiting_since=NOW - 180)


def test_a_busy_rank_makes_no_early_finding_together_with_another_sign() -> None:
    two = [evidence_of(name, seconds=30, began=NOW - 35.0) for name in ("work", "own")]
    assert [] == sustained(*two, phase=WAITS, waiting_since=NOW - 40)


def test_a_busy_rank_of_a_job_that_trains_is_load() -> None:
    busy = evidence_of("own", seconds=300)
    assert [] == sustained(busy, loss=0.05)
    assert [("a", "own")] == sustained(busy, loss=0.1)
    assert [] == sustained(busy, evidence_of("work", "b", seconds=20), loss=0.1)


def test_where_only_steps_are_counted_a_sign_finds_no_company() -> None:
    two = evidence_of(seconds=30), evidence_of("other", seconds=30)
    since = {"waiting_since": NOW - 60}
    began = [replace(each, began=NOW - 60.0) for each in two]
    assert sustained(*began, phase=WAITS, **since)
    assert not sustained(*began, phase=replace(WAITS, counted=True), **since)


def test_what_cannot_be_named_is_shown_as_half_of_the_way() -> None:
    (deviation,) = weighed(evidence_of(seconds=900), phase=TRAINS, loss=lambda item: 0.0)
    assert 0.5 == deviation.seconds / deviation.threshold


def follow(*rows: str, kind: str = "work") -> tuple[SideTracker, list[Evidence], bool]:
    """Feed one row per node, a step per character.

    ``x`` is a candidate, ``m`` one of many, ``?`` not known, ``c`` one whose peers' level has
    collapsed.
    """
    tracker = SideTracker(10.0)
    tracker.follow(tuple("abcdefgh"[: len(rows)]))
    for step, column in enumerate(zip(*rows, strict=True)):
        found = Side.empty(len(rows), common=False)
        found.strength[:] = [2.0 if mark in "xm" else 0.0 for mark in column]
        found.of_many[:] = [mark == "m" for mark in column]
        evaluated = np.array([mark != "?" for mark in column])
        collapsed = np.array([mark == "c" for mark in column])
        tracker.update(JobStep(NOW + 5 * step, 5.0 * step, TRAINS), found, evaluated, collapsed)
    compared = METRICS["pause" if kind == "network" else "work"]
    return tracker, *collect_evidence(tracker, compared, 1, ("",), high=True, common_cause=True)


def test_a_deviation_begins_a_step_before_its_first_candidate() -> None:
    _, (item,), _ = follow("..xxx", ".....")
    assert ("a", NOW + 5, 5.0, 15.0) == (item.node, item.since, item.began, item.seconds)


def test_a_pause_of_two_steps_does_not_break_a_deviation_of_three_does() -> None:
    assert [40.0] == [item.seconds for item in follow("xxx..xxx", "........")[1]]
    assert [10.0] == [item.seconds for item in follow("xxx...xx", "........")[1]]


def test_steps_without_evaluation_do_not_break_a_deviation() -> None:
    assert [45.0] == [item.seconds for item in follow("xx?????xx", ".........")[1]]


def test_what_was_seen_until_all_collapsed_is_held_and_counts_on() -> None:
    _, (item,), _ = follow("..xxccccc", "....ccccc")
    assert ("a", True, 35.0, 0.0, 2.0) == (
        item.node,
        item.held,
        item.seconds,
        item.quiet,
        item.strength,
    )
    assert [] == follow("..xx...cccc", ".......cccc")[1]


def test_what_was_held_ends_with_the_collapse_and_begins_anew() -> None:
    _, (item,), _ = follow("..xxccccxx", "....cccc..")
    assert (False, NOW + 35, 10.0) == (item.held, item.since, item.seconds)
    assert [] == follow("..xxcccc.", "....cccc.")[1]


@pytest.mark.parametrize(
    ("before", "waited", "flagged"),
    [(20.0, 60.0, False), (20.0, 120.0, True), (40.0, 120.0, False), (-5.0, 120.0, True)],
)
def test_who_was_first_counts_once_the_wait_is_longer_than_checkpoints_are_late(
    before: float, waited: float, flagged: bool
) -> None:
    since = NOW - waited
    item = evidence_of(began=since - before, seconds=waited + before, held=True, strength=3.0)
    found = sustained(item, phase=WAITS, waiting_since=since)
    assert ([("a", "work")] if flagged else []) == found
    # Samples a second ahead of the others' are a small difference for a step.
    weak = replace(item, strength=2.9)
    assert [] == sustained(weak, phase=WAITS, waiting_since=since)


def test_the_strength_of_a_new_deviation_begins_anew() -> None:
    tracker = SideTracker(10.0)
    tracker.follow(("a",))
    for step, strength in enumerate([9.0, 2.0, 0.0, 0.0, 0.0, 0.0, 2.0]):
        found = Side.empty(1, common=False)
        found.strength[0] = strength
        tracker.update(JobStep(step * 5, step * 5.0, TRAINS), found, np.array([True]))
        if step == 1:
            np.testing.assert_allclose([8.1], tracker.strength)
    assert [2.0] == tracker.strength.tolist()


@pytest.mark.parametrize(
    ("phase", "away", "borne"),
    [(TRAINS, 10, 2.0), (TRAINS, 119, 2.0), (TRAINS, 121, 0.0), (WAITS, 10, 0.0)],
    ids=["just now", "ten minutes ago", "longer ago", "in a wait"],
)
def test_what_the_job_bore_before_a_deviation_is_remembered_for_ten_minutes(
    phase: Phase, away: int, borne: float
) -> None:
    tracker = SideTracker(10.0)
    tracker.follow(("a",))
    for step in range(away + 2):
        found = Side.empty(1, common=False)
        found.strength[0] = 2.0 if step in {0, away + 1} else 0.0
        tracker.update(JobStep(step * 5, step * 5.0, phase), found, np.array([True]))
    (item,), _ = collect_evidence(tracker, METRICS["work"], 1, ("",), high=True, common_cause=True)
    assert borne == item.borne


@pytest.mark.parametrize(
    ("row", "first"),
    [
        pytest.param("..x....x", 5, id="again"),
        pytest.param("..x....x....x", 5, id="and again"),
        pytest.param("..m....x", 5, id="as one of many"),
        pytest.param(".x" + 121 * "." + "x...x", 610, id="more than ten minutes later"),
    ],
)
def test_since_when_the_job_has_worked_with_what_comes_and_goes(row: str, first: int) -> None:
    _, (item,), _ = follow(row, "." * len(row))
    assert NOW + first == item.first < item.since


@pytest.mark.parametrize(("kind", "most"), [("work", 2), ("network", 1)])
def test_deviations_that_begin_together_have_a_common_cause(kind: str, most: int) -> None:
    few = ["xxx"] * most + ["..."] * (5 - most)
    many = ["xxx"] * (most + 1) + ["..."] * (4 - most)
    assert (most, False) == (len(follow(*few, kind=kind)[1]), follow(*few, kind=kind)[2])
    assert ([], True) == follow(*many, kind=kind)[1:]


@pytest.mark.parametrize(
    ("row", "seconds"),
    [
        ("xxx", [15.0]),
        # One of many begins nothing; alone it does.
        ("mmm", []),
        ("mmx", [5.0]),
        # It is not flagged while it is one of many, which ends nothing.
        ("xxm", []),
        ("xxmmmmx", [35.0]),
    ],
)
def test_one_of_many_begins_no_deviation_and_ends_none(row: str, seconds: list[float]) -> None:
    _, evidence, common = follow(row, "." * len(row))
    assert seconds == [item.seconds for item in evidence]
    assert common is (row[-1] == "m" and row[0] == "x")


@given(st.lists(st.integers(0, 300).map(float), min_size=1, max_size=8))
def test_what_began_together_is_counted_as_in_the_slow_version(starts: list[float]) -> None:
    tracker = SideTracker(10.0)
    tracker.follow(tuple("abcdefgh"[: len(starts)]))
    tracker.deviations.start = np.array(starts)
    assert naive.began_together(starts, 60.0) == tracker.together().tolist()


def test_the_gpu_that_carries_a_deviation_is_named() -> None:
    tracker = SideTracker(10.0)
    tracker.follow(("a", "b"))
    found = Side.empty(2, common=False)
    found.strength[:], found.gpu[:] = 2.0, [1, -1]
    tracker.update(JobStep(NOW, 0.0, TRAINS), found, np.array([True, True]))
    evidence, _ = collect_evidence(
        tracker, METRICS["work"], 1, ("4", "5"), high=True, common_cause=True
    )
    assert [("a", "5"), ("b", "")] == [(item.node, item.gpu) for item in evidence]


def test_nodes_that_stay_keep_their_deviations() -> None:
    tracker, _, _ = follow("xxx", "...")
    tracker.follow(("new", "a"))
    evidence, _ = collect_evidence(tracker, METRICS["work"], 1, ("",), high=True, common_cause=True)
    assert [("a", 15.0, 2.0)] == [(item.node, item.seconds, item.strength) for item in evidence]
