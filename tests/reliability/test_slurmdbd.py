"""What a real slurmdbd printed of jobs that ended in every way (``slurmdbd/record.py``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerwatch_reliability.accounting.attempts import chains_of
from peerwatch_reliability.accounting.goodput import preemptors
from peerwatch_reliability.accounting.time_use import (
    UNMEASURED,
    assumed,
    stated_checkpoint,
    time_use,
)
from peerwatch_reliability.sources.slurm.node_events import read_events
from peerwatch_reliability.sources.slurm.sacct import read_sacct

FOLDER = Path(__file__).parent / "slurmdbd"
NOW = 1_795_547_800.0


def lines(name):
    return (FOLDER / name).read_text().removesuffix("\n").split("\n")


@pytest.fixture(scope="module")
def rows():
    """Return all rows of sacct."""
    found = read_sacct(lines("sacct.txt"))
    assert found.unreadable == 0
    return found.rows


@pytest.fixture(scope="module")
def chains(rows):
    """Return the chains of attempts by the name of their job."""
    found = {}
    for chain in chains_of(rows, NOW):
        found.setdefault(chain.first.row.name, []).append(chain)
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("too_long", [("timeout", "first", ("n1",))]),
        ("lost_its_node", [("node_fail", "first", ("n3",)), ("completed", "requeued", ("n2",))]),
        (
            "requeued",
            [("requeued", "first", ("n2", "n4")), ("completed", "requeued", ("n2", "n4"))],
        ),
        ("odd|name\n7|x\nend", [("completed", "first", ("n2",))]),
        ("cancelled", [("cancelled", "first", ("n2",))]),
        ("suspended", [("completed", "first", ("n2",))]),
        ("fails", [("failed", "first", ("n4",)), ("failed", "resubmitted", ("n4",))]),
        ("preempted", [("preempted", "first", ("n4",)), ("completed", "requeued", ("n4",))]),
        ("urgent", [("completed", "first", ("n4",))]),
        ("still_runs", [("running", "first", ("n4",))]),
    ],
)
def test_attempts_of_a_job(chains, name, expected):
    (chain,) = chains[name]
    found = [(each.row.state, each.link, each.row.nodes) for each in chain.attempts]
    assert found == expected


def test_tasks_of_an_array_and_numbers_that_are_given_again_are_jobs_of_their_own(chains):
    assert {each.first.row.shown_id for each in chains["array"]} == {"104_0", "104_1"}
    again = chains["number_given_again"]
    assert [len(each.attempts) for each in again] == [1] * 8
    assert {"100", "102", "103"} <= {each.first.row.job_id for each in again}
    assert len({each.first.key for of_name in chains.values() for each in of_name}) == sum(
        len(of_name) for of_name in chains.values()
    )


def test_times_add_up_to_the_wall(chains):
    for of_name in chains.values():
        for chain in of_name:
            total = 0.0
            for attempt in chain.attempts:
                use = time_use(attempt, UNMEASURED, False, assumed(3600.0), assumed(300.0))
                assert use.queue >= 0
                productive, lost = use.productive.expected, use.unproductive.expected
                total += use.queue + productive + lost
            assert total == pytest.approx(chain.wall_seconds, abs=1.0)


def test_what_else_is_in_the_rows(rows, chains):
    assert {each.gpus for each in rows} == {8, 16}
    (twice,) = chains["requeued"]
    assert twice.first.row.excluded == ("n1", "n3")
    (paused,) = chains["suspended"]
    assert (paused.first.suspended_seconds, paused.first.run_seconds) == (5, 3)
    (lost,) = chains["lost_its_node"]
    assert stated_checkpoint(lost.first.row.comment).span.expected == 20 * 60
    (odd,) = chains["odd|name\n7|x\nend"]
    assert odd.first.row.comment == "a|b\nc ckpt=30"


def test_who_was_preempted_for_whom(chains):
    every = [chain for of_name in chains.values() for chain in of_name]
    ((aside, by),) = preemptors(every).values()
    assert (aside.row.name, by.row.name) == ("preempted", "urgent")


def test_nodes_out_of_service():
    drained, lost = read_events(lines("events.txt"))
    assert (drained.node, drained.end - drained.start) == ("n1", 5)
    assert drained.reason == "fan | slow\n2 of 3"
    assert (lost.node, lost.end, lost.reason) == ("n3", None, "Not responding")
