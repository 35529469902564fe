"""The demo from beginning to end, in the order in which it happens.

Set-up, training, a healthy stretch, models trained on it, the detector, a fault, the page.
Everything is started through one ``Stack``, so whatever ends the run takes all of it down.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from peerwatch_demo import detector, nodes, report, watch
from peerwatch_demo.console import Console
from peerwatch_demo.faults import Fault, Site
from peerwatch_demo.namespaces import Network, Shape
from peerwatch_demo.nodes import JOB_ID, Node, NodeSize, Place
from peerwatch_demo.process import StackError
from peerwatch_demo.settings import Patience, Settings
from peerwatch_demo.stack import (
    Server,
    Stack,
    Target,
    alertmanager,
    alertmanager_config,
    free_ports,
    prometheus,
    prometheus_config,
)
from peerwatch_demo.watch import Watcher
from peerwatch_demo.webhook import WebhookReceiver

# 400 Mbit/s with room for bursts of a whole gradient: nothing is dropped.
_HEALTHY_LINK = Shape(rate_bits=400_000_000, burst_bytes=256_000, limit_bytes=8_000_000)
_TELL_SECONDS = 5.0
_FIRST_STEP_SECONDS = 120.0
# Rank 0 reports every 5 steps, about once a second in healthy training.
_SLOW_SECONDS = 5.0


class Demo:
    """One run of the demo.

    Parameters
    ----------
    settings
        What the person chose.
    fault, faulty
        The fault and the node it will hit; the detector is never told.
    place
        Where the repository's parts are.
    directory
        Logs and data of this run.
    console
        The terminal.
    """

    def __init__(
        self,
        settings: Settings,
        fault: Fault,
        faulty: str,
        place: Place,
        directory: Path,
        console: Console,
        *,
        namespaces: bool,
    ) -> None:
        self._settings = settings
        self._fault = fault
        self._faulty = faulty
        self._place = place
        self._directory = directory
        self._console = console
        self._names = node_names(settings.nodes)
        self._network = Network(self._names, _HEALTHY_LINK) if namespaces else None
        self._patience = Patience()
        self._size = NodeSize()

    def run(self) -> bool:
        """Run everything and say whether the right page came, and no other.

        Raises
        ------
        StackError
            If something could not be started or went wrong on the way.
        """
        with ExitStack() as outer:
            outer.callback(self._console.line, "everything is down", "quiet")
            stack = outer.enter_context(Stack(self._directory))
            receiver = outer.enter_context(WebhookReceiver())
            cluster = self._start_nodes(stack)
            server = self._start_servers(stack, cluster, receiver)
            self._wait_for_training(cluster)
            judge = self._learn_and_watch(stack, server, cluster)
            watcher = Watcher(server.url, judge.url, receiver)
            verdict = self._break_and_wait(cluster, watcher, receiver)
            if self._settings.hold:
                self._hold(server, judge)
            return verdict.right

    def _start_nodes(self, stack: Stack) -> list[Node]:
        say = self._console.line
        if self._network is not None:
            stack.on_stop(self._network.close)
            self._network.open()
            say(f"{len(self._names)} network namespaces, joined by a bridge, 400 Mbit/s each")
        ports = free_ports(len(self._names))
        place, size, inside = self._place, self._size, self._network is not None
        cluster = nodes.make_nodes(self._names, self._directory / "nodes", ports, self._network)
        for node in cluster:
            enter = self._network.enter(node.name) if self._network else ()
            node.boot(stack, place, enter)
            node.assign(JOB_ID)
        stack.on_stop(lambda: nodes.stop_together(cluster))
        (port,) = free_ports(1)
        for node in cluster:
            nodes.start_rank(node, cluster, place, port, namespaces=inside)
            nodes.start_exporter(node, place, size, namespaces=inside)
        say(f"a node each: one rank of training job {JOB_ID} (torch, gloo) and one exporter")
        for node in cluster:
            nodes.wait_exporter(node)
        return cluster

    def _start_servers(
        self, stack: Stack, cluster: list[Node], receiver: WebhookReceiver
    ) -> Server:
        ports = free_ports(3)
        self._detector_port = ports[2]
        pager = alertmanager(
            stack, ports[1], alertmanager_config(self._place.alertmanager_example, receiver.url)
        )
        targets = [node.target for node in cluster]
        targets.append(Target(detector.DETECTOR_JOB, f"127.0.0.1:{self._detector_port}", {}))
        config = prometheus_config(targets, rules=self._place.rules, alertmanager=pager.url)
        server = prometheus(stack, ports[0], config)
        self._pager = pager
        self._console.line(
            "exporters answer; Prometheus (scrapes every second) and Alertmanager are up, with "
            "the shipped rules and routes"
        )
        return server

    def _wait_for_training(self, cluster: list[Node]) -> None:
        began = told = time.monotonic()
        while not watch.progress(cluster[0].rank_log):
            now = time.monotonic()
            if now - began > _FIRST_STEP_SECONDS:
                log = cluster[0].rank_log.read_text(errors="replace")[-2000:]
                raise StackError(f"No training step in {_FIRST_STEP_SECONDS:g} s:\n{log}")
            if now - told >= _TELL_SECONDS:
                told = now
                self._console.line("ranks load torch and find each other", "quiet")
            time.sleep(0.2)
        self._console.line(f"training runs: {self._pace(cluster)}")

    def _learn_and_watch(self, stack: Stack, server: Server, cluster: list[Node]) -> Server:
        seconds = self._settings.healthy_seconds
        # The first seconds are torch warming up, not training.
        self._pass_time(5, "the job settles", server, cluster)
        start, before = time.time(), watch.progress(cluster[0].rank_log)
        self._pass_time(seconds, "healthy stretch for the models to learn from", server, cluster)
        if watch.progress(cluster[0].rank_log) == before:
            log = cluster[0].rank_log.read_text(errors="replace")[-2000:]
            raise StackError(f"Training stands still, before any fault:\n{log}")
        models = self._directory / "models.npz"
        config = self._detector_config(server, None)
        training = detector.train_models(stack, self._place, config, start, time.time(), models)
        self._console.line("peerwatch-detector train: an LSTM-VAE for each metric")
        detector.follow_training(training, lambda line: self._console.line(f"  {line}", "quiet"))
        config = self._detector_config(server, models)
        judge = detector.start_detector(stack, self._place, config, self._detector_port)
        self._console.line("peerwatch-detector run: it reads Prometheus and judges every second")
        return judge

    def _break_and_wait(
        self, cluster: list[Node], watcher: Watcher, receiver: WebhookReceiver
    ) -> report.Verdict:
        say = self._console.line
        self._watch(watcher, self._settings.quiet_seconds, cluster, until_page=False)
        faulty = next(node for node in cluster if node.name == self._faulty)
        # The fault counts from before it is done, so that no delay is hidden.
        injected = time.time()
        watcher.events.append(report.Event("fault", injected, faulty.name))
        done = self._fault.inject(Site(self._place, self._size, self._network), faulty)
        say(f"FAULT {self._fault.name} on {faulty.name}: {done}", "event")
        self._watch(watcher, self._settings.page_seconds, cluster, until_page=True)
        if receiver.pages():
            seconds = self._settings.second_page_seconds
            say(f"watching {seconds} s for a page too many", "quiet")
            self._watch(watcher, seconds, cluster, until_page=False)
        verdict = report.judge(faulty.name, injected, receiver.pages())
        self._console.text(f"\n{report.table(watcher.events)}\n")
        tickets = len([n for n in receiver.notifications("/ticket") if n.firing()])
        self._console.text(f"pages: {len(receiver.pages())}, tickets: {tickets}")
        for page in receiver.pages()[:1]:
            for alert in page.firing()[:1]:
                self._console.text(f"page:  {' '.join(alert.annotations['description'].split())}")
        self._console.text(verdict.sentence, "good" if verdict.right else "bad")
        return verdict

    def _watch(
        self, watcher: Watcher, seconds: float, cluster: list[Node], *, until_page: bool
    ) -> None:
        """Tell what is new for some seconds, and how training goes when nothing is."""
        began = told = time.monotonic()
        while time.monotonic() - began < seconds:
            for event in watcher.poll():
                told = time.monotonic()
                style = "plain" if event.kind == "candidate" else "event"
                self._console.line(sentence(event), style)
                if until_page and event.kind == "page":
                    return
            if time.monotonic() - told >= _TELL_SECONDS:
                told = time.monotonic()
                self._console.line(self._pace(cluster), "quiet")
            time.sleep(0.25)

    def _pass_time(self, seconds: int, what: str, server: Server, cluster: list[Node]) -> None:
        """Let healthy training go on and tell how it goes."""
        self._console.line(f"{seconds} s: {what}")
        end = time.monotonic() + seconds
        missed = 0
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(2 * _TELL_SECONDS, left))
            answering = watch.scraped(server.url, nodes.EXPORTER_JOB)
            self._console.line(
                f"{self._pace(cluster)}; {answering} of {len(cluster)} nodes scraped", "quiet"
            )
            # A single missed scrape on a busy machine means nothing.
            missed = missed + 1 if answering < len(cluster) else 0
            if missed > 1:
                raise StackError(
                    f"Only {answering} of {len(cluster)} exporters answer Prometheus before any "
                    "fault. Is the machine overloaded?"
                )

    def _pace(self, cluster: list[Node]) -> str:
        log = cluster[0].rank_log
        return pace(watch.progress(log), time.time() - log.stat().st_mtime)

    def _detector_config(self, server: Server, models: Path | None) -> str:
        return detector.detector_config(
            server.url,
            self._detector_port,
            models,
            self._patience,
            namespaces=self._network is not None,
        )

    def _hold(self, server: Server, judge: Server) -> None:
        self._console.text(
            f"\nHOLD: everything stays up until Ctrl-C.\n"
            f"  Prometheus    {server.url}\n"
            f"  Alertmanager  {self._pager.url}\n"
            f"  detector      {judge.url}/\n"
            f"  logs          {self._directory}"
        )
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            self._console.text("")


def node_names(count: int) -> list[str]:
    """Return the names of the nodes: node-0, node-1, ..."""
    return [f"node-{number}" for number in range(count)]


def pace(numbers: dict[str, float], silent_seconds: float) -> str:
    """Return how training goes: what rank 0 last reported, or for how long it has not."""
    if not numbers:
        return "no step yet"
    if silent_seconds > _SLOW_SECONDS:
        return f"step {numbers['step']:.0f}, and nothing new for {silent_seconds:.0f} s"
    return (
        f"step {numbers['step']:.0f}, {numbers['steps_per_second']:.1f} steps/s, "
        f"loss {numbers['loss']:.2f}"
    )


def sentence(event: report.Event) -> str:
    """Return what the terminal says about an event."""
    if event.metric == "absent":
        differs, judged = "is silent", "it has vanished"
    else:
        differs = f"is unlike its peers in {event.metric}"
        judged = f"by {event.metric}"
    return {
        "fault": f"fault on {event.node}",
        "candidate": f"candidate: {event.node} {differs}",
        "finding": f"FINDING: {event.node} is judged faulty, {judged}",
        "alert": f"ALERT PeerwatchFaultyNode fires for {event.node}",
        "page": f"PAGE received: it names {event.node}",
    }[event.kind]
