"""Alertmanager is answered whatever hangs behind: what it posted is on the disk by then."""

from __future__ import annotations

import json
import threading

import pytest

from peerwatch_common.web.request import Request
from peerwatch_responder.action import StepState
from peerwatch_responder.actions.driver.cluster import DriverOnly
from peerwatch_responder.audit.journal import Journal
from peerwatch_responder.audit.row import parse_row
from peerwatch_responder.run import servers
from peerwatch_responder.run.books import Books
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.settings.config import ResponderConfig, ServerConfig
from peerwatch_responder.settings.load import Settings
from peerwatch_responder.webhook.app import PATH, WebhookApp
from response_cases import SETTINGS, alert


class Hung:
    """A back end that takes a request and does not answer."""

    name = "do"

    def __init__(self):
        self.asked, self.ends = threading.Event(), threading.Event()

    def steps(self, _target):
        return [self]

    def inspect(self):
        return StepState("open")

    def do(self, _before):
        self.asked.set()
        self.ends.wait(300)
        return "200"

    def undo(self, _target, _step, _before):
        return ""


def payload(each):
    posted = {
        "status": "firing",
        "labels": dict(each.labels),
        "annotations": {},
        "startsAt": "2023-11-14T22:12:20Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": each.fingerprint,
    }
    return json.dumps({"version": "4", "truncatedAlerts": 0, "alerts": [posted]}).encode()


@pytest.mark.parametrize("hangs", ["the back end", "alertmanager"])
def test_a_webhook_is_answered_while_all_hangs(tmp_path, monkeypatch, hangs):
    back_end = Hung()
    faults = [alert(f"n{number}", f"j{number}") for number in range(50)]

    def firing(_server):
        if hangs == "alertmanager":
            back_end.do({})
        return frozenset(each.fingerprint for each in faults)

    monkeypatch.setattr(servers, "firing", firing)
    config = ResponderConfig(
        dry_run=False,
        interval_seconds=0.01,
        policy=SETTINGS,
        alertmanager=ServerConfig(url="http://alertmanager"),
    )
    settings = Settings(config, DriverOnly(), {"drain": back_end}, frozenset({"drain"}))
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        ours = Responder(settings, Books(journal), lambda: faults[0].starts_at + 60)
        app = WebhookApp(ours.receive, None, None, pytest.fail)
        deciding = threading.Thread(target=ours.run, daemon=True)
        deciding.start()
        try:
            for number, each in enumerate(faults):
                body = payload(each)
                answer = app.answer(
                    Request("POST", PATH, "", {}, keep_alive=True, client="", body=body)
                )
                assert answer.status == 200
                rows = [parse_row(line, n) for n, line in enumerate(_lines(path), 1)]
                heard = [row for row in rows if row.kind == "received"]
                assert heard[-1].data["fingerprint"] == each.fingerprint
                if number == 0:
                    assert back_end.asked.wait(300)
            assert not back_end.ends.is_set()
        finally:
            back_end.ends.set()
            ours.stop()
            deciding.join(300)
            ours.join(300)


def _lines(path):
    """Return the whole lines: another thread may be writing one."""
    return path.read_bytes().rpartition(b"\n")[0].splitlines()
