"""A real Alertmanager, the responder as a process, and a training driver that is a command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import fetch, wait_for
from prometheus_client.parser import text_string_to_metric_families

from peerwatch_demo.stack.servers import Stack, alertmanager, free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-3")]

TOKEN = "a-token-of-webhooks"
DRIVER = """
import json, os, sys
order = json.load(sys.stdin)
with open({told!r}, "a") as file:
    file.write(order["node"] + " " + os.environ["PEERWATCH_ACTION_ID"] + "\\n")
print(json.dumps({{"outcome": "done"}}))
"""


class Play:
    """The two programs, and what is done with them."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        self.told = folder / "told"
        self.told.touch()
        self.config = folder / "responder.yaml"
        self.alertmanager, self.port = free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        token = folder / "token"
        token.write_text(TOKEN + "\n")
        self.write(dry_run=False)
        alertmanager(stack, self.alertmanager, self.routes())
        self.responder = self.start()

    def routes(self) -> str:
        hook = {
            "url": f"{self.url}/api/v1/alerts",
            "send_resolved": True,
            "http_config": {"authorization": {"credentials": TOKEN}},
        }
        route = {
            "receiver": "responder",
            "group_by": ["node"],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "1h",
        }
        receivers = [{"name": "responder", "webhook_configs": [hook]}]
        return json.dumps({"route": route, "receivers": receivers})

    def write(self, **changes: Any) -> None:
        driver = DRIVER.format(told=str(self.told))
        rule = {
            "name": "isolate",
            "match": {"alertname": "PeerwatchFaultyNode", "severity": "critical"},
            "do": ["replace"],
        }
        replace = {
            "type": "driver_command",
            "want": "replace",
            "command": [sys.executable, "-c", driver],
        }
        settings = {
            "journal": str(self.folder / "journal.jsonl"),
            "interval_seconds": 0.5,
            "listen": {"port": self.port},
            "web": {"token_file": str(self.folder / "token")},
            "alertmanager": {"url": f"http://127.0.0.1:{self.alertmanager}"},
            "policy": {"rules": [rule], "settle_seconds": 0},
            "actions": {"replace": replace},
            **changes,
        }
        self.config.write_text(json.dumps(settings))

    def start(self) -> Any:
        command = [sys.executable, "-m", "peerwatch_responder", "run", "--config", str(self.config)]
        return self.stack.start("responder", command, ready=f"{self.url}/-/ready")

    def ask(self, command: str, *more: str) -> tuple[int, str]:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "peerwatch_responder",
                command,
                "--config",
                str(self.config),
                *more,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return done.returncode, done.stdout + done.stderr

    def post(self, *nodes: str) -> None:
        now = datetime.now(UTC)
        body = [
            {
                "labels": labels_of(node),
                "startsAt": now.isoformat(),
                "endsAt": (now + timedelta(minutes=30)).isoformat(),
            }
            for node in nodes
        ]
        send(f"http://127.0.0.1:{self.alertmanager}/api/v2/alerts", body)

    @property
    def orders(self) -> list[str]:
        return [line.split()[0] for line in self.told.read_text().splitlines()]

    def reasons(self) -> dict[str, str]:
        status = json.loads(fetch(f"{self.url}/api/v1/status"))
        return {each["node"]: each["reason"] for each in status["decisions"]}

    def metric(self, name: str, **labels: str) -> float:
        families = text_string_to_metric_families(fetch(f"{self.url}/metrics"))
        samples = [each for family in families for each in family.samples]
        (found,) = [each for each in samples if (each.name, each.labels) == (name, labels)]
        return found.value


def labels_of(node: str) -> dict[str, str]:
    return {
        "alertname": "PeerwatchFaultyNode",
        "severity": "critical",
        "job_id": f"job-of-{node}",
        "node": node,
    }


def send(url: str, body: object, token: str = "") -> None:
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        assert answer.status == 200


def stands(play: Play, nodes: list[str], reasons: set[str]) -> bool:
    found = play.reasons()
    return all(found.get(node) in reasons for node in nodes)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    with Stack(tmp_path) as stack:
        yield Play(stack, tmp_path)


