"""What a person sees of what was done: bounded, cut, and harmless in a browser."""

from __future__ import annotations

import base64
import dataclasses
import html.parser
import json
from collections import Counter

import pytest

from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.health import WithHealth
from peerwatch_common.web.security import SecurityFile
from peerwatch_common.web.server import HttpServer
from peerwatch_responder.actions.driver.cluster import DriverOnly
from peerwatch_responder.audit.row import Row
from peerwatch_responder.policy.plan import Decision, Plan
from peerwatch_responder.policy.state import DoneStep, State
from peerwatch_responder.run.books import Books, Unwritten
from peerwatch_responder.run.history import MAX_RESPONSES, MAX_STEPS, MAX_WAITING, history_of
from peerwatch_responder.run.orders import obey
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.run.site import Site
from peerwatch_responder.run.view import view_of
from peerwatch_responder.settings.config import ResponderConfig
from peerwatch_responder.settings.load import Settings
from response_cases import NOW, SETTINGS, alert, response, state
from web_client import ask, hash_of

HOSTILE = '</code><script>alert("1")</script>\nnode_2 \u202e<b onload=x>'
CORDON = DoneStep("drain", "cordon", is_done=True, text="is unschedulable now", at=NOW - 7000)
# Elements that have no end.
VOID = {"meta", "br"}


class Tags(html.parser.HTMLParser):
    """The elements of a view, and whether each ends where it must."""

    def __init__(self, view):
        super().__init__()
        self.found, self.open = Counter(), []
        self.feed(view.decode())

    def handle_starttag(self, tag, attrs):
        self.found[tag] += 1
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def seen(known, plan=None, unknown=None, *, dry_run=False):
    found = history_of(known, plan, unknown or {}, now=NOW, dry_run=dry_run)
    view = view_of(found)
    assert Tags(view).open == []
    return found, view.decode()


def answered(**changes):
    done = dataclasses.replace(response(key="1f0c9a52d7b3e846"), steps=(CORDON,))
    return dataclasses.replace(done, **changes)


def waits(node="n2"):
    text = "3 nodes were taken out within an hour; budget.nodes_per_hour is 3."
    return Decision(alert(node), "wait", "budget_hour", text, "isolate", ("drain",), "k")


def test_an_empty_view_says_so():
    found, view = seen(State())
    assert (found["responses"], found["waiting"], found["decided"]) == ([], [], False)
    assert "There was no response." in view
    assert "Nothing has been decided yet." in view
    assert "Neither paused nor stopped." in view
    assert "No alert waits." in seen(State(), Plan(()))[1]


def test_what_was_done_stands_with_its_steps_and_how_it_is_undone():
    why = "Rule 'isolate': drain for node n1."
    known = answered(labels=alert(metric="cpu").labels, why=why, text="All is done.")
    known = dataclasses.replace(known, ended_at=NOW - 6990)
    found, view = seen(state(known))
    (each,) = found["responses"]
    assert (each["alert"], each["metric"], each["node"], each["job_id"]) == (
        *("PeerwatchFaultyNode", "cpu", "n1", "j1"),
    )
    assert (each["why"], each["text"], each["is_out"]) == (why, "All is done.", True)
    assert each["undo"] == "peerwatch-responder undo 1f0c9a52d7b3e846"
    assert each["steps"] == [
        {
            "action": "drain",
            "step": "cordon",
            "outcome": "done",
            "at": NOW - 7000,
            "text": "is unschedulable now",
        }
    ]
    for text in (each["undo"], "drain: cordon: <b>done</b>; is unschedulable now", "node is out"):
        assert text in view
    assert "2023-11-14 20:13:20 UTC, ended 2023-11-14 20:16:50 UTC" in view


@pytest.mark.parametrize(
    ("changes", "outcome", "dry_run"),
    [
        ({"status": "acting"}, "done", False),
        ({"status": "undone"}, "undone", False),
        ({"returned_at": NOW}, "done", False),
        ({}, "dry_run", True),
        (
            {"steps": (dataclasses.replace(CORDON, is_done=False),), "status": "acting"},
            "begun",
            False,
        ),
    ],
)
def test_what_cannot_be_undone_has_no_command(changes, outcome, dry_run):
    found, view = seen(state(answered(**changes)), dry_run=dry_run)
    assert found["responses"][0]["undo"] is None
    assert found["responses"][0]["steps"][0]["outcome"] == outcome
    assert "responder undo" not in view


@pytest.mark.parametrize("status", ["done", "failed", "stuck"])
def test_the_command_is_one_that_is_obeyed(status):
    class Undoable:
        def undo(self, target, step, before):
            return "put back"

    rows = [
        ("planned", {"actions": ["drain"], "fingerprint": "f", "starts_at": NOW, "text": "why"}),
        ("step", {"action": "drain", "step": "cordon", "phase": "done", "before": {}, "text": "t"}),
        ("ended", {"status": status, "text": ""}),
    ]
    place = {"key": "k1", "cluster": "", "node": "n1", "job_id": "j1"}
    books = Books(Unwritten(), [Row(1, NOW, kind, {**place, **data}) for kind, data in rows])
    each = seen(books.state)[0]["responses"][0]
    assert (each["why"], each["steps"][0]["text"], each["steps"][0]["at"]) == ("why", "t", NOW)
    assert each["undo"].split()[1:] == ["undo", "k1"]
    obey({"order": "undo", "key": each["undo"].split()[2]}, books, {"drain": Undoable()})
    assert seen(books.state)[0]["responses"][0]["undo"] is None


