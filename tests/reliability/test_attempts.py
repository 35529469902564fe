from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerwatch_reliability.accounting.attempts import chains_of
from reliability_rows import T0, row

NOW = T0 + 100_000.0


def links(rows):
    return [
        [(each.row.order, each.link) for each in chain.attempts] for chain in chains_of(rows, NOW)
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # As a real Slurm wrote it: a requeue, then the loss of a node.
        (
            [
                row("1", 1, "requeued", 0, 1, 27, nodes=("gpu1", "gpu2")),
                row("1", 10, "node_fail", 27, 30, 80, nodes=("gpu1", "gpu3")),
                row("1", 12, "completed", 80, 90, 200),
            ],
            [[(1, "first"), (10, "requeued"), (12, "requeued")]],
        ),
        # The number was given to another job: the submission does not follow an end.
        (
            [
                row("7", 1, "node_fail", 0, 1, 50),
                row("7", 9, submit=90_000, start=90_001, end=90_100),
            ],
            [[(1, "first")], [(9, "first")]],
        ),
        # The same number after a job that succeeded is another job, whatever the times.
        (
            [row("7", 1, "completed", 0, 1, 50), row("7", 2, submit=50, start=51, end=60)],
            [[(1, "first")], [(2, "first")]],
        ),
        # Its owner submits it again an hour after it failed.
        (
            [row("1", 1, "failed", 0, 1, 50), row("2", 2, submit=3650, start=3660, end=9000)],
            [[(1, "first"), (2, "resubmitted")]],
        ),
        # More than a day later it is other work.
        (
            [row("1", 1, "failed", 0, 1, 50), row("2", 2, submit=86_500, start=86_600, end=90_000)],
            [[(1, "first")], [(2, "first")]],
        ),
        # Another folder is other work.
        (
            [
                row("1", 1, "failed", 0, 1, 50),
                row("2", 2, submit=60, start=61, end=90, work_dir="/home/ann/b"),
            ],
            [[(1, "first")], [(2, "first")]],
        ),
        # The tasks of an array are jobs of their own; a second array retries each task.
        (
            [
                row("5", 1, "failed", 0, 1, 50, shown_id="5_0"),
                row("6", 2, "failed", 0, 1, 60, shown_id="5_1"),
                row("8", 3, submit=100, start=101, end=200, shown_id="8_0"),
                row("9", 4, submit=100, start=101, end=200, shown_id="8_1"),
            ],
            [[(1, "first"), (3, "resubmitted")], [(2, "first"), (4, "resubmitted")]],
        ),
        # Preempted, and started again by the scheduler.
        (
            [
                row("1", 1, "preempted", 0, 1, 7300),
                row("1", 2, submit=7300, start=9000, end=20_000),
            ],
            [[(1, "first"), (2, "requeued")]],
        ),
        # Cancelled by its owner: what follows is other work.
        (
            [row("1", 1, "cancelled", 0, 1, 50), row("2", 2, submit=60, start=61, end=90)],
            [[(1, "first")], [(2, "first")]],
        ),
    ],
)
def test_which_runs_belong_together(rows, expected):
    assert links(rows) == expected
    assert links(rows[::-1]) == expected


