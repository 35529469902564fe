from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.simulated_process import Cost, Process
from peerwatch_detector.service.schedule import Schedule, fraction

CYCLE = 15.0
USUAL = {f"job-{number:03d}": Cost() for number in range(200)}

costs = st.builds(
    Cost,
    read=st.floats(0.001, 20),
    detect=st.floats(0.001, 3),
    nodes=st.integers(1, 32),
    fails=st.booleans(),
)
job_sets = st.dictionaries(st.text(max_size=8), costs, min_size=1, max_size=12)


def test_every_job_has_one_turn_a_cycle_at_its_own_time() -> None:
    process = Process(USUAL)
    process.run(CYCLE)
    process.turns.clear()
    process.run(10 * CYCLE)

    assert {10} == set(Counter(turn.job_id for turn in process.turns).values())
    assert max(turn.late for turn in process.turns) < 1
    for job_id in USUAL:
        began = [turn.began for turn in process.turns if turn.job_id == job_id]
        phase = fraction(job_id) * CYCLE
        assert all((time - phase + 1e-6) % CYCLE < 1 for time in began)


def test_turns_are_spread_over_the_cycle() -> None:
    process = Process(USUAL)
    process.run(CYCLE)
    process.turns.clear()
    process.run(CYCLE)

    by_second = Counter(int(turn.began) for turn in process.turns)
    # 200 jobs in 15 seconds: 13 in each, give or take chance.
    assert 15 == len(by_second)
    assert max(by_second.values()) <= 26


def test_a_job_that_hangs_one_that_fails_and_one_100_times_dearer_delay_nobody_by_a_cycle() -> None:
    bad = {
        "hangs": Cost(read=10, fails=True),
        "raises": Cost(detect=0, fails=True),
        "dear": Cost(detect=2),
    }
    process = Process(USUAL | bad)
    process.run(20 * CYCLE)

    assert max(turn.late for turn in process.turns if turn.job_id in USUAL) < CYCLE
    later = [turn for turn in process.turns if turn.began > 1000 + 2 * CYCLE]
    # Two seconds at the evaluate are what the dear job takes; nobody waits for more than that.
    assert max(turn.late for turn in later if turn.job_id in USUAL) < 3
    assert {20, 21} >= {len(process.late(job_id)) for job_id in USUAL}
    assert process.schedule.backlog(process.now).skipped == 0


@pytest.mark.parametrize("hanging", [4, 40])
def test_jobs_that_hang_hold_at_most_half_of_the_threads(hanging: int) -> None:
    slow = {f"hangs-{number}": Cost(read=10, fails=True) for number in range(hanging)}
    process = Process(USUAL, threads=4)
    process.run(3 * CYCLE)
    process.turns.clear()
    process.follow(USUAL | slow)
    process.run(20 * CYCLE)

    turns = [turn for turn in process.turns if turn.job_id in slow]
    assert turns
    for turn in turns:
        at_once = sum(other.began <= turn.began < other.began + 10 for other in turns)
        assert at_once <= 2
    assert max(turn.late for turn in process.turns if turn.job_id in USUAL) < 1


def test_when_the_process_cannot_keep_up_all_cycles_stretch_alike() -> None:
    jobs = {
        f"job-{size}-{n}": Cost(0.01, size / 100, size) for size in (16, 256) for n in range(20)
    }
    process = Process(jobs)
    process.run(100 * CYCLE)

    # 54 s of evaluating in a cycle of 15 s: each has its turn every 3.6 cycles.
    turns = [len(process.late(job_id)) for job_id in jobs]
    assert 100 * CYCLE / sum(cost.detect for cost in jobs.values()) == pytest.approx(
        min(turns), abs=2
    )
    assert max(turns) - min(turns) <= 2
    backlog = process.schedule.backlog(process.now)
    assert backlog.skipped > 0
    assert backlog.waiting > 30
    assert min(backlog.lateness.values()) > CYCLE


