"""What is heard, in whatever order, and what a person orders."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from peerwatch_responder.action import UnknownError
from peerwatch_responder.actions.driver.cluster import DriverOnly
from peerwatch_responder.audit.replay import state_of
from peerwatch_responder.policy.state import Response
from peerwatch_responder.run.books import Books, Unwritten
from peerwatch_responder.run.metrics import families
from peerwatch_responder.run.orders import OrderError, obey
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.settings.config import ResponderConfig
from peerwatch_responder.settings.load import Settings
from response_cases import NOW, SETTINGS, alert, response


class Remembering(Unwritten):
    """A journal that a test reads."""

    def __init__(self):
        super().__init__(lambda: NOW)
        self.rows = []

    def append(self, kind, **data):
        self.rows.append(super().append(kind, **data))
        return self.rows[-1]


class Undoable:
    def __init__(self, answer="put back"):
        self.answer = answer

    def steps(self, target):
        return []

    def undo(self, target, step, before):
        return self.answer


class FakeCluster(DriverOnly):
    """A cluster of ten nodes, of which a test says who has taken them out."""

    def __init__(self, **owners):
        super().__init__()
        self.taken, self.asked = owners, 0

    def size(self):
        return 10

    def owners(self, places):
        self.asked += 1
        if self.taken.get("error"):
            raise UnknownError(self.taken["error"])
        return {(cluster, node): self.taken.get(node, "nobody") for cluster, node in places}


def responder(journal=None, cluster=None, *, dry_run=False):
    config = ResponderConfig(policy=SETTINGS, dry_run=dry_run)
    settings = Settings(config, cluster or DriverOnly(), {}, frozenset({"drain"}))
    return Responder(settings, Books(journal or Remembering()), lambda: NOW)


def test_of_alerts_in_any_order_the_newest_counts():
    first, again = alert(age=600), alert(age=60)
    ended = dataclasses.replace(first, ends_at=NOW - 300)
    for order in ([first, ended, again], [again, ended, first], [ended, again, first]):
        heard = responder()
        for each in (*order, *order):
            heard.receive((each,))
        (known,) = heard.state.alerts.values()
        assert known == again
    heard = responder()
    heard.receive((ended, first))
    assert next(iter(heard.state.alerts.values())).ends_at == NOW - 300


def test_what_is_known_or_has_no_rule_is_not_written_down():
    journal = Remembering()
    heard = responder(journal)
    heard.receive((alert(), alert(), alert(name="Other")))
    heard.receive((alert(),))
    assert [each.kind for each in journal.rows] == ["received"]
    assert state_of(journal.rows).alerts == heard.state.alerts


def test_without_an_alertmanager_nothing_is_done():
    heard = responder()
    heard.receive((alert(),))
    (decision,) = heard.cycle().decisions
    assert (decision.verdict, decision.reason) == ("wait", "firing_unknown")
    assert heard.decisions == {("wait", "firing_unknown"): 1}
    heard.cycle()
    assert heard.decisions == {("wait", "firing_unknown"): 1}


def test_what_is_too_old_is_refused_and_written_down_once():
    journal = Remembering()
    heard = responder(journal)
    heard.receive((alert(age=4000),))
    heard.cycle()
    (decision,) = heard.cycle().decisions
    assert (decision.verdict, decision.reason) == ("ignore", "answered")
    assert [each.kind for each in journal.rows] == ["received", "refused"]


def books_with(*responses: Response, books=None):
    books = books or Books(Remembering())
    for each in responses:
        books.write(
            "planned",
            **{name: getattr(each, name) for name in ("key", "cluster", "node", "job_id")},
            actions=["drain"],
            fingerprint="f",
            starts_at=NOW,
        )
        step = {"action": "drain", "step": "cordon", "before": {}, "text": ""}
        books.write("step", key=each.key, phase="done", **step)
        if each.status != "acting":
            books.write("ended", key=each.key, status=each.status, text="")
    return books


def test_undo_puts_back_once():
    books = books_with(response(key="k1"))
    order = {"order": "undo", "key": "k1"}
    assert obey(order, books, {"drain": Undoable()}) == ["drain: cordon: put back"]
    undone = books.state.responses["k1"]
    assert (undone.status, undone.is_out) == ("undone", False)
    with pytest.raises(OrderError, match="is undone"):
        obey(order, books, {"drain": Undoable()})


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([], "JSON object"),
        ({}, "no order 'None'"),
        ({"order": "stop"}, "no order 'stop'"),
        ({"order": "pause"}, "has a reason"),
        ({"order": "pause", "reason": "  "}, "has a reason"),
        ({"order": "undo"}, "no response 'None'"),
        ({"order": "undo", "key": ["k1"]}, "no response"),
        ({"order": "undo", "key": "k2"}, "is under way"),
        ({"order": "undo", "key": "k1"}, "no such action any more"),
    ],
)
def test_orders_that_cannot_be_obeyed_change_nothing(order, message):
    books = books_with(response(key="k1"), response("n2", status="acting", key="k2"))
    before = books.state
    with pytest.raises(OrderError, match=message):
        obey(order, books, {})
    assert books.state == before


def test_pause_and_resume():
    books = Books(Remembering())
    obey({"order": "pause", "reason": "upgrade"}, books, {})
    assert books.state.paused == "upgrade"
    obey({"order": "resume"}, books, {})
    assert books.state.paused is None


def reason(heard):
    (decision,) = heard.cycle().decisions
    return decision.verdict, decision.reason


def test_what_a_person_puts_back_is_left_alone():
    journal, cluster = Remembering(), FakeCluster(n1="ours", n2="other")
    heard = responder(journal, cluster)
    books_with(response("n1", key="k1"), response("n2", key="k2"), books=heard.books)
    heard.cycle()
    assert all(each.is_out for each in heard.state.responses.values())
    # Somebody else has drained n2: that is not a return.
    cluster.taken["n1"] = "nobody"
    heard.cycle()
    heard.cycle()
    kinds = [each.kind for each in journal.rows]
    assert kinds.count("released") == 1
    assert {key: each.is_out for key, each in heard.state.responses.items()} == {
        "k1": False,
        "k2": True,
    }
    assert state_of(journal.rows).released == {("", "n1"): NOW}


@pytest.mark.parametrize("status", ["acting", "failed"])
def test_only_what_has_ended_and_is_out_can_come_back(status):
    journal = Remembering()
    heard = responder(journal, FakeCluster())
    books_with(response("n1", status=status, key="k1"), books=heard.books)
    heard.cycle()
    assert heard.state.released == {}


def test_in_a_dry_run_nobody_puts_anything_back():
    heard = responder(cluster=FakeCluster(), dry_run=True)
    books_with(response("n1", key="k1"), books=heard.books)
    heard.cycle()
    assert heard.state.released == {}


def test_a_cluster_that_says_nothing_stops_all():
    """Nothing is put back, nothing is taken out; and who was not asked is known."""
    cluster = FakeCluster(error="slurmctld does not answer")
    heard = responder(cluster=cluster)
    books_with(response("n1", key="k1"), books=heard.books)
    heard.receive((alert("n2"),))
    assert reason(heard) == ("wait", "firing_unknown")
    assert heard.unknown == {"cluster": "slurmctld does not answer"}
    assert heard.state.released == {}
    found = {each.name: each for each in families(heard, Counter(), NOW)}
    up = {
        each.labels["server"]: each.value for each in found["peerwatch_response_server_up"].samples
    }
    assert up == {"cluster": 0}


def test_without_alerts_and_nodes_that_are_out_no_cluster_is_asked():
    cluster = FakeCluster()
    responder(cluster=cluster).cycle()
    assert cluster.asked == 0


class Broken(Undoable):
    """An action with a fault that its author did not think of."""

    def steps(self, target):
        raise ZeroDivisionError


def test_a_fault_of_an_action_is_for_a_person_and_not_forgotten():
    books = books_with(response("n1", "j1", key="k1", status="acting"))
    config = ResponderConfig(policy=SETTINGS, dry_run=False)
    actions = dict.fromkeys(books.state.responses["k1"].actions, Broken())
    heard = Responder(Settings(config, DriverOnly(), actions), books, lambda: NOW)

    heard.go_on()
    heard.join(300)

    ended = heard.state.responses["k1"]
    assert ("stuck", "It broke off: ZeroDivisionError; see the log.") == (ended.status, ended.text)
