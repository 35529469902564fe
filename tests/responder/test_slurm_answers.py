"""What Slurm's commands may print: older and newer forms, and all that is no answer."""

from __future__ import annotations

import json

import pytest

from peerwatch_responder.action import LaterError, UnknownError
from peerwatch_responder.actions.slurm.command import Commands
from peerwatch_responder.actions.slurm.conclude import conclude
from peerwatch_responder.actions.slurm.job import job_of
from peerwatch_responder.actions.slurm.mark import key_of
from peerwatch_responder.actions.slurm.node import nodes_of
from peerwatch_responder.run.execute import target_of
from response_cases import response

NODE = {"name": "n1", "state": "idle", "state_flags": [], "reason": "", "partitions": ["all"]}
JOB = {
    "job_id": 7,
    "array_job_id": 0,
    "array_task_id": None,
    "het_job_id": 0,
    "het_job_offset": 0,
    "job_state": "RUNNING",
    "nodes": "",
    "excluded_nodes": "",
    "start_time": 100,
    "eligible_time": 90,
    "requeue": True,
    "batch_flag": True,
}
# What Slurm 22.05 prints, with status 0, when its controller does not answer.
GONE = {"meta": {}, "errors": [{"error": "Unspecified error", "errno": -1}], "nodes": []}


def commands(folder, text, status=0, program="sinfo"):
    (folder / "answer").write_text(text)
    path = folder / program
    path.write_text(f"#!/bin/sh\ncat {folder}/answer\nexit {status}\n")
    path.chmod(0o755)
    return Commands(folder, None, 300)


def node(folder, **changes):
    text = json.dumps({"errors": [], "nodes": [{**NODE, **changes}]})
    return nodes_of(commands(folder, text))["n1"]


def job(folder, job_id, *rows):
    found = [{**JOB, **each} for each in rows]
    text = json.dumps({"errors": [], "jobs": found})
    return job_of(commands(folder, text, program="squeue"), job_id)


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        (json.dumps(GONE), 0, "could not ask Slurm"),
        (json.dumps({"nodes": []}), 0, "lists no node"),
        (json.dumps({"nodes": [NODE]})[:40], 0, "prints no JSON"),
        (json.dumps([NODE]), 0, "no JSON object"),
        (json.dumps({"nodes": ["n1"]}), 0, "no list of nodes"),
        (json.dumps({"nodes": [NODE]}), 1, "ends with status 1"),
        ("[" * 100_000, 0, "prints no JSON"),
        ("", 0, "prints no JSON"),
    ],
)
def test_what_is_no_whole_answer_is_unknown(tmp_path, text, status, message):
    with pytest.raises(UnknownError, match=message):
        nodes_of(commands(tmp_path, text, status))


@pytest.mark.parametrize("lacking", ["name", "state", "reason", "partitions"])
def test_a_node_of_which_half_is_said_is_unknown(tmp_path, lacking):
    with pytest.raises(UnknownError, match="Slurm prints"):
        node(tmp_path, **{lacking: None})


def test_nodes_are_read_of_newer_versions_whose_sinfo_groups_them(tmp_path):
    group = {"node": {"state": ["IDLE"]}, "nodes": {"nodes": ["n1", "n2"]}, "reason": {}}
    commands(tmp_path, json.dumps({"errors": [], "warnings": [], "sinfo": [group]}))
    listed = [
        {**NODE, "state": ["IDLE", "DRAIN"], "reason": "fan", "state_flags": None},
        {**NODE, "name": "n2", "state": ["MIXED"]},
    ]
    (tmp_path / "nodes").write_text(json.dumps({"nodes": listed, "errors": []}))
    path = tmp_path / "scontrol"
    path.write_text(f'#!/bin/sh\n[ "$*" = "--all show nodes --json" ] && cat {tmp_path}/nodes\n')
    path.chmod(0o755)
    found = nodes_of(Commands(tmp_path, None, 300))
    owners = {name: each.owner(reserved=False) for name, each in found.items()}
    assert owners == {"n1": "other", "n2": "nobody"}


def test_without_slurm_it_is_said_where_it_was_looked_for(tmp_path):
    with pytest.raises(UnknownError, match=r"sinfo: No such file.*cluster\.folder"):
        nodes_of(Commands(tmp_path, None, 300))
    assert Commands(tmp_path, None, 300).change("update").result == "unsent"


