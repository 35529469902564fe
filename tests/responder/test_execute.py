"""One effect per fault: under crashes at every row, repeated deliveries and failing back ends."""

from __future__ import annotations

import dataclasses
import os
import random

import pytest

from peerwatch_responder.action import (
    AmbiguousError,
    LaterError,
    RejectedError,
    StepState,
    Target,
    UnknownError,
)
from peerwatch_responder.advice import Advice
from peerwatch_responder.audit.journal import Journal
from peerwatch_responder.audit.replay import state_of
from peerwatch_responder.audit.row import parse_row
from peerwatch_responder.policy.state import DoneStep
from peerwatch_responder.run.execute import Execution, Patience, StoppedError
from peerwatch_responder.run.restarts import Restarts
from peerwatch_responder.run.undo import undo
from response_cases import response

TARGET = Target("k1", "", "n1", "j1", "peerwatch: compute_straggler action=k1")


class Killed(BaseException):
    """The process dies here."""


class World:
    """Nodes and pods that requests change, and that count the requests."""

    def __init__(self, chance=0.0, seed=0):
        self.marks = {}
        self.pods = ["a", "b", "c"]
        self.requests = []
        self.chance = chance
        self.random = random.Random(seed)

    def maybe_die(self):
        if self.random.random() < self.chance:
            raise Killed


class Cordon:
    name = "cordon"

    def __init__(self, world, target):
        self.world, self.target = world, target

    def inspect(self):
        mark = self.world.marks.get(self.target.node)
        if mark is None:
            return StepState("open", before={"mark": None})
        return StepState("done" if mark == self.target.key else "other", f"marked {mark}")

    def do(self, before):
        self.world.maybe_die()
        assert self.world.marks.get(self.target.node) == before["mark"]
        self.world.requests.append("cordon")
        self.world.marks[self.target.node] = self.target.key
        self.world.maybe_die()
        return "200"


class Evict:
    def __init__(self, world, pod):
        self.world, self.pod, self.name = world, pod, f"evict {pod}"

    def inspect(self):
        return StepState("open" if self.pod in self.world.pods else "done", "gone")

    def do(self, before):
        self.world.maybe_die()
        self.world.requests.append(self.name)
        self.world.pods.remove(self.pod)
        self.world.maybe_die()
        return "201"


class Drain:
    def __init__(self, world):
        self.world = world

    def steps(self, target):
        yield Cordon(self.world, target)
        yield from [Evict(self.world, pod) for pod in self.world.pods]

    def undo(self, target, step, before):
        if step != "cordon":
            return "nothing to undo"
        if self.world.marks.get(target.node) != target.key:
            return "not ours any more"
        self.world.marks[target.node] = before["mark"]
        return "uncordoned"


class Scripted:
    """An action of one step, whose states or requests fail as told."""

    name = "do"

    def __init__(self, states=(), does=()):
        self.states, self.does = list(states), list(does)
        self.done = 0

    def steps(self, target):
        return [self]

    def undo(self, target, step, before):
        raise NotImplementedError

    def inspect(self):
        found = self.states.pop(0) if self.states else StepState("open", "free")
        if isinstance(found, Exception):
            raise found
        return found

    def do(self, before):
        answer = self.does.pop(0) if self.does else "200"
        if isinstance(answer, Exception):
            raise answer
        self.done += 1
        return answer


class Time:
    def __init__(self, ends=False):
        self.now, self.ends = 0.0, ends

    def wait(self, seconds):
        self.now += seconds
        return self.ends


def execute(actions, planned=None, time=None, seconds=60.0, **options):
    rows = []
    time = time or Time()
    planned = planned or response(status="planned", key="k1")
    planned = dataclasses.replace(planned, actions=tuple(actions))
    execution = Execution(
        planned,
        TARGET,
        actions,
        lambda **data: rows.append(data),
        Patience(seconds, time.wait, clock=lambda: time.now),
        **options,
    )
    return (*execution.run(), rows)


def test_each_step_is_written_down_before_and_after():
    world = World()
    status, text, rows = execute({"drain": Drain(world)})
    assert (status, text) == ("done", "All steps are done.")
    assert [(each["step"], each["phase"]) for each in rows[:2]] == [
        ("cordon", "begins"),
        ("cordon", "done"),
    ]
    assert rows[0]["before"] == {"mark": None}
    assert len(rows) == 8
    assert world.requests == ["cordon", "evict a", "evict b", "evict c"]


