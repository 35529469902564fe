from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.fakes import a_deviation, a_finding, flagged
from peerwatch_detector.detection.findings import (
    Deviation,
    fault_scores,
    raise_findings,
    raise_strongest,
    still_standing,
)


def raised(*deviations: Deviation, standing: dict | None = None) -> list[tuple[str, str]]:
    return flagged(raise_findings("job-1", 2000.0, standing or {}, list(deviations)))


def test_a_long_enough_deviation_becomes_a_finding_with_all_it_knows() -> None:
    deviation = a_deviation("a", gpu="3", metric="power", rank=4, since=1234.0, score=7.5)
    (finding,) = raise_findings("job-7", 2000.0, {}, [deviation])
    expected = a_finding(
        "a",
        job_id="job-7",
        gpu="3",
        metric="power",
        rank=4,
        since=1234.0,
        raised=2000.0,
        score=7.5,
    )
    assert expected == finding
    assert ("job-7", "a", "3", "power", "peerwatch", "critical") == finding.key


def test_a_deviation_that_is_too_short_waits() -> None:
    assert [] == raised(a_deviation(seconds=239.0))
    assert [("a", "load")] == raised(a_deviation(seconds=240.0))


def test_the_first_metric_of_the_priority_names_the_node_once() -> None:
    low, high = a_deviation(metric="low", rank=5, seconds=900), a_deviation(metric="high", rank=2)
    assert [("a", "high")] == raised(low, high)


def test_a_node_that_is_named_already_is_not_named_again() -> None:
    assert [] == raised(a_deviation("a"), standing={"a": a_finding("a", rank=9)})


def test_two_nodes_are_both_named_by_one_metric_longest_first() -> None:
    short, long = a_deviation("a", seconds=250), a_deviation("b", seconds=260)
    assert [("b", "load"), ("a", "load")] == raised(short, long)


def test_a_lower_metric_waits_while_a_stronger_sign_on_another_node_grows() -> None:
    symptom = a_deviation("b", metric="queue", rank=3, since=1000.0)
    cause = a_deviation("a", metric="load", rank=1, since=1010.0, seconds=60.0)
    assert [] == raised(symptom, cause)


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 59.0},
        {"quiet": 1.0},
        {"rank": 3},
        {"rank": 4},
        {"node": "b"},
        {"since": 1060.0},
    ],
    ids=["too young", "in a pause", "same rank", "lower rank", "same node", "began later"],
)
def test_nothing_is_waited_for_without_reason(change: dict) -> None:
    lower = a_deviation("b", metric="queue", rank=3, since=1000.0)
    values = {"metric": "load", "rank": 1, "since": 1010.0, "seconds": 60.0, "node": "a"}
    other = a_deviation(**(values | change))
    assert ("b", "queue") in raised(lower, other)


def test_a_symptom_of_a_standing_finding_is_not_named() -> None:
    standing = {"a": a_finding("a", rank=1, since=1000.0)}
    assert [] == raised(a_deviation("b", rank=3, since=950.0), standing=standing)
    assert [] == raised(a_deviation("b", rank=3, since=1300.0), standing=standing)


def test_what_begins_long_after_a_finding_is_no_symptom_of_it() -> None:
    standing = {"a": a_finding("a", rank=1, since=1000.0)}
    assert [] == raised(a_deviation("b", rank=3, since=1599.0), standing=standing)
    assert [("b", "load")] == raised(a_deviation("b", rank=3, since=1600.0), standing=standing)


def test_what_began_clearly_earlier_is_no_symptom() -> None:
    standing = {"a": a_finding("a", rank=1, since=1000.0)}
    assert [("b", "load")] == raised(a_deviation("b", rank=3, since=940.0), standing=standing)


def test_a_metric_as_strong_as_the_standing_one_is_no_symptom() -> None:
    standing = {"a": a_finding("a", rank=3, since=1000.0)}
    assert [("b", "load")] == raised(a_deviation("b", rank=3), standing=standing)
    assert [("b", "load")] == raised(a_deviation("b", rank=1), standing=standing)


def test_a_finding_made_in_the_same_cycle_suppresses_its_symptoms() -> None:
    cause, symptom = a_deviation("a", rank=1), a_deviation("b", rank=2, metric="queue")
    assert [("a", "load")] == raised(symptom, cause)


def test_findings_do_not_depend_on_the_order_of_the_deviations() -> None:
    deviations = [
        a_deviation("a", rank=2),
        a_deviation("b", rank=1, metric="first"),
        a_deviation("c", rank=1, metric="first", since=400.0, seconds=840.0),
        a_deviation("d", rank=3, metric="third", since=700.0),
    ]
    assert raised(*deviations) == raised(*reversed(deviations))


