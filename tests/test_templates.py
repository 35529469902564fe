"""How notifications read: the shipped templates by amtool, and by a real Alertmanager."""

from __future__ import annotations

import json
import re
import socketserver
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from email import message_from_bytes
from email.policy import default as default_policy
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import yaml

from alert_labels import CONFIG
from peerwatch_demo.stack.local_server import LocalServer
from peerwatch_demo.stack.servers import Stack, alertmanager, find_program, free_ports
from yaml_files import read_yaml

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = ROOT / "rules" / "templates" / "peerwatch.tmpl"

SUMMARY = "A node has differed from its peers long enough to be flagged as faulty."
UNKNOWN = (
    "Training job 4711 in cluster c1: node-5.example.com is unlike its peers in "
    "tcp_retransmissions (method peerwatch) since 17:48. Why: 282.5 segments/s. First check on "
    "the job's dashboard "
    "whether the whole job has slowed or stopped; if so, take the node out and restart the job."
)
DIAGNOSED = (
    "Restart the job, and examine node-3.example.com: the process of rank 3 is stopped. Training "
    "job 4711: node-3.example.com is named by the job itself (stopped)."
)
DOCUMENT = "Its results can be wrong. First take n1 out, then do what docs/xid.md says of it. More."
NOWHERE = "No exporter answers, anywhere."
PICTURE = "https://peerwatch.example.com/picture?node=node-5&gpu=&expires=17&signature=1f"
PNG = PICTURE.replace("/picture?", "/picture.png?")


def notification(description: str, status: str = "firing", **labels: str) -> dict[str, Any]:
    alert = {
        "status": status,
        "labels": {"alertname": "PeerwatchFaultyNode", "severity": "critical", **labels},
        "annotations": {
            "summary": SUMMARY,
            "description": description,
            "dashboard_url": "/d/peerwatch-job?var-job_id=4711&var-node=node-5",
            "runbook_url": "https://example.com/PeerwatchFaultyNode.md",
            "picture_url": PICTURE,
        },
        "startsAt": "2026-11-21T17:48:05Z",
        "endsAt": "0001-01-01T00:00:00Z",
    }
    return {"receiver": "r", "status": status, "alerts": [alert], "externalURL": ""}


