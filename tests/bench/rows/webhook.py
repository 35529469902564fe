"""What Alertmanager waits for when every back end hangs, beside a webhook of a few lines of Flask.

The responder listens on a port, its Alertmanager and its actions take requests and never answer.
The plain way is what people write: a handler that asks Alertmanager and acts before it answers,
with a time limit of 5 s. The floor is a server that takes the post and says 200.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import flask
import numpy as np
import requests
from werkzeug.serving import make_server

from bench.measurement import Goal, Measurement, alone
from peerwatch_common.web.response import Response
from peerwatch_common.web.server import HttpServer
from peerwatch_responder.action import StepState
from peerwatch_responder.actions.driver.cluster import DriverOnly
from peerwatch_responder.audit.journal import Journal
from peerwatch_responder.run.books import Books
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.settings.config import ResponderConfig, ServerConfig
from peerwatch_responder.settings.load import Settings
from peerwatch_responder.webhook.app import PATH, WebhookApp
from response_cases import SETTINGS, alert

_POSTS, _PLAIN_POSTS = 500, 3
_LIMIT_SECONDS = 5.0


class _Hanging:
    """A back end that takes a request and does not answer."""

    name = "drain"

    def __init__(self, port: int) -> None:
        self._port = port

    def steps(self, _target: object) -> list[_Hanging]:
        return [self]

    def inspect(self) -> StepState:
        return StepState("open")

    def do(self, _before: object) -> str:
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.recv(1)
        return ""

    def undo(self, *_: object) -> str:
        return ""


class _Yes:
    def answer(self, _request: object) -> Response:
        return Response(200, b"")


def _posts(port: int, path: str, bodies: list[bytes]) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    seconds = []
    for body in bodies:
        began = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        seconds.append(time.perf_counter() - began)
        if answer.status not in {200, 504}:
            raise RuntimeError(f"the webhook answered {answer.status}")
    return seconds


def _body(number: int) -> bytes:
    each = alert(f"n{number}", f"j{number}")
    posted = {"status": "firing", "labels": dict(each.labels), "annotations": {}}
    posted |= {"startsAt": "2023-11-14T22:12:20Z", "endsAt": "0001-01-01T00:00:00Z"}
    posted["fingerprint"] = each.fingerprint
    return json.dumps({"version": "4", "truncatedAlerts": 0, "alerts": [posted]}).encode()


def _served(app: object, bodies: list[bytes]) -> list[float]:
    server = HttpServer("bench", "127.0.0.1", 0, app, max_body_bytes=1 << 20)
    server.start()
    try:
        return _posts(server.port, PATH, bodies)
    finally:
        server.stop()


def _ours(hanging: int, bodies: list[bytes], directory: Path) -> list[float]:
    back_end = _Hanging(hanging)
    config = ResponderConfig(
        dry_run=False,
        interval_seconds=0.1,
        policy=SETTINGS,
        alertmanager=ServerConfig(url=f"http://127.0.0.1:{hanging}"),
    )
    settings = Settings(config, DriverOnly(), {"drain": back_end}, frozenset({"drain"}))
    with Journal(directory / "journal.jsonl") as journal:
        responder = Responder(settings, Books(journal), time.time)
        threading.Thread(target=responder.run, daemon=True).start()
        found = _served(WebhookApp(responder.receive, None, None, lambda *_: None), bodies)
        rows = (directory / "journal.jsonl").read_bytes().count(b'"received"')
        if rows < len(bodies):
            raise RuntimeError(f"{rows} of {len(bodies)} alerts are on the disk")
        # Its threads wait for back ends for ever, so it is not joined.
        responder.stop()
        time.sleep(1)
    return found


def _plain(hanging: int, bodies: list[bytes]) -> list[float]:
    site = flask.Flask("plain")

    @site.post("/")
    def webhook() -> tuple[str, int]:
        try:
            url = f"http://127.0.0.1:{hanging}/api/v2/alerts"
            requests.get(url, timeout=_LIMIT_SECONDS)
        except requests.Timeout:
            return "Alertmanager does not answer", 504
        return "", 200

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, site, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return _posts(server.port, "/", bodies)
    finally:
        server.shutdown()


def measurements(_options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the 99th percentile of the answers."""
    bodies = [_body(number) for number in range(_POSTS)]
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as hangs:
        port = hangs.getsockname()[1]
        with tempfile.TemporaryDirectory() as name:
            ours = _ours(port, bodies, Path(name))
        plain = _plain(port, bodies[:_PLAIN_POSTS])
    floor = _served(_Yes(), bodies)
    yield Measurement(
        f"responder, webhook while every back end hangs, p99 of {_POSTS} posts",
        "ms",
        np.quantile(ours, 0.99) * 1e3,
        np.quantile(plain, 0.99) * 1e3,
        f"Flask handler that asks first, {_LIMIT_SECONDS:.0f} s limit",
        np.quantile(floor, 0.99) * 1e3,
        "the same server says 200",
        goals=(Goal(100),),
    )


if __name__ == "__main__":
    # Threads that wait for back ends for ever must not keep the program.
    alone(measurements)
    sys.stdout.flush()
    os._exit(0)