@pytest.mark.parametrize(
    ("rows", "queue", "run", "gap"),
    [
        ([row("1", 1, submit=0, start=60, end=660)], [60], [600], [0]),
        # It could not start before it was eligible, such as after another job: that is no wait.
        ([row("1", 1, submit=0, eligible=40, start=60, end=660)], [20], [600], [0]),
        # Suspended time is neither.
        ([row("1", 1, submit=0, start=0, end=600, suspended_seconds=100)], [0], [500], [0]),
        # Between failure and resubmission it waits for its owner.
        (
            [
                row("1", 1, "failed", submit=0, start=10, end=110),
                row("2", 2, submit=500, start=510, end=700),
            ],
            [10, 400],
            [100, 190],
            [0, 390],
        ),
        # After a requeue it waits from the end on, also while it may not start.
        (
            [
                row("1", 1, "requeued", submit=0, start=10, end=110),
                row("1", 2, submit=110, eligible=231, start=240, end=300),
            ],
            [10, 130],
            [100, 60],
            [0, 0],
        ),
        # Never started.
        ([row("1", 1, "cancelled", submit=0, start=None, end=50)], [50], [0], [0]),
        # Still runs: now is its end.
        ([row("1", 1, "running", submit=0, start=10, end=None)], [10], [99_990], [0]),
    ],
)
def test_wait_and_run(rows, queue, run, gap):
    (chain,) = chains_of(rows, NOW)
    assert [each.queue_seconds for each in chain.attempts] == queue
    assert [each.run_seconds for each in chain.attempts] == run
    assert [each.gap_seconds for each in chain.attempts] == gap


def test_clocks_that_differ_are_said():
    (chain,) = chains_of([row("1", 1, submit=100, start=40, end=700)], NOW)
    assert chain.first.queue_seconds == 0
    assert chain.first.run_seconds == 660
    assert chain.first.notes == ("starts 60 s before it waits: clocks differ",)
    (chain,) = chains_of([row("1", 1, submit=0, start=100, end=50)], NOW)
    assert chain.first.run_seconds == 0
    assert chain.first.notes == ("ends 50 s before it starts: clocks differ",)


def test_a_time_after_now_is_now():
    (chain,) = chains_of([row("1", 1, submit=0, start=100, end=10 * 366 * 86_400)], NOW)
    assert chain.first.end == NOW
    assert chain.first.run_seconds == 99_900
    assert "after now: clocks differ" in chain.first.notes[0]
    (chain,) = chains_of([row("1", 1, "running", submit=0, start=500_000, end=None)], NOW)
    assert (chain.first.queue_seconds, chain.first.run_seconds) == (100_000, 0)
    # The scheduler was asked a little later.
    (chain,) = chains_of([row("1", 1, submit=0, start=100, end=100_030)], NOW)
    assert (chain.first.run_seconds, chain.first.notes) == (99_930, ())


def test_nobody_waits_for_years():
    (chain,) = chains_of([row("1", 1, submit=1 - T0, start=100, end=300)], NOW)
    assert (chain.first.queue_seconds, chain.first.run_seconds) == (0, 200)
    assert chain.first.notes == ("waited for more than a year: clocks differ",)


def test_what_was_cancelled_before_it_might_start_never_waited():
    rows = [row("1", 1, "cancelled", submit=0, eligible=9000, start=None, end=50)]
    (chain,) = chains_of(rows, NOW)
    assert (chain.first.queue_seconds, chain.first.notes) == (0, ())


_TIMES = st.integers(min_value=-500, max_value=150_000)
_STATES = st.sampled_from(["completed", "failed", "requeued", "node_fail", "preempted", "running"])


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            lambda job, order, state, submit, wait, run, suspended: row(
                str(job), order, state, submit=submit, start=submit + wait,
                end=None if state == "running" else submit + wait + run,
                suspended_seconds=float(suspended),
            ),
            st.integers(1, 3), st.integers(1, 20), _STATES, _TIMES,
            st.integers(-100, 5000), st.integers(-100, 5000), st.integers(0, 6000),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_wait_and_run_are_all_of_the_time(rows):
    chains = chains_of(rows, NOW)
    assert sum(len(chain.attempts) for chain in chains) == len(rows)
    for chain in chains:
        for attempt in chain.attempts:
            assert attempt.queue_seconds >= 0
            assert attempt.run_seconds >= 0
            whole = attempt.queue_seconds + attempt.run_seconds
            assert whole == pytest.approx(attempt.wall_seconds, abs=1)
        parts = sum(each.queue_seconds + each.run_seconds for each in chain.attempts)
        assert parts == pytest.approx(chain.wall_seconds, abs=1)