def rendered(name: str, data: dict[str, Any], folder: Path, kind: str = "text") -> str:
    file = folder / "data.json"
    file.write_text(json.dumps(data))
    command = [find_program("amtool"), "template", "render", f"--template.glob={TEMPLATES}"]
    command += [f"--template.type={kind}", f"--template.data={file}"]
    command += ["--template.text={{ template " + json.dumps(name) + " . }}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.strip()


@pytest.mark.parametrize(
    ("description", "labels", "title"),
    [
        pytest.param(
            DIAGNOSED,
            {"node": "node-3.example.com", "job_id": "4711"},
            "node-3.example.com, job 4711: Restart the job, and examine node-3.example.com",
            id="the_order_of_the_diagnosis",
        ),
        pytest.param(
            UNKNOWN,
            {"node": "node-5.example.com", "job_id": "4711", "cluster": "c1", "gpu": "3"},
            "node-5.example.com GPU 3, job 4711, cluster c1: First check on the job's dashboard "
            "whether the whole job has slowed or stopped; if so, take the node out and restart the "
            "job",
            id="what_to_do_first",
        ),
        pytest.param(
            DOCUMENT,
            {"node": "n1"},
            "n1: First take n1 out, then do what docs/xid.md says of it",
            id="a_dot_within_a_name",
        ),
        pytest.param(NOWHERE, {"cluster": "c1"}, f"cluster c1: {SUMMARY[:-1]}", id="the_summary"),
        pytest.param(NOWHERE, {}, SUMMARY[:-1], id="nobody"),
    ],
)
def test_the_first_line_is_what_to_do(description, labels, title, tmp_path):
    data = notification(description, **labels)

    assert title == rendered("peerwatch.title", data, tmp_path)
    assert title == rendered("peerwatch.text", data, tmp_path).splitlines()[0]


def test_what_is_over_says_so(tmp_path):
    data = notification(UNKNOWN, "resolved", node="n1", job_id="4711")

    assert f"Over: n1, job 4711: {SUMMARY[:-1]}" == rendered("peerwatch.title", data, tmp_path)


def test_links_are_in_every_form(tmp_path):
    data = notification(UNKNOWN, node="node-5", job_id="4711")
    dashboard = "https://grafana.example.com/d/peerwatch-job?var-job_id=4711&var-node=node-5"
    runbook = "https://example.com/PeerwatchFaultyNode.md"

    plain = rendered("peerwatch.text", data, tmp_path)
    slack = rendered("peerwatch.slack", data, tmp_path)
    html = rendered("peerwatch.html", data, tmp_path, "html")

    assert f"Picture: {PICTURE}\nDashboard: {dashboard}\nRunbook: {runbook}" in plain
    assert f"<{PICTURE}|Picture>  <{dashboard}|Dashboard>  <{runbook}|Runbook>" in slack
    assert f'<img src="{PNG.replace("&", "&amp;")}"' in html
    assert PNG == rendered("peerwatch.image", data, tmp_path)
    assert f'href="{dashboard.replace("&", "&amp;")}"' in html


def test_html_of_a_job_is_escaped_and_without_a_picture_there_is_none(tmp_path):
    data = notification("<script>alert(1)</script> is odd. First look.", job_id="<b>")
    data["alerts"][0]["annotations"]["picture_url"] = ""

    html = rendered("peerwatch.html", data, tmp_path, "html")

    assert "<script>" not in html
    assert "<b>" not in html
    assert "<img" not in html
    assert "" == rendered("peerwatch.image", data, tmp_path)
    assert "Picture" not in rendered("peerwatch.text", data, tmp_path)


def test_every_alert_that_pages_says_what_to_do_first():
    """The sentence that the title is made of."""
    without = [
        rule["alert"]
        for file in sorted((ROOT / "rules").glob("*.rules.yaml"))
        for group in read_yaml(file)["groups"]
        for rule in group["rules"]
        if rule.get("labels", {}).get("severity") == "critical"
        and ". First "
        not in " ".join(rule["annotations"]["description"].replace("}}", "}}. ").split())
    ]

    # Which place to examine; what the responder did.
    assert set(without) <= {"PeerwatchSharedCause"}


def said(description: str) -> str:
    """Return a description as one line; what a template writes may end a sentence."""
    return " ".join(description.replace("}}", "}}. ").split())


def test_a_real_alertmanager_sends_them(tmp_path):
    """The commented receivers of the example, to a webhook in Slack's place and a mail server."""
    with Mailbox() as mailbox, LocalServer(_Slack) as slack:
        config = yaml.safe_load(uncommented(CONFIG.read_text()))
        config["templates"] = [str(TEMPLATES)]
        config["route"] = {"receiver": "ticket", "group_wait": "0s", "group_by": ["node"]}
        config.pop("inhibit_rules")
        (ticket,) = [each for each in config["receivers"] if each["name"] == "ticket"]
        ticket.pop("webhook_configs")
        del ticket["slack_configs"][0]["api_url_file"]
        ticket["slack_configs"][0]["api_url"] = f"http://{slack.address}/"
        ticket["email_configs"][0] |= {"smarthost": mailbox.address, "require_tls": False}
        config["receivers"] = [ticket]
        _Slack.posted.clear()

        with Stack(tmp_path) as stack:
            server = alertmanager(stack, free_ports(1)[0], json.dumps(config))
            alert = notification(DIAGNOSED, node="node-3.example.com", job_id="4711")["alerts"][0]
            body = [{"labels": alert["labels"], "annotations": alert["annotations"]}]
            post(f"{server.url}/api/v2/alerts", body)
            assert soon(lambda: _Slack.posted and mailbox.received)

    (sent,) = _Slack.posted[0]["attachments"]
    mail = message_from_bytes(mailbox.received[0], policy=default_policy)
    title = "node-3.example.com, job 4711: Restart the job, and examine node-3.example.com"
    assert title == sent["title"] == sent["fallback"] == mail["Subject"]
    assert f"<{PICTURE}|Picture>" in sent["text"]
    assert PNG == sent["image_url"]
    plain = mail.get_body(("plain",)).get_content()
    assert title == plain.splitlines()[0]
    assert PICTURE.replace("&", "&amp;") in mail.get_body(("html",)).get_content()


class _Slack(BaseHTTPRequestHandler):
    """Takes what Alertmanager posts to Slack."""

    posted: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


class _Letter(socketserver.StreamRequestHandler):
    """One SMTP session (RFC 5321), as far as Alertmanager speaks it."""

    server: Mailbox

    def handle(self) -> None:
        self.say("220 here")
        while line := self.rfile.readline():
            command = line.strip().upper()
            if command == b"DATA":
                self.say("354 go on")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.received.append(b"".join(lines))
            if command == b"QUIT":
                self.say("221 bye")
                return
            self.say("250 ok")

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class Mailbox(socketserver.ThreadingTCPServer):
    """A mail server that keeps what it gets, while it is entered."""

    daemon_threads = True

    def __init__(self) -> None:
        self.received: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Letter)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        return f"{host}:{port}"


def uncommented(text: str) -> str:
    """Return the example with the receivers that stand in its comments."""
    return re.sub(
        r"^    # \w+ instead:\n((?:    # .*\n)+?)(?=    # \w+ instead:|  - |\Z|  #)",
        lambda block: re.sub(r"^    # ", "    ", block[1], flags=re.MULTILINE),
        text,
        flags=re.MULTILINE,
    )


def post(url: str, body: object) -> None:
    request = urllib.request.Request(
        url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        assert answer.status == 200


def soon(condition: Callable[[], object]) -> bool:
    """Return whether something holds within a time that no machine needs."""
    end = time.monotonic() + 120
    while not (held := bool(condition())) and time.monotonic() < end:
        time.sleep(0.1)
    return held
