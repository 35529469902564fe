"""The receiver in the pager's place: it records every notification of Alertmanager.

One server takes all of the shipped configuration's receivers by path: ``/page``, ``/ticket``
and ``/heartbeat``.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from peerwatch_demo.stack.local_server import LocalServer


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert inside a notification."""

    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def description(self) -> str:
        """The annotation on one line; empty without one."""
        return " ".join(self.annotations.get("description", "").split())


@dataclass(frozen=True, slots=True)
class Notification:
    """What Alertmanager sent: to which receiver, when it came, and what is in it."""

    path: str
    arrived: float
    status: str
    group_labels: Mapping[str, str]
    alerts: tuple[Alert, ...]

    def firing(self) -> tuple[Alert, ...]:
        """Return the alerts that fire."""
        return tuple(alert for alert in self.alerts if alert.status == "firing")

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that the firing alerts name, each once, in order."""
        flagged = (alert.labels.get("node", "") for alert in self.firing())
        return tuple(dict.fromkeys(node for node in flagged if node))


def parse_notification(path: str, body: bytes, arrived: float) -> Notification:
    """Turn the body of an Alertmanager webhook into a record.

    Raises
    ------
    ValueError
        If the body is not such a message.
    """
    try:
        message: Any = json.loads(body)
        return Notification(
            path=path,
            arrived=arrived,
            status=str(message["status"]),
            group_labels=dict(message["groupLabels"]),
            alerts=tuple(
                Alert(str(raw["status"]), dict(raw["labels"]), dict(raw.get("annotations", {})))
                for raw in message["alerts"]
            ),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"Not an Alertmanager webhook: {body[:200]!r}.") from error


class WebhookReceiver(LocalServer):
    """An HTTP server on 127.0.0.1 that keeps every notification it is sent.

    Parameters
    ----------
    port
        TCP port; 0 takes a free one.
    clock
        Gives the arrival times.
    """

    def __init__(self, port: int = 0, clock: Callable[[], float] = time.time) -> None:
        self._notifications: list[Notification] = []
        self._lock = threading.Lock()
        self._clock = clock
        super().__init__(self._handler(), port)
        self.url = f"http://{self.address}"

    def notifications(self, path: str | None = None) -> tuple[Notification, ...]:
        """Return what has come so far, of one receiver's path or of all."""
        with self._lock:
            return tuple(n for n in self._notifications if path is None or n.path == path)

    def pages(self) -> tuple[Notification, ...]:
        """Return the notifications that would have woken somebody: firing, and to the pager."""
        return tuple(n for n in self.notifications("/page") if n.firing())

    def tickets(self) -> tuple[Notification, ...]:
        """Return the notifications that would have become tickets."""
        return tuple(n for n in self.notifications("/ticket") if n.firing())

    def record(self, path: str, body: bytes) -> None:
        """Keep one notification.

        Raises
        ------
        ValueError
            If the body is not an Alertmanager webhook.
        """
        notification = parse_notification(path, body, self._clock())
        with self._lock:
            self._notifications.append(notification)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    receiver.record(self.path, body)
                except ValueError as error:
                    self.send_error(400, explain=str(error))
                    return
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
                """Keep the terminal for the demo's own lines."""

        return Handler
