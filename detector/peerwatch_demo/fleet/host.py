"""One process that is many nodes: ``python -m peerwatch_demo.fleet.host``.

    GET  /past?step=S      the nodes' past in OpenMetrics, from the last answer's end until now
    GET  /NODE/metrics     a node's metrics as they are now
    POST /fault?onset=T    the faults begin at that Unix time

A process for each exporter would cost more than a small machine has.
"""

from __future__ import annotations

import argparse
import gc
import resource
import threading
import time
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from peerwatch_common.metrics.exposition import TEXT_CONTENT_TYPE
from peerwatch_demo.fleet.node import FleetNode
from peerwatch_demo.fleet.past import Past
from peerwatch_demo.fleet.plan import Plan, PlannedNode

# Later than any run: the faults have no time yet.
_NEVER_SECONDS = 1e9
# Chosen: long enough for another thread to take its turn.
_TURN_SECONDS = 0.01
# Chosen: eight nodes have some 1,000 open files, what a process may have by default.
_COLLECTED_EVERY = 8


class Host:
    """The nodes of one process; every method waits for the one under way.

    Parameters
    ----------
    plan
        The whole fleet.
    names
        The nodes that live here.
    folder
        Where they keep their files.
    start
        Unix time at which their past begins.
    """

    def __init__(self, plan: Plan, names: Iterable[str], folder: Path, start: float) -> None:
        self._plan = plan
        self._folder = folder
        self._start = start
        self._lock = threading.Lock()
        chosen = set(names)
        # Of nodes that are made: when their fault begins, and when they themselves do.
        self._onset, self._begin = start + _NEVER_SECONDS, start
        self._nodes = {node.name: self._make(node) for node in plan.nodes if node.name in chosen}
        self._past = Past(self._nodes.values(), start)
        # Those that are still to be made anew for the faults.
        self._to_renew: set[str] = set()

    def past(self, step: float) -> Iterable[str]:
        """Yield the samples from where the last call ended until now, a node and time at once.

        Parameters
        ----------
        step
            Seconds between two visits of a node.
        """
        with self._lock:
            yield from self._past.until(time.time, step)

    def exposition(self, name: str, arrived: float) -> bytes:
        """Return a node's metrics as they were when somebody asked.

        Prometheus notes the time at which it asks. Where a request waits for its turn, counters of
        a later time under that time would be a rate that the node never had.

        Parameters
        ----------
        arrived
            Unix time of the request.

        Raises
        ------
        KeyError
            If the node does not live here.
        """
        with self._lock:
            # A node without its fault would go on counting as before, and the one that is made anew
            # afterwards would have counted less: to Prometheus, a counter that began again.
            if arrived >= self._onset:
                self._renew(name)
            return self._nodes[name].exposition(arrived)

    def begin_fault(self, onset: float, arrived: float) -> None:
        """Let the faults begin at a Unix time.

        A simulated node must know the onset before it comes, so the faulty nodes and those of their
        jobs are made anew; their past is the same, for it follows from seed and time.

        Parameters
        ----------
        onset
            Unix time of the faults.
        arrived
            Unix time of this call. The new nodes begin there, so that who asks for them while they
            are made is answered for the time of the request.
        """
        with self._lock:
            # The past is over. It holds the nodes, and each of them some hundred open files.
            self._past = Past((), self._start)
            self._onset, self._begin = onset, arrived
            names = [
                name
                for name, node in self._nodes.items()
                if self._plan.fault_of(node.planned.job_id) is not None
            ]
            self._to_renew.update(names)
        for number, name in enumerate(names, start=1):
            with self._lock:
                self._renew(name)
                # A node refers to itself: until it is collected its files stay open.
                if number % _COLLECTED_EVERY == 0 or number == len(names):
                    gc.collect()
            # Scrapes that wait have their turn; all together would take longer than they may.
            time.sleep(_TURN_SECONDS)

    def _renew(self, name: str) -> None:
        """Make a node anew for the faults, unless it has been or has none to know of."""
        if name not in self._to_renew:
            return
        self._to_renew.remove(name)
        before = self._nodes.pop(name)
        before.stop()
        self._nodes[name] = self._make(before.planned)
        self._nodes[name].visit(self._begin)

    def _make(self, planned: PlannedNode) -> FleetNode:
        root = self._folder / f"{planned.name}-{self._onset:.0f}"
        scenario = self._plan.scenario(planned)
        return FleetNode(planned, scenario, root, self._start, self._onset, self._begin)


class HostServer(ThreadingHTTPServer):
    """Serves the nodes on 127.0.0.1."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, host: Host, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.host = host


class _Handler(BaseHTTPRequestHandler):
    server: HostServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a node's metrics or with the past."""
        arrived = time.time()
        parts = urlsplit(self.path)
        if parts.path == "/past":
            self._stream(self.server.host.past(float(parse_qs(parts.query)["step"][0])))
        elif parts.path == "/-/healthy":
            self._answer(200, b"")
        elif parts.path.endswith("/metrics"):
            name = parts.path.split("/")[1]
            try:
                self._answer(200, self.server.host.exposition(name, arrived))
            except KeyError as error:
                self._answer(404, f"No node {error} lives here.".encode())
        else:
            self._answer(404, b"")

    def do_POST(self) -> None:
        """Let the faults begin."""
        arrived = time.time()
        onset = float(parse_qs(urlsplit(self.path).query)["onset"][0])
        self.server.host.begin_fault(onset, arrived)
        self._answer(200, b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
        """Say nothing: every scrape would be a line."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", TEXT_CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, parts: Iterable[str]) -> None:
        """Send texts as they come; the connection's end is theirs."""
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for part in parts:
            self.wfile.write(part.encode())


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="file with the plan")
    parser.add_argument("--folder", type=Path, required=True, help="where the nodes keep files")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--start", type=float, required=True, help="Unix time of the past's start")
    parser.add_argument("names", nargs="+", help="the nodes that live here")
    options = parser.parse_args(arguments)
    # The exporter keeps a node's files open, some 350; a shell often allows 1,024 in all.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    plan = Plan.from_json(options.plan.read_text())
    host = Host(plan, options.names, options.folder, options.start)
    HostServer(host, options.port).serve_forever()


if __name__ == "__main__":
    main()
