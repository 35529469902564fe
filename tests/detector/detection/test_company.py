from __future__ import annotations

import math
from dataclasses import replace

import pytest

from detector.evidence import (
    CONFIG,
    METRICS,
    NOW,
    WAITS,
    evidence_of,
    sustained,
    without,
)
from peerwatch_detector.detection.methods.peerwatch.evidence import assess
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.methods.peerwatch.phase import Phase

GPU_POWER = CONFIG.detection_metrics()[0].model_copy(
    update={"name": "gpu_power", "scope": "gpu", "kind": "work", "direction": "both"}
)


@pytest.mark.parametrize(
    ("waited", "strength", "flagged"),
    [(100, 9.0, False), (110, 2.9, False), (110, 3.0, True), (154, 2.9, False), (155, 1.0, True)],
)
def test_a_sign_without_company_is_given_time(waited: int, strength: float, flagged: bool) -> None:
    since = float(NOW - waited)
    item = evidence_of(began=since, seconds=60, strength=strength)
    assert flagged is bool(sustained(item, phase=WAITS, waiting_since=since))
    alone = without(company=False)
    assert sustained(item, phase=WAITS, waiting_since=since, config=alone)


@pytest.mark.parametrize(
    ("after", "seconds", "strength", "flagged"),
    [
        pytest.param(125.0, 60.0, 1.1, True, id="as soon as weaker signs are seen"),
        pytest.param(126.0, 60.0, 9.0, False, id="later"),
        pytest.param(126.0, 240.0, 1.7, True, id="a fault of its own, by size and time"),
        pytest.param(126.0, 235.0, 1.7, False, id="by size only"),
        pytest.param(126.0, 240.0, 1.6, False, id="by time only"),
    ],
)
def test_what_begins_long_into_a_wait_is_not_why_the_job_waits(
    after: float, seconds: float, strength: float, flagged: bool
) -> None:
    since = float(NOW - 400)
    item = evidence_of(began=since + after, seconds=seconds, strength=strength)
    assert flagged is bool(sustained(item, phase=WAITS, waiting_since=since))
    alone = without(company=False)
    assert sustained(item, phase=WAITS, waiting_since=since, config=alone)


def test_what_begins_long_into_a_wait_is_no_company() -> None:
    since = float(NOW - 400)
    early = evidence_of(began=since, seconds=30, strength=2.0)
    late = evidence_of("other", began=since + 126, seconds=60, strength=2.0)
    step = JobStep(NOW, NOW, WAITS, since, halted_seconds=0.0)
    settings = CONFIG.peerwatch
    for other, paired in ((late, False), (replace(late, began=since + 125), True)):
        needed = [
            each.threshold for each in assess([early, other], step, lambda _: math.nan, CONFIG)
        ]
        assert paired is (settings.fast_pair_seconds in needed)


@pytest.mark.parametrize(
    ("names", "enough"),
    [
        (("pause", "marks"), False),
        (("pause", "work"), True),
        (("work", "busy"), False),
        (("work", "other"), True),
    ],
)
def test_company_is_a_metric_with_another_cause(names: tuple[str, str], enough: bool) -> None:
    since = float(NOW - 60)
    signs = [evidence_of(name, began=since, seconds=60) for name in names]
    assert enough is bool(sustained(*signs, phase=WAITS, waiting_since=since))


def test_a_node_that_computes_on_is_late_and_no_company() -> None:
    """After an evaluation one rank is half a minute late, and its traffic happens to be low."""
    since = float(NOW - 60)
    other = evidence_of("other", began=since, seconds=60)
    for high, flagged in ((True, False), (False, True)):
        power = evidence_of(metric=GPU_POWER, high=high, began=since, seconds=60, strength=9.0)
        assert flagged is bool(sustained(power, other, phase=WAITS, waiting_since=since))


def test_after_a_rest_of_the_gpus_a_late_node_is_no_fault() -> None:
    since = float(NOW - 60)
    signs = [evidence_of(name, began=since, seconds=60) for name in ("work", "other")]
    step = JobStep(NOW, NOW, WAITS, since, halted_seconds=30.0)
    for config, flagged in ((CONFIG, False), (without(company=False), True)):
        deviations = assess(signs, step, lambda item: math.nan, config)
        assert [flagged] * 2 == [deviation.sustained for deviation in deviations]


def test_the_ranks_own_heartbeat_needs_no_company() -> None:
    since = float(NOW - 60)
    metric_config = METRICS["work"].model_copy(update={"name": "heartbeat_age"})
    item = evidence_of(metric=metric_config, began=since, seconds=45)
    assert sustained(item, phase=WAITS, waiting_since=since)