def test_a_dry_run_looks_and_does_nothing():
    world = World()
    status, _, rows = execute({"drain": Drain(world)}, dry_run=True)
    assert status == "done"
    assert {each["phase"] for each in rows} == {"would"}
    assert [each["step"] for each in rows] == ["cordon", "evict a", "evict b", "evict c"]
    assert (world.requests, world.marks) == ([], {})


def test_what_another_did_stays():
    world = World()
    world.marks["n1"] = "theirs"
    status, text, rows = execute({"drain": Drain(world)})
    assert (status, text, rows) == ("failed", "drain: cordon: marked theirs", [])
    assert (world.requests, world.marks) == ([], {"n1": "theirs"})


@pytest.mark.parametrize(
    ("states", "does", "expected"),
    [
        ([UnknownError("no answer")] * 3, [], ("done", "All steps are done.")),
        ([UnknownError("no answer")] * 99, [], ("failed", "x: do: no answer (tried for 60 s)")),
        ([], [LaterError("budget", 30)] * 2, ("done", "All steps are done.")),
        ([], [LaterError("budget", 30)] * 9, ("failed", "x: do: budget (tried for 60 s)")),
        ([], [RejectedError("403")], ("failed", "x: do: 403")),
        ([], [AmbiguousError("cut off")], ("stuck", "x: do: cut off")),
        ([StepState("other", "theirs")], [], ("failed", "x: do: theirs")),
        ([StepState("done", "is so")], [], ("done", "All steps are done.")),
    ],
)
def test_how_a_step_may_end(states, does, expected):
    action = Scripted(states, does)
    status, text, _ = execute({"x": action})
    assert (status, text) == expected
    assert action.done == (status == "done" and StepState("done", "is so") not in states)


def test_with_marks_left_behind_a_person_is_needed():
    status, text, _ = execute({"first": Scripted(), "second": Scripted(does=[RejectedError("no")])})
    assert (status, text) == ("stuck", "second: do: no")


def test_nothing_follows_a_step_that_failed():
    second = Scripted()
    execute({"first": Scripted(does=[RejectedError("no")]), "second": second})
    assert second.done == 0


class Advisor:
    """Gives advice as told, the last one again and again."""

    def __init__(self, *advice):
        self.advice, self.asked = list(advice), []

    def advise(self, job):
        self.asked.append(job)
        advice = self.advice.pop(0) if len(self.advice) > 1 else self.advice[0]
        if isinstance(advice, Exception):
            raise advice
        return advice


@pytest.mark.parametrize(
    ("advice", "done", "ends"),
    [
        ([Advice("retry", "rule")], 1, "done"),
        ([Advice("retry_elsewhere", "rule")], 1, "done"),
        ([Advice("retry_later", "rule", wait_seconds=7.0)], 1, "done"),
        # Longer than a step is tried.
        ([Advice("retry_later", "rule", wait_seconds=3600.0)], 1, "done"),
        ([UnknownError("no log"), Advice("retry", "rule")], 1, "done"),
        ([UnknownError("no log")], 0, "stuck"),
        ([Advice("stop", "rule", "'shape mismatch' in rank 3")], 0, "stuck"),
        ([Advice("ask", "model")], 0, "stuck"),
    ],
)
def test_advice_is_asked_before_a_job_is_started_again(advice, done, ends):
    adviser, time, requeue = Advisor(*advice), Time(), Scripted()
    restarts = Restarts({"requeue"}, adviser)
    actions = {"drain": Scripted(), "requeue": requeue}
    status, text, _ = execute(actions, time=time, restarts=restarts)
    assert (requeue.done, status) == (done, ends)
    assert [(job.job_id, job.node) for job in adviser.asked[:1]] == [("j1", "n1")]
    if advice[0] == Advice("stop", "rule", "'shape mismatch' in rank 3"):
        assert text == "requeue: the advice is stop (rule): 'shape mismatch' in rank 3"
    if getattr(advice[0], "wait_seconds", 0):
        assert time.now == advice[0].wait_seconds


def test_no_advice_is_asked_where_no_job_is_started_again_or_it_was_begun():
    adviser = Advisor(Advice("stop", "rule"))
    assert execute({"x": Scripted()}, restarts=Restarts({"y"}, adviser))[0] == "done"
    step = DoneStep("x", "do", is_done=False)
    begun = dataclasses.replace(response(status="acting", key="k1"), steps=(step,))
    assert execute({"x": Scripted()}, begun, restarts=Restarts({"x"}, adviser))[0] == "done"
    assert adviser.asked == []


