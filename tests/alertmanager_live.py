"""A real Alertmanager with shortened timers, and a webhook receiver that counts what it sends."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Debian installs the program under the longer name.
PROGRAM = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")

_TIMERS = ("group_wait", "group_interval", "repeat_interval")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(duration: str) -> float:
    """Return a Prometheus duration such as ``1m30s`` in seconds."""
    parts = re.findall(r"(\d+)(ms|[smh])", duration)
    assert "".join(number + unit for number, unit in parts) == duration, duration
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def scaled(config: dict[str, Any], speed: float, webhook: str) -> dict[str, Any]:
    """Return the configuration with timers ``speed`` times as fast and the webhook's address."""
    config = deepcopy(config)
    routes = [config["route"]]
    while routes:
        route = routes.pop()
        routes += route.get("routes", [])
        for timer in _TIMERS:
            if timer in route:
                route[timer] = f"{round(seconds(route[timer]) / speed * 1000)}ms"
    for receiver in config["receivers"]:
        for hook in receiver["webhook_configs"]:
            hook["url"] = webhook + "/" + hook["url"].rsplit("/", 1)[1]
    return config


@dataclass
class Receiver:
    """Keeps (path, payload) of every notification."""

    notifications: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def count(self, path: str, status: str = "firing", **labels: str) -> int:
        """Return how many notifications of a group with these labels came to ``path``."""
        return sum(
            where == path
            and payload["status"] == status
            and labels.items() <= payload["commonLabels"].items()
            for where, payload in list(self.notifications)
        )


@contextmanager
def webhook_receiver() -> Iterator[Receiver]:
    """Serve a receiver on a free port of the loopback."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.notifications.append((self.path, json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Alertmanager:
    """A running Alertmanager."""

    url: str
    receiver: Receiver

    def post(self, *alerts: dict[str, str], resolved: bool = False) -> None:
        """Send alerts (their labels) as Prometheus does; ``resolved`` ends them now."""
        now = datetime.now(UTC)
        ends = now if resolved else now + timedelta(minutes=5)
        starts = now - timedelta(seconds=1) if resolved else now
        body = [
            {"labels": labels, "startsAt": starts.isoformat(), "endsAt": ends.isoformat()}
            for labels in alerts
        ]
        request = urllib.request.Request(
            self.url + "/api/v2/alerts",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200


@contextmanager
def alertmanager(config: dict[str, Any], folder: Path, speed: float) -> Iterator[Alertmanager]:
    """Run Alertmanager with ``config``, its timers ``speed`` times as fast."""
    assert PROGRAM is not None
    with webhook_receiver() as receiver:
        file = folder / "alertmanager.json"  # JSON is YAML
        file.write_text(json.dumps(scaled(config, speed, receiver.url)))
        address = f"127.0.0.1:{free_port()}"
        with (folder / "alertmanager.log").open("w") as log:
            process = subprocess.Popen(
                [
                    PROGRAM,
                    f"--config.file={file}",
                    f"--storage.path={folder / 'data'}",
                    f"--web.listen-address={address}",
                    "--cluster.listen-address=",
                ],
                stdout=log,
                stderr=log,
            )
            try:
                _wait_until_ready(f"http://{address}", process, folder / "alertmanager.log")
                yield Alertmanager(f"http://{address}", receiver)
            finally:
                process.terminate()
                process.wait(timeout=20)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the server answers; fail with its log when it ends or takes 20 s."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url + "/-/ready", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"Alertmanager did not become ready:\n{log.read_text()}")