@pytest.mark.parametrize(("seconds", "flagged"), [(20, False), (25, True)])
def test_company_must_last_as_long_as_what_it_joins(seconds: float, flagged: bool) -> None:
    """Where a phase begins or ends, a late sample is a deviation of some seconds everywhere."""
    since = float(NOW - 60)
    lasting = evidence_of(began=since, seconds=60)
    company = evidence_of("other", began=NOW - seconds, seconds=seconds)
    found = sustained(lasting, company, phase=WAITS, waiting_since=since)
    assert flagged is (("a", "work") in found)


@pytest.mark.parametrize(("waited", "flagged"), [(20, False), (25, True)])
def test_a_stall_of_seconds_is_nobodys_fault(waited: float, flagged: bool) -> None:
    since = float(NOW - waited)
    signs = [evidence_of(name, began=since - 30, seconds=40) for name in ("work", "other")]
    assert flagged is bool(sustained(*signs, phase=WAITS, waiting_since=since))


def test_what_is_held_is_company_only_where_it_was_large() -> None:
    since = float(NOW - 60)
    weak = evidence_of(began=since, seconds=60, strength=2.0)
    held = evidence_of("other", began=since, seconds=60, strength=3.0, held=True)
    assert [("a", "work")] == sustained(weak, held, phase=WAITS, waiting_since=since)
    faint = replace(held, strength=2.9)
    assert [] == sustained(weak, faint, phase=WAITS, waiting_since=since)


@pytest.mark.parametrize(("after", "flagged"), [(30.0, True), (31.0, False)])
def test_who_differs_where_the_level_collapses_long_into_a_wait_was_not_the_first(
    after: float, flagged: bool
) -> None:
    since = float(NOW - 200)
    item = evidence_of(began=since + after, seconds=150, held=True, strength=9.0)
    assert flagged is bool(sustained(item, phase=WAITS, waiting_since=since))


ENDED = Phase(known=True, idle=True, waiting=True, ended=True)


@pytest.mark.parametrize(
    ("changes", "hung", "flagged"),
    [
        pytest.param({}, 60.0, True, id="it hung"),
        pytest.param({}, 24.0, False, id="it worked until it ended"),
        pytest.param({"seconds": 20.0}, 60.0, False, id="a node that was ahead when it ended"),
        pytest.param({"seconds": 44.0}, 60.0, False, id="one sign has the length of one"),
        pytest.param({}, 44.0, False, id="and so has the hang"),
        pytest.param({"seconds": 25.0, "strength": 3.0}, 25.0, True, id="a strong one needs less"),
        pytest.param({"quiet": 10.0}, 60.0, True, id="levels of before and after the end"),
        pytest.param({"began": NOW - 121.0}, 60.0, False, id="differed long before"),
        pytest.param({"held": True, "strength": 2.9}, 60.0, False, id="a small sign at the onset"),
        pytest.param({"held": True, "strength": 3.0}, 60.0, True, id="a large sign at the onset"),
    ],
)
def test_a_sign_needs_no_company_once_a_job_that_hung_has_ended(
    changes: dict[str, float], hung: float, flagged: bool
) -> None:
    item = evidence_of(**{"began": NOW - 60.0, "seconds": 60.0, "strength": 1.1} | changes)
    step = JobStep(NOW, NOW, ENDED, NOW - 60.0, hung_seconds=hung)
    (found,) = assess([item], step, lambda _: math.nan, CONFIG)
    assert flagged is found.sustained
    (off,) = assess([item], step, lambda _: math.nan, without(ended=False))
    assert not off.sustained


@pytest.mark.parametrize(
    ("high", "seconds", "flagged"),
    [
        pytest.param(True, 40.0, False, id="late"),
        pytest.param(True, 45.0, True, id="as long as one sign must"),
        pytest.param(False, 40.0, True, id="does less than the others"),
    ],
)
def test_a_node_that_computed_on_before_a_job_ended_was_late(
    high: bool, seconds: float, flagged: bool
) -> None:
    """An evaluation, half a minute for its last rank, a stall, and then somebody ends the job."""
    since = NOW - 52.0
    changes = {"high": high, "began": since, "seconds": seconds, "strength": 6.0}
    power = evidence_of(metric=GPU_POWER, **changes)
    company = evidence_of("other", began=since, seconds=30.0, strength=1.2)
    step = JobStep(NOW, NOW, ENDED, since, hung_seconds=52.0)
    for others, both in (([], []), ([company], [not high])):
        found = assess([power, *others], step, lambda _: math.nan, CONFIG)
        assert [flagged, *both] == [each.sustained for each in found]


