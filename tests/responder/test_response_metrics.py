"""What is published: there from the start, and what rules and dashboards read from it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import get_args

import pytest

from peerwatch_responder.actions.driver.cluster import DriverOnly
from peerwatch_responder.policy.plan import Reason
from peerwatch_responder.policy.state import Response
from peerwatch_responder.run.books import Books, Unwritten
from peerwatch_responder.run.metrics import SPECS, families
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.settings.config import ResponderConfig
from peerwatch_responder.settings.load import Settings
from response_cases import NOW, SETTINGS, alert, response

ENDS = ("done", "failed", "stuck", "passed", "undone")


class Undone:
    """An action of which nothing but the name is asked."""

    def steps(self, target):
        return []

    def undo(self, target, step, before):
        return ""


def responder():
    settings = Settings(ResponderConfig(policy=SETTINGS), DriverOnly(), {"drain": Undone()})
    return Responder(settings, Books(Unwritten(lambda: NOW)), lambda: NOW)


def ended(books: Books, each: Response, status: str) -> None:
    names = ("key", "cluster", "node", "job_id", "fingerprint", "starts_at")
    books.write("planned", **{name: getattr(each, name) for name in names}, actions=["drain"])
    books.write("ended", key=each.key, status=status, text="")


def values(heard: Responder, name: str) -> dict[tuple[str, ...], float]:
    found = {each.spec.name: each for each in families(heard, Counter(), NOW)}
    return dict(found[name].rows)


def test_what_alerts_ask_for_is_there_before_anything_has_happened():
    heard = responder()
    found = {each.spec.name: len(each.rows) for each in families(heard, Counter(), NOW)}
    assert found.keys() == {spec.name for spec in SPECS}
    # One of each response, of which there is none, and one of each outcome of a decision.
    empty = {name for name, count in found.items() if count == 0}
    infos = {f"peerwatch_response_{each}_info" for each in ("stuck", "under_way", "ended")}
    assert empty == {*infos, "peerwatch_response_decisions_total"}
    waiting = values(heard, "peerwatch_response_waiting")
    assert waiting == {(reason,): 0 for reason in get_args(Reason)}
    outcomes = values(heard, "peerwatch_response_actions_total")
    assert outcomes == {("drain", "node", end): 0 for end in ENDS}


@pytest.mark.parametrize(
    ("decided", "reason"),
    [((alert("n1"),), "firing_unknown"), ((), None), ((alert("n1", age=9999),), None)],
    ids=["it waits", "nothing is heard of", "it is refused"],
)
def test_only_what_waits_now_is_counted_by_its_reason(decided, reason):
    heard = responder()
    heard.receive(decided)
    heard.cycle()
    waiting = values(heard, "peerwatch_response_waiting")
    assert {key[0] for key, count in waiting.items() if count} == ({reason} - {None})


def test_what_waits_no_longer_is_no_longer_counted():
    heard = responder()
    first = alert("n1")
    heard.receive((first,))
    heard.cycle()
    heard.receive((dataclasses.replace(first, ends_at=NOW),))
    heard.cycle()
    assert sum(values(heard, "peerwatch_response_waiting").values()) == 0


def test_a_stuck_response_is_named_until_its_node_is_back():
    heard = responder()
    ended(heard.books, response("n1", "j1", key="k1"), "stuck")
    ended(heard.books, response("n2", "", key="k2"), "stuck")
    ended(heard.books, response("n3", "j3", key="k3"), "done")
    info = "peerwatch_response_stuck_info"
    assert values(heard, info) == {("n1", "j1", "k1"): 1, ("n2", "", "k2"): 1}
    assert values(heard, "peerwatch_response_stuck") == {(): 2}
    heard.books.write("returned", key="k1")
    heard.books.write("ended", key="k2", status="undone", text="")
    assert values(heard, info) == {}
    assert values(heard, "peerwatch_response_stuck") == {(): 0}


@pytest.mark.parametrize("end", ["done", "failed", "stuck"])
def test_what_is_undone_is_counted_besides_as_what_it_was(end):
    heard = responder()
    ended(heard.books, response("n1", "j1", key="k1"), end)
    for _ in range(2):
        heard.books.write("ended", key="k1", status="undone", text="")
    outcomes = values(heard, "peerwatch_response_actions_total")
    assert {key[2] for key, count in outcomes.items() if count == 1} == {end, "undone"}


def test_what_is_under_way_and_what_has_ended_is_told_for_a_while():
    now = NOW
    settings = Settings(ResponderConfig(policy=SETTINGS), DriverOnly(), {"drain": Undone()})
    heard = Responder(settings, Books(Unwritten(lambda: now)), lambda: now)

    def told(name, at):
        found = {each.spec.name: each for each in families(heard, Counter(), at)}
        return set(dict(found[f"peerwatch_response_{name}_info"].rows))

    names = ("key", "cluster", "node", "job_id", "fingerprint", "starts_at")
    planned = response("n1", "j1", key="k1")
    heard.books.write(
        "planned", **{name: getattr(planned, name) for name in names}, actions=["drain"]
    )
    assert told("under_way", NOW + 299) == {("n1", "j1", "k1")}
    # A page waits no longer.
    assert told("under_way", NOW + 300) == set()
    step = {"key": "k1", "action": "drain", "step": "drain", "before": {}}
    heard.books.write("step", **step, phase="begins", text="n1 is IDLE")
    heard.books.write("step", **step, phase="done", text="n1 is DRAINED\n|")
    heard.books.write("ended", key="k1", status="done", text="All steps are done.")
    assert told("under_way", NOW) == set()
    line = ("n1", "j1", "k1", "done", "drain: n1 is DRAINED\\n|.")
    assert told("ended", NOW + 3599) == {line}
    assert told("ended", NOW + 3600) == set()
    ended(heard.books, response("n2", "", key="k2"), "failed")
    assert ("n2", "", "k2", "failed", ".") in told("ended", NOW)
    heard.books.write("returned", key="k1")
    assert line not in told("ended", NOW)