def test_what_waits_and_what_stops_it():
    known = State(paused="driver upgrade", tripped_at=NOW - 60)
    ignored = dataclasses.replace(waits(), verdict="ignore", reason="answered")
    found, view = seen(known, Plan((waits(), ignored)), {"cluster": "does not answer"})
    assert [each["reason"] for each in found["waiting"]] == ["budget_hour"]
    assert (found["paused"], found["tripped_at"]) == ("driver upgrade", NOW - 60)
    for text in (
        "budget.nodes_per_hour is 3. <small>(budget_hour)",
        "driver upgrade",
        "The breaker tripped</b> at 2023-11-14 22:12:20 UTC",
        "Unknown: cluster.</b> does not answer",
    ):
        assert text in view
    assert "Neither paused" not in view


def test_text_from_elsewhere_is_escaped_and_cut():
    hostile = HOSTILE + "x" * 10_000
    labels = {"alertname": hostile, "metric": hostile}
    steps = (dataclasses.replace(CORDON, step=hostile, text=hostile),)
    texts = {"why": hostile, "text": hostile, "cluster": hostile, "node": hostile}
    known = answered(labels=labels, steps=steps, job_id=hostile, **texts)
    wait = dataclasses.replace(waits(), alert=alert(hostile, hostile), text=hostile)
    found, view = seen(state(known, paused=hostile), Plan((wait,)), {"cluster": hostile})
    plain = seen(state(answered(why="w", text="t", cluster="c"), paused="p"), Plan((waits(),)))[1]
    assert set(Tags(view.encode()).found) == set(Tags(plain.encode()).found)
    assert "<script" not in view
    assert "\u202e" not in view
    assert len(view) < len(plain) + 20_000
    (each,) = found["responses"]
    assert each["node"].startswith(r'</code><script>alert("1")</script>\nnode_2 \u202e')
    assert (len(each["node"]), len(each["text"])) == (120, 400)
    assert "\n" not in json.dumps(found)


def test_only_the_newest_are_shown():
    responses = [response(f"n{each}", ago=each) for each in range(1000)]
    steps = tuple(dataclasses.replace(CORDON, step=f"s{each}") for each in range(200))
    responses[0] = dataclasses.replace(responses[0], steps=steps)
    plan = Plan(tuple(waits(f"w{each}") for each in range(500)))
    found, view = seen(state(*responses[::-1]), plan)
    assert [each["node"] for each in found["responses"]] == [f"n{n}" for n in range(MAX_RESPONSES)]
    assert (found["responses_total"], found["waiting_total"]) == (1000, 500)
    assert len(found["waiting"]) == MAX_WAITING
    assert [each["step"] for each in found["responses"][0]["steps"]] == [
        f"s{each}" for each in range(200 - MAX_STEPS, 200)
    ]
    for text in ("150 earlier steps", "400 more wait", "The newest 100 are shown"):
        assert text in view


@pytest.fixture
def port(tmp_path):
    """The port of a server with a login and one hostile alert."""
    file = tmp_path / "web.yaml"
    file.write_text(json.dumps({"basic_auth_users": {"operator": hash_of("secret")}}))
    settings = Settings(ResponderConfig(policy=SETTINGS), DriverOnly(), {}, frozenset())
    running = Responder(settings, Books(Unwritten()), lambda: NOW)
    running.receive((alert(HOSTILE),))
    running.cycle()
    site = Site(running, Counter(), None, lambda: NOW)
    app = WithHealth("peerwatch-responder", lambda: (True, ""), site)
    facts = WebFacts()
    security = SecurityFile(file, facts).current
    server = HttpServer(
        "peerwatch-responder", "127.0.0.1", 0, app, security=security, facts=facts, max_body_bytes=9
    )
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def test_over_http_it_needs_the_login_and_runs_no_script(port):
    for path in ("/", "/api/v1/history"):
        assert ask(port, path).status == 401
    login = {"Authorization": "Basic " + base64.b64encode(b"operator:secret").decode()}
    view = ask(port, "/", **login)
    assert (view.status, view.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert view.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert view.headers["X-Content-Type-Options"] == "nosniff"
    assert b"<b>Dry run.</b>" in view.body
    assert b"&lt;script&gt;" in view.body
    assert Tags(view.body).found["script"] == 0
    answer = ask(port, "/api/v1/history", **login)
    assert answer.headers["Content-Type"] == "application/json"
    (waiting,) = json.loads(answer.body)["waiting"]
    assert (waiting["reason"], waiting["node"][:7]) == ("firing_unknown", "</code>")
    missing = ask(port, "/history", **login)
    assert missing.status == 404
    assert b"/api/v1/history" in missing.body
