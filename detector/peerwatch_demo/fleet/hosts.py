"""The processes that are the fleet's nodes, and their past on its way into Prometheus."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.fleet.memory_folder import MemoryFolder, remove_left_behind
from peerwatch_demo.fleet.plan import SMALLEST, Plan, PlannedNode
from peerwatch_demo.stack.process import START_SECONDS, StackError, free_ports, tied, wait_http
from peerwatch_demo.stack.servers import Stack, Target, find_program

# More processes than CPUs gain nothing, and a few serve the largest fleet (plan.LARGEST).
_MOST_HOSTS = 4
_MEMORY = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
# Of files in memory; an H100 node with its NICs has some 1800, of a page each.
_NODE_BYTES = 12e6
# As long as the past may take (_LONGEST_SECONDS).
_PAST_SECONDS = 600.0
# How often it is reported how far the past has come: chosen, for who watches.
_PROGRESS_SECONDS = 10.0
# Two idle cores take a minute for 64 nodes, and some eight at a load of 20. What would take longer
# is given up once this much is known of it.
_LONGEST_SECONDS, _KNOWN_AFTER_SECONDS = 600.0, 40.0


@dataclass(frozen=True, slots=True)
class Host:
    """A process and the nodes that live in it."""

    url: str
    nodes: tuple[PlannedNode, ...]


class Hosts:
    """All processes of a fleet.

    Parameters
    ----------
    stack
        Takes them down again.
    place
        Where the repository's parts are.
    plan
        The fleet.
    start
        Unix time at which the fleet's past begins.
    """

    def __init__(self, stack: Stack, place: Place, plan: Plan, start: float) -> None:
        self._stack = stack
        self._place = place
        self._plan = plan
        self._start = start
        self._hosts: list[Host] = []

    @property
    def targets(self) -> list[Target]:
        """What Prometheus is to scrape."""
        return [
            Target(
                node.labels["job"],
                host.url.removeprefix("http://"),
                {"__metrics_path__": f"/{node.name}/metrics", **node.labels},
            )
            for host in self._hosts
            for node in host.nodes
        ]

    def start(self) -> None:
        """Start the processes and wait until all nodes are there.

        Raises
        ------
        StackError
            If one ends or does not serve in time.
        """
        folder = self._node_files()
        plan = self._stack.directory / "plan.json"
        plan.write_text(self._plan.to_json())
        count = min(os.cpu_count() or 1, _MOST_HOSTS)
        started = []
        for number, port in enumerate(free_ports(count)):
            nodes = self._plan.nodes[number::count]
            host = Host(f"http://127.0.0.1:{port}", nodes)
            command = [self._place.python, "-m", "peerwatch_demo.fleet.host"]
            command += ["--plan", str(plan), "--folder", str(folder), "--port", str(port)]
            command += ["--start", repr(self._start), *(node.name for node in nodes)]
            environment = self._place.environment()
            started.append(self._stack.start(f"nodes-{number}", command, environment=environment))
            self._hosts.append(host)
        for host, process in zip(self._hosts, started, strict=True):
            wait_http(f"{host.url}/-/healthy", process)

    def load_past(self, step: float, data: Path, report: Callable[[str], None]) -> None:
        """Put what passed since the last call, until now, into a Prometheus' folder.

        The Prometheus must not run yet.

        Parameters
        ----------
        step
            Seconds between two samples of a series.
        data
            The folder.
        report
            Called every 10 s with how far it has come.

        Raises
        ------
        StackError
            If a process fails to write its past or promtool to load it, or the machine would take
            more than ten minutes for it.
        """
        began = time.monotonic()
        files = [self._stack.directory / f"past-{number}.txt" for number in range(len(self._hosts))]
        reached = dict.fromkeys(files, self._start)

        def note(file: Path, stamp: float) -> None:
            reached[file] = stamp

        def so_far() -> None:
            there, whole = min(reached.values()) - self._start, time.time() - self._start
            report(f"{there / 60:.1f} of {whole / 60:.1f} minutes are simulated")
            self._require_pace(there / whole, time.monotonic() - began)

        _together(
            (
                partial(_save, f"{host.url}/past?step={step:g}", file, partial(note, file))
                for host, file in zip(self._hosts, files, strict=True)
            ),
            so_far,
        )
        _together(
            (partial(_load, file, data) for file in files),
            lambda: report("promtool puts them into Prometheus' storage"),
        )

    def _require_pace(self, share: float, seconds: float) -> None:
        """Raise StackError if what has come of the past shows that it would take too long."""
        if seconds < _KNOWN_AFTER_SECONDS or seconds <= share * _LONGEST_SECONDS:
            return
        smaller = len(self._plan.nodes) > SMALLEST
        remedy = f" or take a smaller fleet (FLEET={SMALLEST})" if smaller else ""
        raise StackError(
            f"In {seconds:.0f} s {share:.0%} of the fleet's past was simulated: this machine is "
            f"too busy for {len(self._plan.nodes)} nodes. End what else runs here{remedy}, and "
            "try again."
        )

    def begin_fault(self, onset: float) -> None:
        """Let the faults begin at a Unix time.

        Raises
        ------
        StackError
            If a process does not take it.
        """
        requests = [
            urllib.request.Request(f"{host.url}/fault?onset={onset!r}", method="POST")  # noqa: S310
            for host in self._hosts
        ]
        _together(partial(_ask, request) for request in requests)

    def _node_files(self) -> Path:
        """Return the directory of the nodes' files: in memory where there is room, as /proc is."""
        if os.access(_MEMORY, os.W_OK | os.X_OK):
            remove_left_behind(_MEMORY, os.geteuid())
        wanted = 2 * _NODE_BYTES * len(self._plan.nodes)
        if not os.access(_MEMORY, os.W_OK | os.X_OK) or shutil.disk_usage(_MEMORY).free < wanted:
            return self._stack.directory / "nodes"
        folder = MemoryFolder.make(_MEMORY)
        self._stack.on_stop(folder.remove)
        return folder.path


def _save(url: str, file: Path, note: Callable[[float], None]) -> None:
    """Keep an answer in a file, with the end that OpenMetrics wants; note the times it comes to."""
    with urllib.request.urlopen(url, timeout=_PAST_SECONDS) as answer, file.open("wb") as out:  # noqa: S310
        while part := answer.read(1 << 20):
            out.write(part)
            # The last whole line ends with its sample's time.
            if line := part.rpartition(b"\n")[0]:
                note(float(line.rpartition(b" ")[2]))
        out.write(b"# EOF\n")


def _load(file: Path, data: Path) -> None:
    """Turn a file into a block of Prometheus' storage, and remove it."""
    command = [find_program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    ended = subprocess.run(
        tied([*command, str(file), str(data)]), capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise StackError(f"promtool could not load {file.name}: {ended.stderr[-500:]}")
    file.unlink()


def _ask(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request, timeout=START_SECONDS):  # noqa: S310 - our own address
        pass


def _together(
    tasks: Iterable[Callable[[], None]], meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Do several things at once and wait for all; call ``meanwhile`` every 10 s.

    Raises
    ------
    StackError
        With what went wrong first.
    """
    pool = ThreadPoolExecutor(_MOST_HOSTS)
    try:
        futures = [pool.submit(task) for task in tasks]
        while wait(futures, _PROGRESS_SECONDS).not_done:
            meanwhile()
    finally:
        # After a Ctrl-C they are not waited for: what they wait for is taken down next.
        pool.shutdown(wait=False, cancel_futures=True)
    for future in futures:
        try:
            future.result()
        except OSError as error:
            raise StackError(f"A process of the fleet does not answer: {error}") from error