def test_one_order_per_fault_and_none_in_a_storm(play: Play) -> None:
    play.post("n1")
    wait_for("the order", lambda: play.orders)
    wait_for("its end", lambda: play.reasons().get("n1") == "answered")
    assert play.orders == ["n1"]
    code, text = play.ask("history")
    assert (code, " done " in text, " n1 " in text) == (0, True, True)
    key = text.split()[0]

    # What was done is known after it was killed, and the alert is sent again.
    play.responder.popen.send_signal(signal.SIGKILL)
    play.responder.popen.wait()
    code, text = play.ask("status")
    assert (code, text) == (0, "0 responses are under way, 0 nodes are out.\n")
    play.responder = play.start()
    play.post("n1", "n2")
    wait_for("the second order", lambda: len(play.orders) == 2)
    wait_for("both answered", lambda: set(play.reasons().values()) == {"answered"})
    assert play.orders == ["n1", "n2"]

    # Five nodes within ten minutes: something else is wrong.
    play.post(*(f"s{each}" for each in range(5)))
    wait_for("the breaker", lambda: play.metric("peerwatch_response_breaker_tripped") == 1)
    # One of them may have come, and been answered, before the others.
    storm = [f"s{each}" for each in range(5)]
    wait_for("all to wait", lambda: stands(play, storm, {"breaker", "answered"}))
    assert len(play.orders) <= 3
    assert "resume resets it" in play.ask("status")[1]

    # A person goes on: one more is in the budget of three an hour.
    code, text = play.ask("resume")
    assert (code, text) == (0, "Resumed; the breaker is reset.\n")
    wait_for("the third order", lambda: len(play.orders) == 3)
    wait_for("the others to wait", lambda: stands(play, storm, {"budget_hour", "answered"}))
    assert len(play.orders) == 3
    assert play.metric("peerwatch_response_budget_remaining", budget="hour") == 0
    done = {"action": "replace", "target": "node", "result": "done"}
    assert play.metric("peerwatch_response_actions_total", **done) == 3
    assert "budget.nodes_per_hour is 3" in play.ask("plan")[1]

    code, text = play.ask("undo", key)
    assert (code, text) == (0, "replace: replace: has no opposite order\n")
    code, text = play.ask("undo", key)
    assert (code, "is undone" in text) == (3, True)
    assert len(set(play.told.read_text().split("\n"))) == 4


def test_what_alertmanager_does_not_say_is_not_done(play: Play) -> None:
    forged = {
        "version": "4",
        "truncatedAlerts": 0,
        "alerts": [
            {
                "status": "firing",
                "labels": labels_of("forged"),
                "annotations": {},
                "startsAt": datetime.now(UTC).isoformat(),
                "endsAt": "0001-01-01T00:00:00Z",
                "fingerprint": "0123456789abcdef",
            }
        ],
    }
    hook = f"{play.url}/api/v1/alerts"
    for token in ("", "another"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            send(hook, forged, token)
    assert play.reasons() == {}
    send(hook, forged, TOKEN)
    wait_for("the decision", lambda: play.reasons().get("forged") == "not_firing")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        send(hook, {**forged, "version": "5"}, TOKEN)
    with pytest.raises(urllib.error.HTTPError, match="413"):
        send(hook, "x" * 2_000_000, TOKEN)

    # Paused, nothing begins; and a dry run shows what it would do.
    assert play.ask("pause", "driver upgrade")[0] == 0
    play.post("n1")
    wait_for("the pause", lambda: play.reasons().get("n1") == "paused")
    play.responder.popen.send_signal(signal.SIGTERM)
    assert play.responder.popen.wait(timeout=300) == 0
    play.write(dry_run=True)
    play.responder = play.start()
    play.post("n2")
    wait_for("the decision", lambda: play.reasons().get("n2") == "answered")
    assert play.metric("peerwatch_response_dry_run") == 1
    assert play.orders == []


def test_mistakes_in_settings_are_told_at_once(play: Play) -> None:
    play.write(actions={"replace": {"type": "driver_comand"}}, journal=7, extra=1)
    code, text = play.ask("run", "--check")
    assert code == 2
    assert "2 mistakes" in text
    play.write(actions={"replace": {"type": "driver_comand"}}, alertmanager=None)
    code, text = play.ask("run", "--check")
    assert code == 2
    assert "actions.replace: there is no action 'driver_comand'; did you mean" in text
    assert "alertmanager: is missing" in text
    play.write(dry_run=False)
    assert play.ask("run", "--check") == (0, "The settings are sound.\n")
    # One journal has one responder.
    code, text = play.ask("run")
    assert code == 1
    assert "another responder" in text