@pytest.mark.parametrize(
    ("name", "seconds", "flagged"), [("other", 25.0, True), ("other", 20.0, False)]
)
def test_where_two_causes_speak_a_short_hang_before_the_end_is_enough(
    name: str, seconds: float, flagged: bool
) -> None:
    since = NOW - 42.0
    sign = evidence_of(began=since, seconds=35.0, strength=1.2)
    company = evidence_of(name, began=since, seconds=seconds, strength=1.2)
    step = JobStep(NOW, NOW, ENDED, since, hung_seconds=42.0)
    first, _ = assess([sign, company], step, lambda _: math.nan, CONFIG)
    assert flagged is first.sustained
    (alone,) = assess([sign], step, lambda _: math.nan, CONFIG)
    assert not alone.sustained


@pytest.mark.parametrize(("halted", "flagged"), [(70.0, False), (0.0, True)])
def test_what_processes_hold_after_a_restart_is_no_sign(halted: float, flagged: bool) -> None:
    """Another program of the job holds less on one node from now on, and all wait for a start."""
    since = NOW - 160.0
    item = evidence_of("memory", high=False, began=NOW - 150.0, seconds=50.0)
    step = JobStep(NOW, NOW, WAITS, since, halted_seconds=halted)
    (found,) = assess([item], step, lambda _: math.nan, CONFIG)
    assert flagged is found.sustained


@pytest.mark.parametrize(
    ("waited", "strength", "borne", "flagged"),
    [
        pytest.param(60, 4.0, 0.0, True, id="new"),
        pytest.param(60, 4.0, 3.0, False, id="hardly stronger than before"),
        pytest.param(60, 4.5, 3.0, True, id="stronger by half"),
        # After patience_seconds signs are shown 1 / peerwatch.relaxed as large as they are.
        pytest.param(200, 2.0, 1.1, False, id="weak, and as before"),
        pytest.param(200, 4.0, 1.1, True, id="weak before"),
    ],
)
def test_what_the_job_bore_a_moment_ago_explains_no_wait(
    waited: int, strength: float, borne: float, flagged: bool
) -> None:
    since = float(NOW - waited)
    signs = [
        evidence_of(name, began=since, seconds=60.0, strength=strength, borne=borne)
        for name in ("work", "other")
    ]
    assert flagged is bool(sustained(*signs, phase=WAITS, waiting_since=since))


def test_who_has_more_to_do_when_a_job_that_hung_ends_is_not_the_reason() -> None:
    item = evidence_of("busy", began=NOW - 60.0, seconds=60.0)
    step = JobStep(NOW, NOW, ENDED, NOW - 60.0, hung_seconds=60.0)
    (found,) = assess([item], step, lambda _: math.nan, CONFIG)
    assert not found.sustained


@pytest.mark.parametrize(
    ("strength", "seconds", "flagged"),
    [
        pytest.param(1.5, 240.0, True, id="half above the minimum"),
        pytest.param(1.4, 475.0, False, id="weak"),
        pytest.param(1.4, 480.0, True, id="weak, and given time"),
    ],
)
def test_a_weak_sign_in_a_working_job_is_given_twice_the_time(
    strength: float, seconds: float, flagged: bool
) -> None:
    item = evidence_of(strength=strength, seconds=seconds)
    assert flagged is bool(sustained(item, loss=0.03))
    assert sustained(item, loss=0.03, config=without(weak=False))


@pytest.mark.parametrize(
    ("name", "seconds", "flagged"),
    [("other", 240.0, True), ("other", 235.0, False), ("marks", 240.0, False)],
)
def test_a_weak_sign_with_company_needs_no_more_time(
    name: str, seconds: float, flagged: bool
) -> None:
    weak = evidence_of("pause", strength=1.2, seconds=240.0)
    company = evidence_of(name, strength=1.2, seconds=seconds)
    assert flagged is (("a", "pause") in sustained(weak, company, loss=0.03))
    elsewhere = replace(company, node="b")
    assert ("a", "pause") not in sustained(weak, elsewhere, loss=0.03)


def test_the_ranks_own_heartbeat_is_never_weak() -> None:
    metric_config = METRICS["work"].model_copy(update={"name": "heartbeat_age"})
    item = evidence_of(metric=metric_config, strength=1.1, seconds=240.0)
    assert sustained(item, loss=0.03)
