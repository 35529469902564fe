"""A stage of a single pipeline against its own past: named, undecided, or left alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from detector.diagnosis.exported import Answers, series
from peerwatch_detector.diagnosis.collectives.slowness.past_diagnoser import PastDiagnoser
from peerwatch_detector.diagnosis.verdict import Verdict

# Four stages, a rank and a node each. A step of one second: 0.6 of its own, 0.4 waiting.
RANKS = 4
USUAL = {
    "step": 1.0,
    "data": 0.05,
    "forward": 0.2,
    "backward": 0.3,
    "optimizer": 0.05,
    "collective": 0.4,
}
Changes = Mapping[int, Mapping[str, float]]


def answers(changes: Changes, *, pipelines: tuple[str, ...] = ("0-3",), steps: float = 1.0):
    """Return the answers of a minute; ``changes`` are seconds per step, by rank and segment."""
    found: Answers = {"spans": [], "steps": [], "stages": []}
    found["stages"] = [series({"description": "pp", "members": m}, 1) for m in pipelines]
    slowest = max((sum(more.values()) for more in changes.values()), default=0.0)
    ranks = RANKS * len(pipelines)
    for rank in range(ranks):
        labels = {"rank": rank, "node": f"c{rank}"}
        # Whoever is not slow waits for whoever is.
        more = {"step": slowest, **changes.get(rank, {"collective": slowest})}
        rate = steps / (1.0 + slowest)
        found["steps"].append(series(labels, rate))
        for segment, seconds in USUAL.items():
            value = (seconds + more.get(segment, 0.0)) * rate
            found["spans"].append(series({**labels, "segment": segment}, value))
    return found


def diagnosed(
    changes: Changes, *, minutes: int = 3, healthy: int = 10, **options
) -> tuple[Verdict, ...]:
    """Return what stands after some minutes of health and some of changes."""
    diagnoser = PastDiagnoser("llm")
    said: tuple[Verdict, ...] = ()
    for minute in range(healthy + minutes):
        now = answers(changes if minute >= healthy else {}, **options)
        said = tuple(diagnoser.diagnose(now, 1e9 + 60 * minute))
    return said


SLOW = {2: {"forward": 0.16, "backward": 0.24}}


def test_the_stage_whose_own_time_grew_is_undecided_first_and_likely_after_five_minutes():
    (first,) = diagnosed(SLOW)
    (later,) = diagnosed(SLOW, minutes=6)

    assert (first.class_name, first.node, first.rank) == ("compute_straggler", "c2", 2)
    assert (first.confidence, first.names_node) == ("undecided", False)
    assert first.summary == (
        "rank 2 on node c2: stage 2 of the pipeline takes 1 s of its own for a step, 1.7 times as "
        "long as before, mostly in backward; the other stages take what they took. No other node "
        "has this stage to compare with: it may have got other work"
    )
    assert (later.confidence, later.names_node, later.victims) == ("likely", True, (0, 1, 3))
    assert not later.summary.endswith("other work")
    assert first.start_time == later.start_time == 1e9 + 600 - 120


def test_a_stage_that_loads_its_data_more_slowly_stays_undecided():
    (verdict,) = diagnosed({0: {"data": 0.5}}, minutes=30)

    assert (verdict.node, verdict.confidence) == ("c0", "undecided")
    assert "mostly in data" in verdict.summary


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "nothing has changed"),
        ({rank: {"forward": 0.4} for rank in range(4)}, "longer sequences: all have grown"),
        ({2: {"forward": 0.4}, 3: {"forward": 0.1}}, "two have grown"),
        ({2: {"forward": 0.1}}, "less than a sixth of the step"),
        ({2: {"forward": 0.4, "collective": 0.4}}, "it waits longer: within its forward, perhaps"),
        ({2: {"checkpoint": 5.0}}, "a checkpoint is not its own work of a step"),
    ],
)
def test_nobody_is_named_where(changes, why):
    assert diagnosed(changes, minutes=10) == (), why


@pytest.mark.parametrize(
    "options",
    [
        {"healthy": 2},
        {"minutes": 1},
        {"pipelines": ("0-3", "4-7")},
        {"pipelines": ()},
        {"steps": 0.05},
    ],
    ids=["no past", "one reading", "peers at the same stage", "no pipeline", "too few steps"],
)
def test_nobody_is_named_without_enough_to_compare(options):
    assert diagnosed(SLOW, **options) == ()


def test_a_rank_without_spans_may_be_the_one_that_has_grown():
    diagnoser = PastDiagnoser("llm")
    for minute in range(20):
        found = answers(SLOW if minute >= 10 else {})
        found["steps"] = [s for s in found["steps"] if s.labels["rank"] != "1"]
        assert diagnoser.diagnose(found, 1e9 + 60 * minute) == []


def test_it_stands_between_readings_and_ends_with_the_slowness():
    diagnoser = PastDiagnoser("llm")
    for minute in range(14):
        diagnoser.diagnose(answers(SLOW if minute >= 10 else {}), 1e9 + 60 * minute)

    assert diagnoser.diagnose({}, 1e9 + 60 * 13 + 5)
    assert diagnoser.diagnose(answers({}), 1e9 + 60 * 14) == []


def test_several_ranks_of_a_stage_name_their_node():
    """Two ranks share each stage and its node; of those that wait for each other both grow."""
    diagnoser = PastDiagnoser("llm")
    said = []
    for minute in range(13):
        found = answers({1: {"forward": 0.4}} if minute >= 10 else {}, pipelines=("0-3",))
        for name in ("spans", "steps"):
            twins = []
            for each in found[name]:
                rank = int(each.labels["rank"])
                twins.append(series({**each.labels, "rank": rank + 4}, each.values[-1]))
            found[name] += twins
        found["stages"].append(series({"description": "pp", "members": "4-7"}, 1))
        said = diagnoser.diagnose(found, 1e9 + 60 * minute)

    (verdict,) = said
    assert (verdict.node, verdict.rank, verdict.victims) == ("c1", None, (0, 2, 3, 4, 6, 7))
    assert verdict.summary.startswith("the ranks of node c1: stage 1")
