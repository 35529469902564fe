"""The demo's training job with everything that watches it: what every run starts first.

Nodes with a rank and an exporter each, Prometheus and Alertmanager, then the detector. Everything
is started through one ``Stack``, so whatever ends the run takes all of it down.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from peerwatch_demo.cluster import detector, nodes
from peerwatch_demo.cluster.faults import Site
from peerwatch_demo.cluster.namespaces import Network, Shape
from peerwatch_demo.cluster.nodes import JOB_ID, Node, NodeSize, Place
from peerwatch_demo.cluster.settings import Patience
from peerwatch_demo.stack import watch
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.servers import (
    Server,
    Stack,
    Target,
    alertmanager,
    alertmanager_config,
    free_ports,
    prometheus,
    prometheus_config,
)
from peerwatch_demo.stack.webhook import WebhookReceiver

# Chosen: 400 Mbit/s with room for bursts of a whole gradient, so that nothing is dropped.
_HEALTHY_LINK = Shape(rate_bits=400_000_000, burst_bytes=256_000, limit_bytes=8_000_000)
# How often the terminal shows progress while nothing new happens: chosen, for who watches it.
PROGRESS_SECONDS = 5.0
# As any server of the demo has to start (stack/process.py).
_FIRST_STEP_SECONDS = 300.0
# Rank 0 reports every 5 steps, about once a second in healthy training: five times that.
_SLOW_SECONDS = 5.0


class Cluster:
    """The nodes of one run, their network, and the servers that watch them.

    Parameters
    ----------
    names
        Of the nodes, one rank on each.
    place
        Where the repository's parts are.
    stack
        What everything is started through; its directory is the run's.
    console
        The terminal.
    namespaces
        Whether every node has a network namespace of its own.
    script, environment
        What the ranks run, and variables for it; the demo's job by default.
    logs
        Whether exporters read what the ranks print.
    hosts
        Names of further namespaces beside the nodes' own.

    Attributes
    ----------
    job_id
        The training job, as its exporters name it.
    """

    def __init__(
        self,
        names: Sequence[str],
        place: Place,
        stack: Stack,
        console: Console,
        *,
        namespaces: bool,
        script: Path | None = None,
        environment: Mapping[str, str] | None = None,
        logs: bool = False,
        hosts: Sequence[str] = (),
    ) -> None:
        self.job_id = JOB_ID
        self._logs = logs
        self.nodes: list[Node] = []
        self.prometheus: Server | None = None
        self.alertmanager: Server | None = None
        self._names = list(names)
        self._script = script or place.script
        self._environment = environment or {}
        self._place = place
        self._stack = stack
        self._console = console
        self._network = Network([*self._names, *hosts], _HEALTHY_LINK) if namespaces else None
        self._size = NodeSize()
        self.detector_port = 0

    @property
    def site(self) -> Site:
        """What a fault may act on."""
        return Site(self._place, self._size, self._network)

    def node(self, name: str) -> Node:
        """Return the node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def start_nodes(self) -> None:
        """Boot the nodes, start the job and the exporters, and wait until these answer.

        Raises
        ------
        StackError
            If something could not be started.
        """
        say, stack, network = self._console.line, self._stack, self._network
        if network is not None:
            stack.on_stop(network.close)
            network.open()
            say(f"{len(self._names)} network namespaces, joined by a bridge, 400 Mbit/s each")
        ports = free_ports(len(self._names))
        place, size, inside = self._place, self._size, network is not None
        self.nodes = nodes.make_nodes(self._names, stack.directory / "nodes", ports, network)
        for node in self.nodes:
            enter = network.enter(node.name) if network else ()
            node.boot(stack, place, enter)
        stack.on_stop(lambda: nodes.stop_together(self.nodes))
        self.start_job()
        for node in self.nodes:
            nodes.start_exporter(node, place, size, namespaces=inside, logs=self._logs)
        for node in self.nodes:
            nodes.wait_exporter(node)

    def start_job(self) -> None:
        """Start a rank on each node, as a launcher does.

        Raises
        ------
        StackError
            If one could not be started.
        """
        (port,) = free_ports(1)
        for node in self.nodes:
            node.assign(self.job_id)
            nodes.start_rank(
                *(node, self.nodes, self._place, port, self._script, self._environment),
                namespaces=self._network is not None,
            )
        self._console.line(
            f"a node each: one rank of training job {self.job_id} (torch, gloo) and one exporter"
        )

    @property
    def rank_log(self) -> Path:
        """What rank 0 prints."""
        return self.nodes[0].rank_log

    def notifications(self, receiver: WebhookReceiver) -> str:
        """Return Alertmanager's configuration: the shipped one, with our receiver."""
        return alertmanager_config(self._place.alertmanager_example, receiver.url)

    def targets(self) -> list[Target]:
        """Return what Prometheus scrapes: the nodes and the detector."""
        own = Target(detector.DETECTOR_JOB, f"127.0.0.1:{self.detector_port}", {})
        return [*(node.target for node in self.nodes), own]

    def start_servers(self, receiver: WebhookReceiver) -> Server:
        """Start Alertmanager and Prometheus and return the latter."""
        ports = free_ports(3)
        self.detector_port = ports[2]
        notifier = alertmanager(self._stack, ports[1], self.notifications(receiver))
        config = prometheus_config(
            self.targets(), rules=self._place.rules, alertmanager=notifier.url
        )
        server = prometheus(self._stack, ports[0], config)
        self.alertmanager, self.prometheus = notifier, server
        self._console.line(
            "exporters answer; Prometheus (scrapes every second) and Alertmanager are up, with "
            "the shipped rules and routes"
        )
        return server

    def wait_for_training(self) -> None:
        """Wait until rank 0 reports a step.

        Raises
        ------
        StackError
            If none comes; with the end of its log.
        """
        began = last_line = time.monotonic()
        while not watch.progress(self.rank_log):
            now = time.monotonic()
            if now - began > _FIRST_STEP_SECONDS:
                raise StackError(f"No training step in {_FIRST_STEP_SECONDS:g} s:\n{self._tail()}")
            if now - last_line >= PROGRESS_SECONDS:
                last_line = now
                self._console.line("ranks load torch and find each other", "quiet")
            time.sleep(0.2)
        self._console.line(f"training runs: {self.progress()}")

    def learn(self, seconds: int, models: Path) -> None:
        """Let the job settle, then train models on some seconds of it, written to ``models``.

        Raises
        ------
        StackError
            If the job stands still or training the models fails.
        """
        self.settle()
        start, before = time.time(), watch.progress(self.rank_log)
        self.pass_time(seconds, "healthy stretch for the models to learn from")
        if watch.progress(self.rank_log) == before:
            raise StackError(f"Training stands still, before any fault:\n{self._tail()}")
        config = self.detector_config(None)
        training = detector.train_models(
            *(self._stack, self._place, config, start, time.time(), models), job_id=self.job_id
        )
        self._console.line("peerwatch-detector train: an LSTM-VAE for each metric")
        detector.follow_training(training, lambda line: self._console.line(f"  {line}", "quiet"))

    def settle(self) -> None:
        """Let the first seconds pass: they are torch warming up, not training."""
        self.pass_time(5, "the job settles")

    def start_detector(self, models: Path) -> Server:
        """Start the detector and wait until it has read Prometheus."""
        config = self.detector_config(models)
        detect = self.start_configured_detector(config)
        self._console.line("peerwatch-detector run: it reads Prometheus and evaluates every second")
        return detect

    def start_configured_detector(self, config: str) -> Server:
        """Start the detector with this configuration and wait until it has read Prometheus."""
        return detector.start_detector(self._stack, self._place, config, self.detector_port)

    def detector_config(self, models: Path | None) -> str:
        """Return the detector's configuration file."""
        assert self.prometheus is not None, "start_servers() comes first"
        return detector.detector_config(
            self.prometheus.url,
            self.detector_port,
            models,
            Patience(),
            namespaces=self._network is not None,
        )

    def pass_time(self, seconds: int, what: str) -> None:
        """Let healthy training go on and show its progress.

        Raises
        ------
        StackError
            If exporters do not answer.
        """
        assert self.prometheus is not None, "start_servers() comes first"
        self._console.line(f"{seconds} s: {what}")
        end = time.monotonic() + seconds
        missed = 0
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(2 * PROGRESS_SECONDS, left))
            answering = watch.scraped(self.prometheus.url, nodes.EXPORTER_JOB)
            self._console.line(
                f"{self.progress()}; {answering} of {len(self.nodes)} nodes scraped", "quiet"
            )
            # A single missed scrape on a busy machine means nothing.
            missed = missed + 1 if answering < len(self.nodes) else 0
            if missed > 1:
                raise StackError(
                    f"Only {answering} of {len(self.nodes)} exporters answer Prometheus before any "
                    "fault. Is the machine overloaded?"
                )

    def progress(self) -> str:
        """Return how training goes, in words."""
        log = self.rank_log
        return progress_text(watch.progress(log), time.time() - log.stat().st_mtime)

    def steps_per_second(self) -> float:
        """Return how fast training goes; 0 if rank 0 has reported no step lately."""
        log = self.rank_log
        if time.time() - log.stat().st_mtime > _SLOW_SECONDS:
            return 0.0
        return watch.progress(log).get("steps_per_second", 0.0)

    def _tail(self) -> str:
        return self.rank_log.read_text(errors="replace")[-2000:]


def node_names(count: int) -> list[str]:
    """Return the names of the nodes: node-0, node-1, ..."""
    return [f"node-{number}" for number in range(count)]


def progress_text(numbers: dict[str, float], quiet_seconds: float) -> str:
    """Return how training goes: what rank 0 last reported, or for how long it has not."""
    if not numbers:
        return "no step yet"
    if quiet_seconds > _SLOW_SECONDS:
        return f"step {numbers['step']:.0f}, and nothing new for {quiet_seconds:.0f} s"
    return (
        f"step {numbers['step']:.0f}, {numbers['steps_per_second']:.1f} steps/s, "
        f"loss {numbers['loss']:.2f}"
    )