def test_a_finding_falls_when_its_node_was_quiet_long_enough() -> None:
    standing = {node: a_finding(node) for node in ("loud", "just", "fallen", "unknown")}
    quiet = {"loud": 0.0, "just": 119.9, "fallen": 120.0}
    assert ["loud", "just", "unknown"] == list(still_standing(standing, quiet, 120.0))


def test_fault_scores_tell_how_far_the_longest_deviation_is() -> None:
    deviations = [
        a_deviation("a", seconds=60.0),
        a_deviation("a", seconds=120.0, metric="other"),
        a_deviation("b", seconds=999.0),
    ]
    scores = fault_scores(("a", "b", "c", "d"), {"d": a_finding("d")}, deviations)
    assert {"a": pytest.approx(0.495), "b": 0.99, "c": 0.0, "d": 1.0} == scores


deviation_lists = st.lists(
    st.builds(
        a_deviation,
        st.sampled_from("abcd"),
        metric=st.sampled_from(["one", "two", "three"]),
        rank=st.integers(0, 4),
        since=st.floats(0, 2000),
        seconds=st.floats(0, 1000),
        quiet=st.sampled_from([0.0, 3.0]),
    ),
    max_size=10,
)


@given(deviations=deviation_lists, old=st.sets(st.sampled_from("abcd")))
def test_findings_are_long_enough_new_and_one_per_node(
    deviations: list[Deviation], old: set[str]
) -> None:
    standing = {node: a_finding(node, rank=2) for node in old}
    new = raise_findings("job-1", 2000.0, standing, deviations)
    nodes = [finding.node for finding in new]
    assert sorted(set(nodes)) == sorted(nodes)
    assert not old & set(nodes)
    for finding in new:
        assert any(
            s.sustained
            and (s.node, s.metric, s.since) == (finding.node, finding.metric, finding.since)
            for s in deviations
        )


@given(deviations=deviation_lists)
def test_fault_scores_lie_between_0_and_1_and_reach_1_with_a_finding_only(
    deviations: list[Deviation],
) -> None:
    scores = fault_scores(("a", "b", "c", "d"), {"a": a_finding("a")}, deviations)
    assert 1.0 == scores.pop("a")
    assert all(0 <= score <= 0.99 for score in scores.values())


def test_something_long_enough_alone_is_always_named() -> None:
    assert [("a", "load")] == raised(a_deviation("a"), a_deviation("b", seconds=10.0, rank=0))


def strongest(
    *deviations: Deviation, recent: tuple = (), standing: dict | None = None, symptoms: bool = True
) -> list[tuple[str, str]]:
    found = raise_strongest(
        "job-1", 2000.0, standing or {}, recent, list(deviations), symptoms=symptoms
    )
    return flagged(found)


def test_the_strongest_deviation_names_first_whatever_its_metric() -> None:
    weak = a_deviation("a", metric="first", rank=1, score=2.0)
    strong = a_deviation("b", metric="second", rank=9, score=3.0)
    assert [("b", "second"), ("a", "first")] == strongest(weak, strong)


def test_a_node_is_named_once_by_its_strongest_metric() -> None:
    deviations = a_deviation(metric="x", score=2.0), a_deviation(metric="y", rank=5, score=4.0)
    assert [("a", "y")] == strongest(*deviations)
    assert [] == strongest(*deviations, standing={"a": a_finding("a")})
    assert [] == strongest(a_deviation(seconds=239.0))


@pytest.mark.parametrize(
    ("since", "score", "found"),
    [
        (1045.0, 4.5, True),
        (955.0, 4.5, True),
        (1046.0, 4.5, False),
        (1045.0, 4.4, False),
        (954.0, 20.0, False),
        (1600.0, 20.0, False),
        (1601.0, 4.4, True),
    ],
)
def test_a_second_node_needs_to_begin_together_and_to_be_of_one_size(
    since: float, score: float, found: bool
) -> None:
    first = a_finding("a", since=1000.0, score=9.0)
    second = a_deviation("b", since=since, score=score)
    assert found is bool(strongest(second, recent=(first,)))
    assert [("b", "load")] == strongest(second, recent=(first,), symptoms=False)


def test_a_finding_that_fell_does_not_keep_its_own_node_from_being_named_again() -> None:
    assert [("a", "load")] == strongest(a_deviation("a", since=1300.0), recent=(a_finding("a"),))


def test_a_vanished_node_is_always_named_and_explains_what_others_show() -> None:
    gone = a_deviation("a", metric="absent", rank=0, score=0.0, since=1300.0)
    other = a_deviation("b", since=1310.0, score=50.0)
    assert [("a", "absent")] == strongest(other, gone)
    assert [("a", "absent")] == strongest(gone, recent=(a_finding("c"),))


def test_a_deviation_passes_its_severity_on() -> None:
    deviation = a_deviation(severity="warning")
    (finding,) = raise_strongest("job-1", 1.0, {}, (), [deviation], symptoms=True)
    assert "warning" == finding.severity
