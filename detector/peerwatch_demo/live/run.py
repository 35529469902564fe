"""One run: a fresh cluster, a healthy stretch, one fault, and all that the detector says of it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import yaml

from peerwatch_demo.cluster.cluster import Cluster, node_names
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.live.faults import FAULTS_VARIABLE, LiveFault, Ongoing
from peerwatch_demo.live.log import HEALTH, Run, Said
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.load import load_average
from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.servers import Stack
from peerwatch_demo.stack.watch import fetch_json
from peerwatch_demo.stack.webhook import WebhookReceiver

# Tells the job by what to communicate; train.py has it too.
BACKEND_VARIABLE = "PEERWATCH_LIVE_BACKEND"
# Chosen: delays of findings are told in seconds.
_POLL_SECONDS = 0.5
# The detector learns the job's usual in it: chosen, some two hundred steps of 0.4 s.
_HEALTHY_SECONDS = 90
# Statistics over counters wait for four minutes of deviation, and see it a scrape and a lag later:
# two minutes more.
_LISTEN_SECONDS = 360.0
# After the first right finding, for wrong ones that follow it: chosen, some evaluations.
_AFTERWARDS_SECONDS = 20.0
# Chosen: a line that says it goes on, twelve in the longest wait.
_PROGRESS_SECONDS = 30.0


class LiveRun:
    """One cluster and what is done to it.

    Parameters
    ----------
    place
        Where the repository's parts are.
    directory
        Logs and data; new.
    console
        The terminal.
    ranks
        Size of the job, a node each.
    namespaces
        Whether nodes have networks of their own.
    backend
        By what the ranks communicate: ``gloo``, or ``nccl`` on this machine's first GPU.
    """

    def __init__(
        self,
        place: Place,
        directory: Path,
        console: Console,
        ranks: int,
        *,
        namespaces: bool,
        backend: str = "gloo",
    ) -> None:
        self._place = place
        self._directory = directory
        self._console = console
        self._ranks = ranks
        self._namespaces = namespaces
        self._backend = backend

    def fault(self, fault: LiveFault, repeat: int, place: int) -> Run:
        """Do a fault to the node at a place and return what came of it.

        Raises
        ------
        StackError
            If something could not be started.
        """
        with ExitStack() as outer:
            cluster, listener, faults = self._start(outer)
            said = self._listen(listener, _HEALTHY_SECONDS, None)
            if said:
                raise StackError(f"Before any fault the detector said: {said[0]}.")
            node, ongoing, load = cluster.nodes[place], Ongoing(), load_average()
            outer.callback(ongoing.end)
            self._console.line(f"FAULT {fault.name} on {node.name} of {self._ranks}", "event")
            began = time.time()
            fault.inject(cluster.site, node, faults, ongoing)
            listener.begin(began)
            run = Run(
                fault.name, repeat, self._ranks, node.name, tuple(sorted(fault.classes)),
                fault.blames_node, 0.0, (), load,
            )  # fmt: skip
            said = self._listen(listener, _LISTEN_SECONDS, run)
            return with_said(run, time.time() - began, said)

    def health(self, minutes: float) -> Run:
        """Let the job train and return what was said all the same.

        Raises
        ------
        StackError
            If something could not be started.
        """
        with ExitStack() as outer:
            _, listener, _ = self._start(outer)
            listener.begin(time.time())
            run = Run(HEALTH, 1, self._ranks, "", (), False, 0.0, (), load_average())
            self._console.line(f"{minutes:g} minutes of healthy training", "event")
            return with_said(run, 60 * minutes, self._listen(listener, 60 * minutes, None))

    def _start(self, outer: ExitStack) -> tuple[Cluster, Listener, Path]:
        stack = outer.enter_context(Stack(self._directory))
        receiver = outer.enter_context(WebhookReceiver())
        faults = self._directory / "faults"
        faults.mkdir()
        cluster = Cluster(
            node_names(self._ranks),
            self._place,
            stack,
            self._console,
            namespaces=self._namespaces,
            script=Path(__file__).with_name("train.py"),
            environment={FAULTS_VARIABLE: str(faults), BACKEND_VARIABLE: self._backend},
            logs=True,
        )
        cluster.start_nodes()
        server = cluster.start_servers(receiver)
        cluster.wait_for_training()
        detect = cluster.start_configured_detector(
            production_config(server.url, cluster.detector_port)
        )
        return cluster, Listener(detect.url), faults

    def _listen(self, listener: Listener, seconds: float, run: Run | None) -> list[Said]:
        """Collect what is said; with a run, end soon after all of it is right."""
        began = spoke = time.monotonic()
        end = began + seconds
        said: list[Said] = []
        while (now := time.monotonic()) < end:
            for item in listener.poll():
                said.append(item)
                spoke = now
                self._console.line(
                    f"{item.seconds:.0f} s: {item.kind} {item.class_name} {item.node} "
                    f"({item.confidence})",
                    "event",
                )
            if run is not None and _is_done(with_said(run, 0.0, said)):
                end = min(end, now + _AFTERWARDS_SECONDS)
                run = None
            if now - spoke > _PROGRESS_SECONDS:
                spoke = now
                self._console.line(f"{end - now:.0f} s left", "quiet")
            time.sleep(_POLL_SECONDS)
        return said


class Listener:
    """Asks the detector what stands, and tells everything once.

    Parameters
    ----------
    detector
        Its base URL.
    """

    def __init__(self, detector: str) -> None:
        self._url = f"{detector}/api/v1/jobs"
        self._known: set[tuple[object, ...]] = set()
        self._began = time.time()

    def begin(self, began: float) -> None:
        """Count seconds from this Unix time."""
        self._began = began

    def poll(self) -> list[Said]:
        """Return what is new; nothing from a detector that does not answer."""
        answer = fetch_json(self._url)
        new = []
        for kind, item in _items(answer or {"jobs": []}):
            finding = kind == "finding"
            said = Said(
                round(time.time() - self._began, 1),
                kind,
                item["node"],
                None if finding else item["rank"],
                item["metric"] if finding else item["class"],
                item["severity"] if finding else item["confidence"],
            )
            key = (kind, said.node, said.rank, said.class_name, said.confidence)
            if key not in self._known:
                self._known.add(key)
                new.append(said)
        return new


def _items(answer: dict) -> list[tuple[str, dict]]:  # type: ignore[type-arg]
    return [
        (kind, item)
        for job in answer["jobs"]
        for kind, name in (("finding", "findings"), ("verdict", "diagnoses"))
        for item in job[name]
    ]


def _is_done(run: Run) -> bool:
    return run.right_class and (run.right_node if run.blames_node else True)


def with_said(run: Run, seconds: float, said: list[Said]) -> Run:
    """Return a run with what was said in so many seconds."""
    return replace(run, seconds=round(seconds, 1), said=tuple(said))


def production_config(prometheus: str, port: int) -> str:
    """Return a detector's configuration with nothing but its surroundings: all else is default."""
    config = {"prometheus": {"url": prometheus}, "listen": {"address": "127.0.0.1", "port": port}}
    return yaml.safe_dump(config)