@pytest.mark.parametrize(
    ("state", "flags", "owner"),
    [
        ("idle", [], "nobody"),
        ("mixed", ["COMPLETING"], "nobody"),
        ("idle", ["NOT_RESPONDING"], "nobody"),
        (["ALLOCATED"], None, "nobody"),
        (["IDLE", "DRAIN"], None, "other"),
        ("idle", ["MAINTENANCE", "RESERVED"], "other"),
        ("idle", ["RESERVED"], "other"),
        ("down", [], "other"),
        ("idle", ["REBOOT_REQUESTED"], "other"),
        ("idle", ["POWERED_DOWN", "CLOUD"], "other"),
        ("unknown", [], "unknown"),
        ("idle", ["A_FLAG_TO_COME"], "other"),
    ],
)
def test_who_has_taken_a_node_out(tmp_path, state, flags, owner):
    assert node(tmp_path, state=state, state_flags=flags).owner(reserved=False) == owner


def test_our_mark_is_a_whole_reason_and_has_a_key():
    reason = target_of(response(key="0123456789abcdef")).reason
    assert key_of(reason) == "0123456789abcdef"
    assert key_of(f"{reason}; ticket 12") is None
    assert key_of(f"see {reason}") is None
    long = response(key="0123456789abcdef")
    long.labels.update(alertname="A" * 500)
    reason = target_of(long).reason
    assert (len(reason) <= 200, key_of(reason)) == (True, long.key)


def test_a_reason_of_ours_on_a_node_in_use_is_no_drain(tmp_path):
    reason = target_of(response(key="0123456789abcdef")).reason
    assert node(tmp_path, reason=reason).owner(reserved=False) == "nobody"
    drained = node(tmp_path, reason=reason, state_flags=["DRAIN"])
    assert (drained.owner(reserved=False), drained.shown) == ("ours", "IDLE+DRAIN")


def test_a_job_is_found_by_the_id_that_its_processes_have(tmp_path):
    tasks = [
        {"job_id": 9, "array_job_id": 7, "array_task_id": 1},
        {"job_id": 7, "array_job_id": 7, "array_task_id": 2},
    ]
    assert job(tmp_path, "7", *tasks).id == "7_2"
    assert job(tmp_path, "9", *tasks).id == "7_1"
    assert job(tmp_path, "7_1", *tasks).id == "7_1"
    assert job(tmp_path, "8", *tasks) is None
    # Tasks that have not begun have the number of the whole array.
    rest = {"job_id": 7, "array_job_id": 7, "array_task_id": None, "job_state": "PENDING"}
    assert job(tmp_path, "7", rest) is None
    parts = [
        {"job_id": 4, "het_job_id": 3, "het_job_offset": 1},
        {"job_id": 3, "het_job_id": 3, "job_state": "PENDING"},
    ]
    found = job(tmp_path, "3", *parts)
    assert (found.id, found.runs, found.waits) == ("3", True, False)
    for name in ("", "-7", "7;8", "0", "7_", "n1", "7 8"):
        assert job(tmp_path, name, {}) is None


def test_newer_forms_of_numbers_and_states_are_read(tmp_path):
    number = {"set": True, "infinite": False, "number": 123}
    found = job(tmp_path, "7", {"job_state": ["PENDING"], "start_time": number})
    assert (found.waits, found.began) == (True, 123)
    unset = {"set": False, "infinite": False, "number": 0}
    assert job(tmp_path, "7", {"start_time": unset}).began == 0


def test_the_rest_of_an_array_is_no_task_in_newer_forms(tmp_path):
    array = {"array_job_id": {"set": True, "infinite": False, "number": 7}}
    rest = {
        **array,
        "array_task_id": {"set": False, "infinite": False, "number": 0},
        "job_state": ["PENDING"],
    }
    first = {
        **array,
        "job_id": 8,
        "array_task_id": {"set": True, "infinite": False, "number": 0},
        "job_state": ["RUNNING"],
    }
    assert job(tmp_path, "7", rest) is None
    assert job(tmp_path, "7_0", rest) is None
    found = job(tmp_path, "7_0", rest, first)
    assert (found.id, found.states) == ("7_0", {"RUNNING"})


@pytest.mark.parametrize("row", [{"job_state": None}, {"start_time": "soon"}, {"nodes": None}])
def test_a_job_of_which_half_is_said_is_unknown(tmp_path, row):
    with pytest.raises(UnknownError, match="squeue prints a job"):
        job(tmp_path, "7", row)


def test_what_was_taken_and_cannot_be_looked_at_is_tried_again(tmp_path):
    reply = commands(tmp_path, "", program="scontrol").change("requeue", "7")
    assert reply.result == "taken"

    def inspect():
        raise UnknownError("no answer")

    with pytest.raises(LaterError, match="no answer"):
        conclude(reply, inspect, harmless=False)
