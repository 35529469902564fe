"""Several small training jobs in one exposition for Prometheus, without exporters.

It says which nodes run which job and how loaded each node is. Its first answer brings the
minutes before as well, with their times, so that nobody has to wait for a past.
"""

from __future__ import annotations

import random
import time
from http.server import BaseHTTPRequestHandler

from peerwatch_demo.stack.local_server import LocalServer

PAST_SECONDS = 150
METRIC = "job_node:load:ratio"


class TrainingExposition(LocalServer):
    """The exposition.

    Parameters
    ----------
    jobs
        Ids of the jobs.
    nodes
        Nodes of each.
    """

    def __init__(self, jobs: tuple[str, ...], nodes: int) -> None:
        self.names = {job: [f"{job}-node-{node}" for node in range(nodes)] for job in jobs}
        self.loaded: set[str] = set()
        self._random = random.Random(1)
        self._past_served = False
        super().__init__(self._handler())

    def text(self) -> str:
        """Return the exposition as it is now."""
        lines = []
        for job, nodes in self.names.items():
            for node in nodes:
                labels = f'job_id="{job}",node="{node}"'
                lines.append(f"host_job_info{{{labels}}} 1")
                lines.append(f'exporter_build_info{{node="{node}",version="0.1.0"}} 1')
                lines += [f"{METRIC}{{{labels}}} {sample}" for sample in self._samples(node)]
        self._past_served = True
        return "\n".join(lines) + "\n"

    def _samples(self, node: str) -> list[str]:
        if self._past_served:
            return [f"{self._load(node):.4f}"]
        now = int(time.time())
        times = range(now - PAST_SECONDS, now)
        return [f"{self._load(node):.4f} {second * 1000}" for second in times]

    def _load(self, node: str) -> float:
        return (0.9 if node in self.loaded else 0.4) + self._random.gauss(0, 0.005)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        exposition = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exposition.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
