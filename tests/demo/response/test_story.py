"""The table of what was done, and whether it was right."""

from __future__ import annotations

import pytest

from peerwatch_demo.response.run import last_start
from peerwatch_demo.response.story import Diagnosis, Restart, moments, table, verdict
from peerwatch_demo.stack.report import Event

EVENTS = [
    Event("candidate", 90.0, "node-2", "cpu_usage"),
    Event("fault", 100.0, "node-5"),
    Event("candidate", 110.0, "node-5", "tcp_retransmissions"),
    Event("finding", 125.0, "node-5", "tcp_retransmissions"),
    Event("alert", 127.0, "node-5", "tcp_retransmissions"),
    Event("page", 150.0, "node-5", ""),
]
RESPONSE = {
    "node": "node-5",
    "status": "done",
    "text": "All steps are done.",
    "actions": ["slurm_drain", "slurm_requeue"],
    "planned_at": 130.0,
    "steps": [
        {"action": "slurm_drain", "outcome": "done", "at": 131.0, "text": "node-5 is DRAIN"},
        {"action": "slurm_requeue", "outcome": "begun", "at": 132.0, "text": "job 1 is RUNNING"},
    ],
}
RESTART = Restart(170.0, 75, 90, ("node-0", "node-8"))
DIAGNOSES = [Diagnosis(95.0, "node-5", "early"), Diagnosis(128.0, "node-5", "bad_link (network)")]


def test_the_chain_is_in_order_of_time_with_its_seconds():
    chain = moments(EVENTS, DIAGNOSES, RESPONSE, RESTART)
    assert [each.what for each in chain] == [
        *("fault injected", "candidate", "finding", "alert fires", "diagnosis", "decision"),
        *("node drained", "page", "training goes on"),
    ]
    lines = table(chain).splitlines()
    assert lines[1].split() == ["fault", "injected", "0.0", "s", "node-5"]
    assert lines[6].split() == [
        "decision",
        "30.0",
        "s",
        "2.0",
        "s",
        "slurm_drain,",
        "slurm_requeue",
    ]
    assert lines[-1].endswith("70.0 s                20.0 s  from step 75; 15 steps are done again")


def test_before_anything_has_happened_there_is_no_table():
    assert table(moments([], DIAGNOSES, None, None)) == "nothing happened"


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, ""),
        ({"responses": []}, "the responder did nothing"),
        ({"responses": [{**RESPONSE, "node": "node-1"}]}, "the responder took out node-1"),
        ({"responses": [{**RESPONSE, "status": "stuck"}]}, "the response ended as stuck"),
        ({"out": ""}, "node-5 is not out"),
        ({"restart": None}, "the job was not seen at work again"),
        ({"restart": Restart(1.0, 75, 90, ("node-5",))}, "the job runs on node-5 again"),
        ({"restart": Restart(1.0, 0, 90, ("node-1",))}, "the job began anew"),
        ({"paged": []}, "0 pages came instead of one"),
        ({"paged": [("node-5",), ("node-5",)]}, "2 pages came instead of one"),
        ({"paged": [("node-1",)]}, "pages named"),
    ],
)
def test_right_is_only_the_whole_loop(changes, wrong):
    told = {"responses": [RESPONSE], "restart": RESTART, "out": "drained", "paged": [("node-5",)]}
    found = verdict("node-5", **{**told, **changes})
    assert found.right is (wrong == "")
    assert wrong in found.sentence


def test_steps_before_a_restart_do_not_count(tmp_path):
    log = tmp_path / "rank.log"
    assert last_start(log) == (0, 0)
    log.write_text("resumes at step 0\nstep=95 loss=1.0\nstep=100 loss=1.0\n")
    assert last_start(log) == (0, 100)
    log.write_text(log.read_text() + "resumes at step 75\n")
    assert last_start(log) == (75, 75)
    log.write_text(log.read_text() + "step=80 loss=0.9\n")
    assert last_start(log) == (75, 80)