def test_a_program_that_ends_meanwhile_goes_on_later():
    with pytest.raises(StoppedError):
        execute({"x": Scripted(does=[LaterError("budget")])}, time=Time(ends=True))


def test_what_was_there_before_is_known_after_a_crash():
    """The mark was set, and the process died before it could write so."""
    world = World()
    world.marks["n1"] = "k1"
    step = DoneStep("drain", "cordon", is_done=False, before={"mark": None})
    begun = dataclasses.replace(response(status="acting", key="k1"), steps=(step,))
    _, _, rows = execute({"drain": Drain(world)}, begun)
    assert (rows[0]["step"], rows[0]["phase"], rows[0]["before"]) == (
        *("cordon", "done", {"mark": None}),
    )
    assert "cordon" not in world.requests


PLANNED = {
    "key": "k1",
    "cluster": "",
    "node": "n1",
    "job_id": "j1",
    "actions": ["drain", "tell"],
    "fingerprint": "f" * 16,
    "starts_at": 100.0,
}


class DyingJournal(Journal):
    """Dies before or after rows are written."""

    world = None

    def append(self, kind, **data):
        self.world.maybe_die()
        row = super().append(kind, **data)
        self.world.maybe_die()
        return row


class Tell(Scripted):
    """A hook whose receiver keeps the keys it has seen, as the protocol asks of it."""

    def __init__(self, world):
        super().__init__()
        self.world = world

    def do(self, before):
        self.world.maybe_die()
        if "told" not in self.world.requests:
            self.world.requests.append("told")
        self.world.maybe_die()
        return "200"

    def undo(self, target, step, before):
        return "nothing to undo"


def life(path, world):
    """One life of the program: plan what is not planned, do what is not done."""
    DyingJournal.world = world
    with DyingJournal(path) as journal:
        state = state_of(journal.rows)
        if "k1" not in state.responses:
            world.maybe_die()
            journal.append("planned", **PLANNED)
            state = state_of(rows_of(journal))
        planned = state.responses["k1"]
        if planned.status not in {"planned", "acting"}:
            return
        status, text = Execution(
            planned,
            TARGET,
            {"drain": Drain(world), "tell": Tell(world)},
            lambda **data: journal.append("step", **data),
            Patience(60, lambda _: True),
        ).run()
        journal.append("ended", key="k1", status=status, text=text)


def rows_of(journal):
    content = journal._path.read_bytes().splitlines()
    return [parse_row(line, number) for number, line in enumerate(content, 1)]


@pytest.mark.parametrize("part", range(5))
def test_one_effect_in_500_lives_full_of_crashes(tmp_path, part, monkeypatch):
    # That a row is on the disk is another test; here it would only take time.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    deaths = 0
    for seed in range(100):
        path = tmp_path / f"{seed}.jsonl"
        world = World(chance=0.15, seed=1000 * part + seed)
        # Twelve deliveries, and the program again after each death.
        for delivery in range(200):
            try:
                life(path, world)
            except Killed:
                deaths += 1
            else:
                if delivery >= 12:
                    break
        assert sorted(world.requests) == ["cordon", "evict a", "evict b", "evict c", "told"]
        with Journal(path) as journal:
            (ended,) = state_of(journal.rows).responses.values()
        assert ended.status == "done"
        assert world.marks == {"n1": "k1"}
        undone = list(undo(ended, TARGET, {"drain": Drain(world), "tell": Tell(world)}))
        assert all(is_undone for _, is_undone in undone)
        assert world.marks == {"n1": None}
    assert deaths > 200


def test_what_was_changed_is_put_back_in_reverse_order():
    world = World()
    _, _, rows = execute({"drain": Drain(world)})
    done = response(status="done", key="k1")
    steps = tuple(
        DoneStep(each["action"], each["step"], True, each["before"])
        for each in rows
        if each["phase"] == "done"
    )
    done = dataclasses.replace(done, steps=steps)
    told = list(undo(done, TARGET, {"drain": Drain(world)}))
    assert told[-1] == ("drain: cordon: uncordoned", True)
    assert [text.split(":")[1] for text, _ in told] == [
        " evict c",
        " evict b",
        " evict a",
        " cordon",
    ]
    assert world.marks == {"n1": None}
    again = list(undo(done, TARGET, {"drain": Drain(world)}))
    assert again[-1] == ("drain: cordon: not ours any more", True)
    assert [undone for _, undone in undo(done, TARGET, {})] == [False] * 4
