"""Windows that are compared only where they matter, against comparing all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector import naive
from detector.detection.test_minder import rough, several
from detector.fakes import START, Replay, a_finding, healthy, metric
from peerwatch_detector import compiled
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.detection.methods.minder.windows import (
    NOBODY,
    NOT_COMPARED,
    Candidates,
    Points,
    anchors,
    causal_window,
    causal_windows,
)
from peerwatch_detector.detection.state import JobState


class Known(Candidates):
    """Candidates that are known beforehand."""

    def __init__(self, ends: np.ndarray, known: list[int | None]) -> None:
        def nothing(row: int) -> Points:
            raise AssertionError(row)

        observed = np.array([node is not None for node in known], dtype=bool)
        super().__init__(ends, observed, nothing, "manhattan", 2.0, 120.0)
        self.known, self.compared = known, 0

    def candidate(self, row: int) -> int:
        self.compared += self.found[row] == NOT_COMPARED
        self.found[row] = NOBODY if self.known[row] is None else self.known[row]
        return int(self.found[row])

    def is_candidate(self, row: int, node: int) -> bool:
        return self.candidate(row) == node


@st.composite
def walks(draw: st.DrawFn) -> tuple[np.ndarray, list[int | None]]:
    """Return times with holes, and candidates in runs of all lengths."""
    candidates: list[int | None] = []
    for _ in range(draw(st.integers(1, 9))):
        candidates += [draw(st.sampled_from([0, 1, 2, NOBODY, None]))] * draw(st.integers(1, 25))
    pauses = draw(
        st.lists(
            st.sampled_from([1] * 9 + [3, 121]), min_size=len(candidates), max_size=len(candidates)
        )
    )
    return START + np.cumsum(pauses), candidates


@settings(max_examples=300)
@given(
    walk=walks(), needed=st.integers(0, 40), since=st.none() | st.tuples(st.just(0), st.just(30))
)
def test_every_long_deviation_and_the_last_one_are_seen_whole(
    walk: tuple[np.ndarray, list[int | None]], needed: int, since: tuple[int, int] | None
) -> None:
    times, known = walk
    before = None if since is None else (since[0], int(times[0]) - since[1])
    expected = naive.long_deviations(known, times.tolist(), needed, before)
    candidates = Known(times, known)
    candidates.find_deviations(needed, math.nan if before is None else before[1])
    seen: list[int | None] = [
        NOBODY if candidate == NOT_COMPARED and heard else (int(candidate) if heard else None)
        for candidate, heard in zip(candidates.found, candidates.observed, strict=True)
    ]
    assert expected == naive.long_deviations(seen, times.tolist(), needed, before)
    end = max(
        (time for time, node in zip(times, known, strict=True) if node is not None), default=0
    )
    running = [
        [
            deviation
            for deviation in naive.long_deviations(who, times.tolist(), 0, before)
            if deviation[2] == end
        ]
        for who in (known, seen)
    ]
    assert running[0] == running[1]


def test_a_job_without_a_fault_is_looked_at_here_and_there() -> None:
    known: list[int | None] = np.random.default_rng(1).integers(0, 50, 900).tolist()
    candidates = Known(START + np.arange(900), known)
    candidates.find_deviations(240, math.nan)
    assert 900 / 30 > candidates.compared


@given(
    times=st.lists(st.integers(0, 400), min_size=1, max_size=60, unique=True).map(sorted),
    needed=st.integers(0, 60),
    data=st.data(),
)
def test_no_stretch_as_long_as_needed_is_without_an_anchor(
    times: list[int], needed: int, data: st.DataObject
) -> None:
    places = anchors(np.array(times), needed, math.nan)
    assert len(times) - 1 == places[-1]
    first = data.draw(st.integers(0, len(times) - 1))
    last = next((k for k in range(first, len(times)) if times[k] - times[first] >= needed), None)
    assert last is None or any(first <= place <= last for place in places)


@settings(max_examples=60)
@pytest.mark.parametrize("fast", [True, False], ids=["compiled", "numpy"])
@given(data=st.data(), limit=st.integers(0, 12))
def test_one_window_is_as_among_all(fast: bool, data: st.DataObject, limit: int) -> None:
    sample = st.sampled_from([math.nan, math.nan, 0.25, 0.5, 0.75])
    row = st.lists(sample, min_size=20, max_size=20)
    values = np.array(data.draw(st.lists(row, min_size=1, max_size=3)), np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "AVAILABLE", fast)
        found = [causal_window(values, end, 8, limit) for end in range(8, 21)]
    np.testing.assert_array_equal(causal_windows(values, 8, limit), np.stack(found))


def test_only_a_node_that_is_further_rules_another_out() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = rng.normal(0, 1, (9, 3)).astype(np.float32)
        points = Points(values, np.ones(9, dtype=bool))
        furthest = int(np.argmax(naive.distance_sums(values[None], points.present[None])[0]))
        assert not points.another_is_further(furthest)
    values[:] = 0
    assert not Points(values, np.ones(9, dtype=bool)).another_is_further(0)


@settings(max_examples=100)
@given(seed=st.integers(0, 10_000), away=st.floats(0, 12), nodes=st.integers(1, 14))
def test_who_stands_out_is_the_candidate(seed: int, away: float, nodes: int) -> None:
    values = np.random.default_rng(seed).normal(0, 1, (nodes, 8)).astype(np.float32)
    values[0] += away
    points = Points(values, np.ones(nodes, dtype=bool))
    scores = naive.normal_score(naive.distance_sums(values[None], points.present[None])[0].tolist())
    for node in range(nodes):
        if points.stands_out(node, 2.0):
            assert naive.single_candidates(scores, 2.0)[node]
            assert not points.another_is_further(node)


def test_a_node_far_from_many_others_stands_out() -> None:
    values = np.random.default_rng(0).normal(0, 1, (40, 8)).astype(np.float32)
    values[7] += 6
    missing = np.arange(40) != 3
    assert [7] == [node for node in range(40) if Points(values, missing).stands_out(node, 2.0)]


class Exhaustive:
    """Lets a replay compare every window."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        def find_deviations(candidates: Candidates, needed: float, since: float) -> None:
            candidates.compare_all()

        patch.setattr(Candidates, "find_deviations", find_deviations)


