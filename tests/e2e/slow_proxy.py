"""A proxy in front of an exporter on a busy node: every answer comes late, by another time."""

from __future__ import annotations

import random
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler

from peerwatch_demo.stack.local_server import LocalServer

_PASSED_ON = ("Accept", "X-Prometheus-Scrape-Timeout-Seconds")


class SlowProxy(LocalServer):
    """Holds each request back before it passes it on.

    Parameters
    ----------
    target
        Base URL of the exporter.
    longest_seconds
        Requests are held back for 0 to so many seconds.
    seed
        Of these times.
    """

    def __init__(self, target: str, longest_seconds: float, seed: int = 1) -> None:
        rng, lock = random.Random(seed), threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with lock:
                    pause = rng.uniform(0, longest_seconds)
                time.sleep(pause)
                headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
                request = urllib.request.Request(target + self.path, headers=headers)
                with urllib.request.urlopen(request, timeout=300) as answer:
                    body = answer.read()
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)
