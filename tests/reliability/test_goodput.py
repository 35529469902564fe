from __future__ import annotations

import pytest

from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.accounting.attribution import attribution_of
from peerwatch_reliability.accounting.crash_loops import crash_loops
from peerwatch_reliability.accounting.goodput import losses_of
from peerwatch_reliability.accounting.incidents import incidents_of
from peerwatch_reliability.accounting.time_use import UNMEASURED, assumed, time_use
from reliability_rows import T0, row

NOW = T0 + 1e6


def books(rows):
    """Return chains, why each attempt ended, and what its time went into."""
    chains = chains_of(rows, NOW)
    attempts = [each for chain in chains for each in chain.attempts]
    why = {each.key: attribution_of(each, ()) for each in attempts}
    uses = {
        each.key: time_use(
            each,
            UNMEASURED,
            why[each.key].is_failure_of_infrastructure,
            assumed(3600),
            assumed(300),
        )
        for each in attempts
    }
    return chains, why, uses


# A job of 16 GPUs loses a node after an hour and starts again on the nodes of two others, one of
# which pushes a third aside when it starts again.
CASCADE = [
    row("1", 1, "node_fail", 0, 0, 3600, nodes=("n1", "n2"), gpus=16),
    row("1", 2, "completed", 3600, 3700, 9000, nodes=("n3", "n4"), gpus=16),
    row("2", 3, "preempted", 0, 0, 3690, nodes=("n3",), name="b"),
    row("3", 4, "preempted", 0, 3000, 3690, nodes=("n4",), name="c"),
    row("2", 5, "completed", 3690, 5000, 9000, nodes=("n5",), name="b"),
    row("4", 6, "preempted", 0, 0, 4990, nodes=("n5",), name="d"),
    # Pushed aside by a job that is new: nobody's failure.
    row("5", 7, "preempted", 0, 0, 6000, nodes=("n6",), name="e"),
    row("6", 8, "completed", 5900, 6010, 9000, nodes=("n6",), name="f"),
]


def test_first_and_second_order():
    chains, why, _ = books(CASCADE)
    found = {loss.key: loss for loss in losses_of(chains, why)}
    assert found["1", 1].gpu_seconds == 1800 * 16
    assert {key: (loss.order, loss.gpu_seconds) for key, loss in found.items()} == {
        ("1", 1): (1, 1800 * 16),
        ("2", 3): (2, 1800 * 8),
        # It had run for less than half an interval.
        ("3", 4): (2, 690 * 8),
        ("4", 6): (2, 1800 * 8),
    }
    assert {loss.root for loss in found.values()} == {("1", 1)}
    assert {loss.cause for loss in found.values()} == {"node_fail"}


def test_a_user_failure_costs_nothing():
    chains, why, _ = books([row("1", 1, "failed", 0, 0, 3600)])
    assert losses_of(chains, why) == []


def test_crash_loop_is_named():
    """As in the published example: a large job that is requeued again and again."""
    rows = [
        row(
            "9", number, "node_fail", 700 * number, 700 * number + 100, 700 * number + 700,
            nodes=(f"n{number}", "n99"), gpus=1024, name="big", user="bea",
        )
        for number in range(35)
    ]  # fmt: skip
    rows += [
        row("8", 100 + n, "preempted", 0, 0, 700 * n + 95, nodes=("n99",), name=f"s{n}")
        for n in range(1, 35)
    ]  # fmt: skip
    chains, why, uses = books(rows)
    (loop,) = crash_loops(chains, uses, losses_of(chains, why))
    assert (loop.job_id, loop.name, loop.user, loop.attempts) == ("9", "big", "bea", 35)
    assert loop.gpu_seconds == 35 * 600 * 1024
    assert loop.preempted == 34
    assert loop.nodes == ("n99",)
    assert not loop.is_open


@pytest.mark.parametrize("runs", [[600, 600], [600, 600, 90_000, 600], [90_000, 90_000, 90_000]])
def test_no_crash_loop(runs):
    start, rows = 0, []
    for number, run in enumerate(runs):
        rows.append(row("9", number, "node_fail", start, start, start + run))
        start += run
    chains, why, uses = books(rows)
    assert crash_loops(chains, uses, losses_of(chains, why)) == []


def test_incident():
    rows = [
        row("1", 1, "node_fail", 0, 0, 36_000, comment="ckpt=30"),
        row("1", 2, "running", 36_000, 36_400, None),
        row("2", 3, "node_fail", 0, 0, 90_000, nodes=("n2",), name="b"),
    ]
    chains, why, uses = books(rows)
    stalls = {"1": [(T0 + 35_000, T0 + 36_010)], "2": [(T0 + 10, T0 + 500)]}
    first, second = incidents_of(chains, why, uses, stalls)
    assert (first.lost_seconds, first.recovery_seconds, first.idle_seconds) == (900, 700, 1000)
    assert (second.lost_seconds, second.recovery_seconds, second.idle_seconds) == (1800, None, None)