def test_a_job_dearer_than_its_size_is_evaluated_more_rarely_instead_of_delaying_the_others() -> (
    None
):
    jobs = {f"job-{number}": Cost(detect=1) for number in range(40)} | {"dear": Cost(detect=20)}
    process = Process(jobs)
    process.run(100 * CYCLE)
    process.turns.clear()
    process.run(400 * CYCLE)

    turns = {job_id: len(process.late(job_id)) for job_id in jobs}
    dear = turns.pop("dear")
    # By time, not by turns: one turn of the dear job for 20 of any other.
    assert dear == pytest.approx(min(turns.values()) / 20, abs=1.5)
    assert max(turns.values()) - min(turns.values()) <= 2
    # 41 shares of the time; turn by turn the dear job would have a third of it.
    assert min(turns.values()) > 400 * CYCLE / 41 * 0.95


@settings(max_examples=40, deadline=None)
@given(jobs=job_sets, threads=st.integers(1, 5))
def test_no_job_starves(jobs: dict[str, Cost], threads: int) -> None:
    process = Process(jobs, threads=threads)
    process.run(10 * CYCLE)
    process.turns.clear()

    # Longest for the smallest job: until all others have cost as much for their size as its own
    # turn did, after the longest back-off.
    dearest = max((cost.read + cost.detect) / cost.nodes for cost in jobs.values())
    longest = 6 * CYCLE + 2 * (dearest + 25) * sum(cost.nodes for cost in jobs.values())
    waited = 0.0
    while jobs.keys() != {turn.job_id for turn in process.turns}:
        process.run(CYCLE)
        waited += CYCLE
        assert waited < longest


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.dictionaries(
        st.text(max_size=8),
        st.builds(Cost, read=st.just(0.0), detect=st.floats(2, 8), nodes=st.integers(1, 20)),
        min_size=8,
        max_size=12,
    )
)
def test_while_all_are_behind_each_has_its_share_but_for_one_turn(jobs: dict[str, Cost]) -> None:
    process = Process(jobs, threads=1)
    process.run(600)
    process.turns.clear()
    process.run(3000)

    # The bound of start-time fair queueing, with two turns of each for what is read ahead.
    served = {job_id: process.seconds_used(job_id) / jobs[job_id].nodes for job_id in jobs}
    turn = {job_id: cost.detect / cost.nodes for job_id, cost in jobs.items()}
    # A job that at times has all it needs, one turn a cycle, is not behind.
    behind = [job_id for job_id in jobs if min(process.late(job_id)) > CYCLE]
    for job in behind:
        for other in behind:
            assert served[job] - served[other] <= 2 * (turn[job] + turn[other]) + 1e-6


@settings(max_examples=30, deadline=None)
@given(jobs=job_sets, threads=st.integers(1, 5))
def test_the_same_jobs_have_the_same_turns_in_whatever_order_they_are_named(
    jobs: dict[str, Cost], threads: int
) -> None:
    forward = Process(jobs, threads=threads)
    backward = Process(dict(reversed(jobs.items())), threads=threads)
    for process in (forward, backward):
        process.run(20 * CYCLE)

    assert forward.turns == backward.turns


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.tuples(job_sets, st.floats(0.1, 60)), max_size=6))
def test_jobs_come_and_go_while_they_are_worked_on(
    steps: list[tuple[dict[str, Cost], float]],
) -> None:
    process = Process({"first": Cost()})
    for jobs, seconds in steps:
        process.costs = process.costs | jobs
        process.schedule.follow({name: cost.nodes for name, cost in jobs.items()}, process.now)
        process.run(seconds)

        assert jobs.keys() == process.schedule.backlog(process.now).lateness.keys()


def test_a_new_job_is_due_at_once_and_then_at_its_time() -> None:
    process = Process({})
    process.run(100)
    process.follow({"new": Cost()})
    process.run(10 * CYCLE)

    began = [turn.began for turn in process.turns]
    assert 1100 == began[0]
    assert CYCLE / 2 <= began[1] - began[0] <= CYCLE * 1.5
    steps = [later - earlier for earlier, later in pairwise(began[1:])]
    assert steps == pytest.approx([CYCLE] * len(steps))


