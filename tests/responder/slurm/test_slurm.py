"""Actions on a real slurmctld: each effect once, and nothing of anybody else's is touched."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest

from peerwatch_responder.action import (
    ActionOptions,
    AmbiguousError,
    LaterError,
    RejectedError,
    Target,
)
from peerwatch_responder.actions.slurm.cluster import SlurmCluster, SlurmOptions
from peerwatch_responder.actions.slurm.command import Commands
from peerwatch_responder.actions.slurm.slurm_drain import SlurmDrain
from peerwatch_responder.actions.slurm.slurm_exclude import SlurmExclude
from peerwatch_responder.actions.slurm.slurm_requeue import SlurmRequeue
from peerwatch_responder.actions.slurm.slurm_start import SlurmStart
from peerwatch_responder.policy.state import DoneStep
from peerwatch_responder.run.execute import Execution, Patience
from peerwatch_responder.run.undo import undo
from response_cases import response
from slurm_cluster import Cluster, folder_of_slurm, without_slurm

pytestmark = [
    # A step of a job on this machine makes the checks of another test wait or skip.
    pytest.mark.xdist_group("slurm_steps"),
    pytest.mark.skipif(folder_of_slurm() is None, reason=without_slurm() or "Slurm is there"),
]
KEY = "0123456789abcdef"
REASON = f"peerwatch: PeerwatchFaultyNode since 2026-01-01T00:00:00Z action={KEY}"
ACTIONS = {
    "drain": SlurmDrain,
    "requeue": SlurmRequeue,
    "exclude": SlurmExclude,
    "start": SlurmStart,
}


class Slurm(Cluster):
    """A real Slurm, with what is told to it written down."""

    def started(self):
        for program in ("scontrol", "sinfo", "squeue"):
            self.script_of(program)
        self.calls = self.folder / "calls"
        self.real = self.folder / "scontrol"
        self.real.rename(self.folder / "real-scontrol")
        self.scontrol(f'exec {self.folder}/real-scontrol "$@"')
        self.start()
        return self

    def scontrol(self, does, name="scontrol"):
        path = self.folder / name
        log = f'case "$1" in show) ;; *) echo "$@" >> {self.calls};; esac'
        path.write_text(f"#!/bin/sh\n{log}\n{does}\n")
        path.chmod(0o755)

    def requests(self):
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def target(self, node, job="", **changes):
        starts_at = changes.pop("starts_at", time.time() + 1)
        return Target(KEY, "", node, str(job), REASON, starts_at=starts_at, **changes)

    def cluster(self, **options):
        return SlurmCluster(SlurmOptions(folder=self.folder, timeout_seconds=300, **options))

    def actions(self, *names, **options):
        cluster = self.cluster(**options)
        return {name: ACTIONS[name](ActionOptions(), cluster) for name in names}

    def owner(self, node, **options):
        return self.cluster(**options).owners([("", node)])[("", node)]

    def nodes_json(self):
        return {each["name"]: each for each in json.loads(self.command("sinfo", "--json"))["nodes"]}

    def job_json(self, job):
        jobs = json.loads(self.command("squeue", "--json", "--states=all"))["jobs"]
        return next(each for each in jobs if each["job_id"] == job)

    def batch(self, *arguments, script="sleep 3600"):
        common = ("--parsable", "--output=/dev/null", *arguments, f"--wrap={script}")
        return int(self.command("sbatch", *common))

    def runs(self, *jobs):
        found = json.loads(self.command("squeue", "--json"))["jobs"]
        return set(jobs) <= {each["job_id"] for each in found if each["job_state"] == "RUNNING"}


@pytest.fixture(scope="module")
def _slurm(tmp_path_factory):
    more = {"MinJobAge": "36000", "MessageTimeout": "100", "BatchStartTimeout": "3600"}
    folder = tmp_path_factory.mktemp("slurm")
    # Only this scheduler starts heterogeneous jobs, by itself every half minute.
    more["SchedulerParameters"] = "nohold_on_prolog_fail,bf_interval=1,sched_interval=2"
    found = Slurm(folder_of_slurm(), folder, 4, more)
    try:
        yield found.started()
    finally:
        found.stop()


@pytest.fixture
def slurm(_slurm):
    """Yield it with all nodes in use by nobody, and leave it so."""
    _slurm.calls.unlink(missing_ok=True)
    yield _slurm
    _slurm.command("scancel", "--user=root", "--signal=KILL")
    _slurm.command("scancel", "--user=root")
    for node in _slurm.nodes:
        if _slurm.reason(node):
            _slurm.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
    _slurm.wait_for(
        lambda: (
            all(each["state"] == "idle" for each in _slurm.nodes_json().values())
            and not _slurm.command("squeue", "--noheader").strip()
        )
    )


def execute(actions, target, steps=(), write=None):
    """Return status, text and rows of a response that does some actions."""
    rows = []
    planned = response(target.node, target.job_id, "acting", key=KEY)
    planned = dataclasses.replace(planned, actions=tuple(actions), steps=tuple(steps))
    keep = write or (lambda **data: rows.append(data))
    # Slurm ends a job in seconds, on a busy machine in more.
    patience = Patience(600, lambda _: bool(time.sleep(0.2)))
    return (*Execution(planned, target, actions, keep, patience).run(), rows)


def undone(actions, target, rows):
    """Return what is told when the steps of some rows are undone; all of them must be."""
    steps = [DoneStep(each["action"], each["step"], True, each["before"]) for each in rows]
    planned = dataclasses.replace(response(key=KEY), steps=tuple(steps[1::2]))
    undone = list(undo(planned, target, actions))
    assert all(is_undone for _, is_undone in undone), undone
    return [text for text, _ in undone]


def test_the_node_is_drained_and_its_job_goes_on_elsewhere(slurm):
    job = slurm.batch("--requeue", "--exclude=n[2-4]")
    other = slurm.batch("--requeue", "--nodelist=n3")
    slurm.wait_for(lambda: slurm.runs(job, other))
    slurm.wait_for(lambda: slurm.job_json(job)["nodes"] == "n1")
    slurm.command("scontrol", "hold", str(other))
    before = slurm.nodes_json()["n1"]
    target = slurm.target("n1", job)
    actions = slurm.actions("drain", "requeue")
    status, text, rows = execute(actions, target)
    assert (status, text) == ("done", "All steps are done.")
    drained = slurm.nodes_json()["n1"]
    assert ("DRAIN" in drained["state_flags"], drained["reason"]) == (True, REASON)
    assert (slurm.owner("n1"), slurm.owner("n2")) == ("ours", "nobody")

    # It may run on n2 alone now, which the person who submitted it did not want.
    slurm.command("scontrol", "update", f"JobId={job}", "ExcNodeList=n[3-4]")
    more = slurm.actions("exclude", "start")
    assert execute(more, target)[0] == "done"
    slurm.wait_for(lambda: slurm.runs(job))
    found = slurm.job_json(job)
    assert (found["nodes"], found["excluded_nodes"], found["restart_cnt"]) == (
        *("n2", "n[3-4],n1", 1),
    )
    requests = slurm.requests()
    assert [line.split()[0] for line in requests] == ["update", "requeue", "update", "update"]
    assert slurm.job_json(other)["restart_cnt"] == 0

    # Done again, nothing is.
    assert execute(actions, target)[0] == "done"
    assert slurm.requests() == requests
    assert undone(actions, target, rows)[1].startswith("drain: drain: resumed")
    back = slurm.nodes_json()["n1"]
    assert (back["reason"], back["partitions"]) == (before["reason"], before["partitions"])
    assert slurm.owner("n1") == "nobody"


def test_a_job_that_waits_gets_its_list_back_byte_for_byte(slurm):
    job = slurm.batch("--hold", "--exclude=n[3-4]")
    target = slurm.target("n1", job)
    actions = slurm.actions("exclude")

    def excluded():
        return slurm.job_json(job)["excluded_nodes"]

    _, _, rows = execute(actions, target)
    assert excluded() == "n[3-4],n1"
    undone(actions, target, rows)
    assert excluded() == "n[3-4]"

    # What somebody adds meanwhile stays.
    execute(actions, target)
    slurm.command("scontrol", "update", f"JobId={job}", "ExcNodeList=n[1-3]")
    undone(actions, target, rows)
    assert excluded() == "n2,n3"
    assert "not excluded any more" in undone(actions, target, rows)[0]

    # What was there before is not ours to take away.
    slurm.command("scontrol", "update", f"JobId={job}", "ExcNodeList=n[1-2]")
    _, _, rows = execute(actions, target)
    assert [each["phase"] for each in rows] == ["done"]
    assert undone(actions, target, [*rows, *rows]) == ["exclude: exclude: n1 was excluded before"]
    assert excluded() == "n[1-2]"


TAKEN = {
    "drained": ("State=DRAIN", "Reason=a | b\nsecond line"),
    "by a check of ours": ("State=DRAIN", "Reason=peerwatch-check: gpu_memory"),
    "by another response": ("State=DRAIN", f"Reason={REASON.replace(KEY, 'f' * 16)}"),
    "down": ("State=DOWN", "Reason=broken cable"),
    "failing": ("State=FAIL", "Reason=soon"),
}


@pytest.mark.parametrize("how", TAKEN)
def test_what_somebody_else_has_taken_out_stays_theirs(slurm, how):
    slurm.command("scontrol", "update", "NodeName=n4", *TAKEN[how])
    before = slurm.nodes_json()["n4"]
    assert before["reason"] == TAKEN[how][1].removeprefix("Reason=")
    assert slurm.owner("n4") == ("ours" if how == "by another response" else "other")
    target, actions = slurm.target("n4"), slurm.actions("drain")
    status, text, rows = execute(actions, target)
    assert (status, rows) == ("failed", [])
    assert "it stays as it is" in text
    (step,) = actions["drain"].steps(target)
    with pytest.raises(RejectedError, match="it stays as it is"):
        step.do({})
    assert "nothing is resumed" in actions["drain"].undo(target, "drain", {})
    assert slurm.requests() == []
    after = slurm.nodes_json()["n4"]
    same = ("state", "reason", "reason_changed_at", "reason_set_by_user")
    assert [after[name] for name in same] == [before[name] for name in same]


def test_a_reservation_is_somebodys(slurm):
    common = ("StartTime=now", "Duration=60", "Users=root")
    for name, node, flags in (("fix", "n3", "MAINT,IGNORE_JOBS"), ("team", "n4", "IGNORE_JOBS")):
        slurm.command(
            *("scontrol", "create", "reservation", f"ReservationName={name}", *common),
            *(f"Nodes={node}", f"Flags={flags}"),
        )
    try:
        slurm.wait_for(lambda: "MAINTENANCE" in slurm.nodes_json()["n3"]["state_flags"])
        slurm.wait_for(lambda: "RESERVED" in slurm.nodes_json()["n4"]["state_flags"])
        assert [slurm.owner(node) for node in ("n2", "n3", "n4")] == ["nobody", "other", "other"]
        assert slurm.owner("n4", reserved=True) == "nobody"
        assert slurm.owner("n3", reserved=True) == "other"
    finally:
        for name in ("fix", "team"):
            slurm.command("scontrol", "delete", f"ReservationName={name}")
    slurm.wait_for(lambda: not any(each["state_flags"] for each in slurm.nodes_json().values()))


@pytest.mark.parametrize("person", [("State=RESUME",), ("State=DRAIN", "Reason=mine now")])
def test_what_a_person_changes_is_not_undone(slurm, person):
    target, actions = slurm.target("n2"), slurm.actions("drain")
    _, _, rows = execute(actions, target)
    slurm.command("scontrol", "update", "NodeName=n2", *person)
    assert slurm.owner("n2") == ("nobody" if len(person) == 1 else "other")
    assert "nothing is resumed" in undone(actions, target, rows)[0]
    assert slurm.reason("n2") == ("" if len(person) == 1 else "mine now")
    assert len(slurm.requests()) == 1


def test_only_the_run_of_the_alert_on_its_node_is_requeued(slurm):
    job = slurm.batch("--requeue", "--nodelist=n1")
    fixed = slurm.batch("--no-requeue", "--nodelist=n2")
    slurm.wait_for(lambda: slurm.runs(job, fixed))

    def requeued(node, job, **changes):
        return execute(slurm.actions("requeue"), slurm.target(node, job, **changes))[:2]

    assert requeued("n2", job)[0] == "done"
    assert requeued("n1", 999_999)[0] == "done"
    assert requeued("n1", "torchrun-7")[0] == "done"
    assert requeued("n1", job, starts_at=time.time() - 3600)[0] == "done"
    status, text = requeued("n2", fixed)
    assert (status, "may not be requeued" in text) == ("failed", True)
    with pytest.raises(RejectedError, match=r"cluster\.name is ''"):
        slurm.actions("requeue")["requeue"].steps(
            dataclasses.replace(slurm.target("n1", job), cluster="east")
        )
    assert slurm.requests() == []


def test_of_an_array_one_task_and_of_a_heterogeneous_job_all_of_it(slurm):
    array = slurm.batch("--requeue", "--array=1-2", "--exclude=n[3-4]")
    # Its tasks have numbers when they begin, the last one that of the array.
    slurm.wait_for(lambda: slurm.runs(array, array + 1))
    group = slurm.command(
        *("sbatch", "--parsable", "--requeue", "--nodelist=n3", "--output=/dev/null"),
        *(":", "--nodelist=n4", "--wrap=sleep 3600"),
    )
    leader = int(group)
    everything = [array, array + 1, leader, leader + 1]
    slurm.wait_for(lambda: slurm.runs(*everything))
    task = slurm.job_json(array)
    assert task["array_task_id"] == 2
    assert execute(slurm.actions("requeue"), slurm.target(task["nodes"], array))[0] == "done"
    first = slurm.job_json(array + 1)["nodes"]
    assert execute(slurm.actions("requeue"), slurm.target(first, f"{array}_1"))[0] == "done"
    assert execute(slurm.actions("requeue"), slurm.target("n4", leader))[0] == "done"
    assert slurm.requests() == [f"requeue {array}_2", f"requeue {array}_1", f"requeue {leader}"]
    assert [slurm.job_json(each)["restart_cnt"] for each in everything] == [1] * 4


class Killed(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("action", ["drain", "requeue"])
def test_killed_between_the_effect_and_its_row_there_is_one_effect(slurm, action):
    job = slurm.batch("--requeue", "--nodelist=n1")
    slurm.wait_for(lambda: slurm.runs(job))
    target, actions = slurm.target("n1", job), slurm.actions(action)
    rows = []

    def write(**data):
        if data["phase"] == "done":
            raise Killed
        rows.append(data)

    with pytest.raises(Killed):
        execute(actions, target, write=write)
    (begun,) = [DoneStep(each["action"], each["step"], False, each["before"]) for each in rows]
    status, _, rows = execute(actions, target, steps=[begun])
    assert (status, [each["phase"] for each in rows]) == ("done", ["done"])
    assert rows[0]["before"] == begun.before
    assert len(slurm.requests()) == 1


FAULTS = {
    "hangs": ("sleep 3600", {"drain": LaterError, "requeue": AmbiguousError}),
    "dies": ("kill -9 $$", {"drain": LaterError, "requeue": AmbiguousError}),
    "refuses": (
        "echo 'slurm_update error: Access/permission denied' >&2; exit 1",
        {"drain": RejectedError, "requeue": RejectedError},
    ),
    "finds nobody": (
        "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1",
        {"drain": LaterError, "requeue": LaterError},
    ),
    "lies": ("exit 0", {"drain": LaterError, "requeue": LaterError}),
    "acts and dies": ('{real} "$@"; kill -9 $$', {}),
    "acts and complains": (
        '{real} "$@"; echo "Socket timed out on send/recv operation" >&2; exit 1',
        {},
    ),
}


@pytest.mark.parametrize("action", ["drain", "requeue"])
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_scontrol_does_the_answer_is_what_is_true(slurm, action, fault):
    does, errors = FAULTS[fault]
    job = slurm.batch("--requeue", "--nodelist=n1")
    slurm.wait_for(lambda: slurm.runs(job))
    (slurm.folder / "faulty").mkdir(exist_ok=True)
    slurm.scontrol(does.format(real=slurm.folder / "real-scontrol"), "faulty/scontrol")
    cluster = slurm.cluster()
    # What hangs does nothing else; only it is to be ended in time.
    seconds = 1 if fault == "hangs" else 300
    cluster.commands.change = Commands(slurm.folder / "faulty", None, seconds).change
    (step,) = ACTIONS[action](ActionOptions(), cluster).steps(slurm.target("n1", job))
    before = step.inspect().before
    if action in errors:
        with pytest.raises(errors[action]):
            step.do(before)
        assert slurm.owner("n1") == "nobody"
        assert slurm.job_json(job)["restart_cnt"] == 0
    else:
        step.do(before)
        assert (slurm.owner("n1") == "ours") == (action == "drain")
        assert slurm.job_json(job)["restart_cnt"] == (action == "requeue")
    assert len(slurm.requests()) == 1


def test_what_a_decision_needs_to_know(slurm):
    cluster = slurm.cluster()
    assert cluster.size() == 4
    assert cluster.owners([("", "n1"), ("east", "n1"), ("", "n9"), ("", "n[1-4]")]) == {
        ("", "n1"): "nobody"
    }
    controller = slurm.command("scontrol", "show", "config").split("SlurmctldHost[0]")[1].split()[1]
    assert ("", controller.split("(")[0]) in cluster.protected()
    assert ("", "n1") not in cluster.protected()
    nobody = slurm.cluster(partitions=("none",))
    assert nobody.size() == 0
    assert {("", node) for node in slurm.nodes} <= nobody.protected()
    (step,) = slurm.actions("drain")["drain"].steps(slurm.target("n[1-4]"))
    assert step.inspect().status == "other"
