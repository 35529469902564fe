"""A small training driver: it runs the job as processes, and replaces a node when it is told to.

It takes the responder's orders by HTTP, signed, each once by its identity: ends all ranks, leaves
the node out, takes a spare one, and starts all again from the last checkpoint.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from peerwatch_demo.cluster.nodes import JOB_ID, Node, Place
from peerwatch_demo.response.job import JobFiles
from peerwatch_demo.stack.local_server import LocalServer
from peerwatch_demo.stack.process import StackError

# Chosen: an order has some hundred bytes; it may be as old as Stripe's and Slack's webhooks.
_MAX_BYTES = 65_536
_OLDEST_SECONDS = 300.0


class DriverJob(LocalServer):
    """Runs the job on some of the nodes, and takes orders about it.

    Parameters
    ----------
    nodes
        All nodes, the spare ones as well.
    ranks
        How many of them the job has.
    files
        The job's files.
    place
        Where the repository's parts are.
    """

    name = "a training driver"

    def __init__(self, nodes: Sequence[Node], ranks: int, files: JobFiles, place: Place) -> None:
        self._all = {node.name: node for node in nodes}
        self._used = [node.name for node in nodes[:ranks]]
        self._left_out: list[str] = []
        self._files, self._place = files, place
        self._attempt = 0
        self._answers: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._secret = files.folder / "driver.secret"
        self._secret.write_text(secrets.token_hex(16))
        super().__init__(self._handler())

    def start(self) -> str:
        """Start a rank on each node of the job; return the job's id.

        Raises
        ------
        StackError
            If one could not be started.
        """
        for rank, name in enumerate(self._used):
            node = self._all[name]
            node.assign(JOB_ID)
            command = [
                *(self._place.python, "-P", str(Path(__file__).with_name("rank.py"))),
                *(str(self._files.job), "--node", name, "--rank", str(rank)),
                *("--ranks", str(len(self._used)), "--first", self._used[0]),
                *("--attempt", str(self._attempt)),
            ]
            node.start("rank", command, self._place.environment())
        return JOB_ID

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that the job runs on now."""
        return tuple(self._used)

    def settings(self) -> Mapping[str, Any]:
        """Return what the responder is told of it."""
        replace = {
            "type": "driver_http",
            "url": f"http://{self.address}/orders",
            "want": "replace",
            "secret_file": str(self._secret),
        }
        return {"cluster": {}, "actions": {"replace": replace}, "do": ["replace"]}

    def proof(self, node: str) -> str:
        """Return the driver's word that a node is left out; empty: it is not."""
        return f"{node} is left out" if node in self._left_out else ""

    def obey(self, identity: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Do an order, the same one only once; return the answer."""
        with self._lock:
            if identity not in self._answers:
                self._answers[identity] = self._replace(order)
            return self._answers[identity]

    def _replace(self, order: Mapping[str, Any]) -> dict[str, Any]:
        node, spare = str(order.get("node")), self._spare()
        if order.get("want") != "replace" or order.get("job_id") != JOB_ID:
            return {"outcome": "rejected", "message": "only a node of the job can be replaced"}
        if node not in self._used or spare is None:
            return {"outcome": "rejected", "message": f"{node} is not of the job, or none is left"}
        for name in self._used:
            try:
                self._all[name].end("rank")
            except StackError:
                # A node that is dead runs no rank.
                continue
        self._all[node].assign(None)
        self._used[self._used.index(node)] = spare
        self._left_out.append(node)
        self._attempt += 1
        self.start()
        return {"outcome": "done", "message": f"{spare} runs in the place of {node}"}

    def _spare(self) -> str | None:
        taken = {*self._used, *self._left_out}
        return next((name for name in self._all if name not in taken), None)

    def is_ours(self, headers: Mapping[str, str], body: bytes, now: float) -> bool:
        """Say whether an order is signed with the secret that both know, and new."""
        stamp = headers.get("X-Peerwatch-Timestamp", "0")
        text = stamp.encode() + b"." + body
        digest = hmac.new(self._secret.read_bytes().strip(), text, hashlib.sha256).hexdigest()
        signed = hmac.compare_digest(headers.get("X-Peerwatch-Signature", ""), f"sha256={digest}")
        return signed and stamp.isdecimal() and abs(now - int(stamp)) < _OLDEST_SECONDS

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        driver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = min(int(self.headers.get("Content-Length", 0)), _MAX_BYTES)
                body = self.rfile.read(length)
                if not driver.is_ours(dict(self.headers), body, time.time()):
                    self.send_error(401)
                    return
                identity = self.headers.get("Idempotency-Key", "")
                answer = json.dumps(driver.obey(identity, json.loads(body))).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
                """Keep the terminal for the demo's own lines."""

        return Handler