def test_a_job_that_fails_again_and_again_is_tried_ever_more_rarely_up_to_a_limit() -> None:
    process = Process({"job": Cost(fails=True)})
    process.run(40 * CYCLE)
    began = [turn.began for turn in process.turns]
    pauses = [later - earlier for earlier, later in pairwise(began)]

    # The first failure costs nothing: the next cycle tries again.
    assert pauses[0] <= 1.5 * CYCLE
    assert pauses[1] >= 1.5 * CYCLE
    assert all(3 * CYCLE <= pause <= 5 * CYCLE + 1 for pause in pauses[2:])
    # Spread out, so that jobs that failed together do not come back together.
    assert len({round(pause, 3) for pause in pauses[2:]}) > 5


def test_a_job_that_works_again_is_back_in_its_cycle() -> None:
    process = Process({"job": Cost(fails=True)})
    process.run(20 * CYCLE)
    process.costs = {"job": Cost()}
    process.run(6 * CYCLE)
    process.turns.clear()
    process.run(4 * CYCLE)

    assert 4 == len(process.turns)


def test_what_failed_is_tried_within_a_cycle_once_the_reason_is_gone() -> None:
    process = Process({f"job-{number}": Cost(fails=True) for number in range(20)})
    process.run(20 * CYCLE)
    process.turns.clear()
    process.schedule.retry(process.now)
    process.run(CYCLE)

    assert process.costs.keys() == {turn.job_id for turn in process.turns}


def test_lateness_grows_while_a_job_is_overdue() -> None:
    schedule = Schedule(CYCLE, threads=1)
    schedule.follow({"job": 4}, now=0)
    assert {"job": 0.0} == schedule.backlog(0).lateness
    assert "job" == schedule.begin(0)
    assert {"job": 40.0} == schedule.backlog(40).lateness
    schedule.has_read("job", 40)
    schedule.end("job", 1, now=41)

    assert {"job": 41.0} == schedule.backlog(41).lateness


def test_a_due_time_missed_by_a_cycle_is_made_up_for_and_older_ones_are_skipped() -> None:
    schedule = Schedule(CYCLE, threads=1)
    schedule.follow({"job": 4}, now=0)
    schedule.begin(0)
    schedule.has_read("job", 100)
    schedule.end("job", 0, now=100)

    assert "job" == schedule.begin(100)
    # Seven times of its grid have passed, or six; the newest is the one that is late.
    assert schedule.backlog(100).skipped in {5, 6}


def test_no_more_jobs_are_read_ahead_than_there_are_threads() -> None:
    schedule = Schedule(CYCLE, threads=2)
    schedule.follow({"a": 4, "b": 4, "c": 4}, now=0)
    for _ in range(2):
        schedule.has_read(schedule.begin(0) or "", 1)

    assert None is schedule.begin(1)
    assert 1 == schedule.backlog(1).waiting
    schedule.end("a", 1, now=2)
    assert "c" == schedule.begin(2)


@given(text=st.text())
def test_a_fraction_lies_from_0_to_1(text: str) -> None:
    assert 0 <= fraction(text) < 1


def test_choosing_costs_in_proportion_to_the_jobs() -> None:
    few, many = (calls_to_begin(jobs) for jobs in (50, 500))
    assert many <= 12 * few


def calls_to_begin(jobs: int) -> int:
    """Return how many functions run, and generators go on, to choose while slow jobs are read."""
    schedule = Schedule(15.0, 4)
    schedule.follow({f"job-{number}": 8 for number in range(jobs)}, 0.0)
    # None was read before, so all count as slow, and two of them hold half of the threads.
    assert [True, True] == [schedule.begin(0.0) is not None for _ in range(2)]
    calls = []
    sys.setprofile(lambda _frame, event, _argument: calls.append(event))
    try:
        assert schedule.begin(0.0) is None
    finally:
        sys.setprofile(None)
    return calls.count("call")