def outcome(detection: Detection, state: JobState) -> tuple[object, ...]:
    return (
        sorted(
            (finding.node, finding.metric, finding.since, finding.score)
            for finding in detection.findings
        ),
        [(s.node, s.metric, s.since, s.seconds, s.score, s.quiet) for s in detection.deviations],
        repr(detection.normal_scores),
        repr(detection.continuity),
        sorted(state.standing),
    )


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.sampled_from([1, 7, 15, 60, 150]), min_size=1, max_size=6),
    clear=st.sampled_from([10, 40]),
    restored=st.booleans(),
)
def test_what_is_published_is_that_of_the_walk_through_all_windows(
    seed: int, cuts: list[int], clear: int, restored: bool
) -> None:
    values = rough(7, 300, seed) | {"other": healthy(7, 300, seed)}
    values["other"][2, 100:180] += 0.2
    values["load"][4, 210:] -= 0.3
    names = ("load", "power", "nothing", "other")
    config = several(*names, continuity={"threshold_seconds": 20, "clear_seconds": clear})
    assert metric("load")["name"] == config.detection_metrics()[0].name
    found = []
    for exhaustive in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if exhaustive:
                Exhaustive(patch)
            replay = Replay(config, values)
            if restored:
                since = START - 30.0
                replay.state.standing["node-02"] = a_finding("node-02", since=since)
            steps = []
            for cut in [*cuts, 300]:
                if replay.done + cut <= 300 or cut == 300:
                    detection = replay.step(min(300, replay.done + cut))
                    steps.append(outcome(detection, replay.state))
            found.append(steps)
    assert found[1] == found[0]
