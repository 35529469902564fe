"""A node that was taken out goes back when it passes its checks, or a person says so."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from peerwatch_common.errors import ConfigError
from peerwatch_responder.action import PassedError, RejectedError, StepState
from peerwatch_responder.actions.driver.cluster import DriverOnly
from peerwatch_responder.run.books import Books, Unwritten
from peerwatch_responder.run.orders import OrderError, obey
from peerwatch_responder.run.probation import due, probe
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.settings.load import load_settings
from peerwatch_responder.settings.policy import ProbationConfig
from response_cases import NOW, response, state

AUTOMATIC = ProbationConfig(check="check", automatic=True, passes=2)


class Checks:
    """A check that ends as told, in turn, and an action that was done."""

    name = "check"

    def __init__(self, *ends):
        self.ends, self.undone = list(ends), []

    def steps(self, target):
        return [self]

    def inspect(self):
        return StepState("open")

    def do(self, before):
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    def undo(self, target, step, before):
        self.undone.append(target.node)
        return "resumed"


PASSES, FAILS, BROKEN = PassedError("n1 passes."), "n1 fails: x", RejectedError("no ssh")


def books_with_node_out():
    books = Books(Unwritten(lambda: NOW))
    books.write(
        *("planned",),
        key="k1",
        cluster="",
        node="n1",
        job_id="j1",
        actions=["drain"],
        fingerprint="f",
        starts_at=NOW,
    )
    step = {"key": "k1", "action": "drain", "step": "drain", "before": {}, "text": ""}
    books.write("step", **step, phase="done")
    books.write("ended", key="k1", status="done", text="")
    return books


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([PASSES], ["drain: drain: resumed"]),
        ([FAILS], "Node n1 stays out: n1 fails: x To put it back all the same"),
        ([BROKEN], "Node n1 stays out: no ssh"),
    ],
)
def test_undo_puts_back_only_a_node_that_passes(ends, said):
    books, checks = books_with_node_out(), Checks(*ends)
    actions = {"check": checks, "drain": checks}
    order = {"order": "undo", "key": "k1"}
    if isinstance(said, list):
        assert obey(order, books, actions, AUTOMATIC) == said
        assert checks.undone == ["n1"]
        return
    with pytest.raises(OrderError, match=said):
        obey(order, books, actions, AUTOMATIC)
    assert (checks.undone, books.state.responses["k1"].is_out) == ([], True)
    # A person knows better.
    assert obey({**order, "unchecked": True}, books, actions, AUTOMATIC)
    assert checks.undone == ["n1"]


def test_passes_count_in_a_row():
    books = books_with_node_out()
    checks = Checks(PASSES, PASSES, FAILS, PASSES, BROKEN)
    counted = []
    for _ in range(5):
        probe(books.state.responses["k1"], books, checks)
        counted.append(books.state.responses["k1"].passes)
    assert counted == [1, 2, 0, 1, 0]


OUT = dataclasses.replace(response("n1", key="k1"), ended_at=NOW - 3600)


@pytest.mark.parametrize(
    ("known", "probation", "expected"),
    [
        (state(OUT), AUTOMATIC, ["k1"]),
        (state(OUT), AUTOMATIC.model_copy(update={"automatic": False}), []),
        (state(dataclasses.replace(OUT, ended_at=NOW - 3599)), AUTOMATIC, []),
        (state(dataclasses.replace(OUT, tried_at=NOW - 3599)), AUTOMATIC, []),
        (state(dataclasses.replace(OUT, tried_at=NOW - 3600)), AUTOMATIC, ["k1"]),
        (state(dataclasses.replace(OUT, status="stuck")), AUTOMATIC, []),
        (state(dataclasses.replace(OUT, status="undone")), AUTOMATIC, []),
        (state(dataclasses.replace(OUT, returned_at=NOW)), AUTOMATIC, []),
        (state(dataclasses.replace(OUT, takes_out=False)), AUTOMATIC, []),
        (state(OUT, paused="by a person"), AUTOMATIC, []),
        (state(OUT, tripped_at=NOW), AUTOMATIC, []),
    ],
)
def test_which_nodes_are_tried_when(known, probation, expected):
    assert [each.key for each in due(known, probation, NOW)] == expected


class Marked(DriverOnly):
    """A cluster in which a node bears our mark until that is undone."""

    def __init__(self, checks):
        super().__init__()
        self.checks = checks

    def owners(self, places):
        return {place: "nobody" if place[1] in self.checks.undone else "ours" for place in places}


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_node_goes_back_by_itself_when_it_has_passed_twice(tmp_path, dry_run):
    path = tmp_path / "responder.yaml"
    content = {
        "dry_run": dry_run,
        "policy": {"probation": {"check": "check", "automatic": True, "passes": 2}},
        "actions": {"check": {"command": ["true"]}},
    }
    path.write_text(yaml.safe_dump(content))
    now = [NOW]
    checks = Checks(PASSES, FAILS, PASSES, PASSES)
    settings = load_settings(path)
    actions = {"check": checks, "drain": checks}
    settings = dataclasses.replace(
        settings, actions=actions, take_out=frozenset({"drain"}), cluster=Marked(checks)
    )
    ours = Responder(settings, books_with_node_out(), lambda: now[0])
    ours._books._journal._clock = lambda: now[0]
    out = []
    for _ in range(6):
        now[0] += 3600
        ours.cycle()
        ours.join(60)
        out.append(ours.state.responses["k1"].is_out)
    if dry_run:
        assert (len(checks.ends), checks.undone) == (4, [])
        return
    assert out == [True, True, True, False, False, False]
    assert checks.undone == ["n1"]
    # The responder itself put it back: it is not left alone as if a person had.
    assert ours.state.released == {}


def test_the_check_must_be_one(tmp_path):
    path = tmp_path / "responder.yaml"
    driver = {"type": "driver_command", "want": "pause", "command": ["true"]}
    for actions in ({}, {"light": driver}):
        content = {"policy": {"probation": {"check": "light"}}, "actions": actions}
        path.write_text(yaml.safe_dump(content))
        with pytest.raises(ConfigError) as found:
            load_settings(path)
        assert found.value.mistakes == [
            "policy.probation.check: 'light' is no action of type check below actions"
        ]
    content["actions"] = {"light": {"type": "check", "command": ["true"]}}
    path.write_text(yaml.safe_dump(content))
    assert load_settings(path).config.policy.probation.check == "light"
