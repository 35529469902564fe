"""The demo from beginning to end, in the order in which it happens.

Set-up, training, a healthy stretch, models trained on it, the detector, a fault, the page.
Everything is started through one ``Stack``, so whatever ends the run takes all of it down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from peerwatch_demo.cluster.cluster import PROGRESS_SECONDS, Cluster, node_names
from peerwatch_demo.cluster.faults import Fault
from peerwatch_demo.cluster.nodes import EXPORTER_JOB, Place
from peerwatch_demo.cluster.settings import Settings
from peerwatch_demo.stack import report
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.servers import Server, Stack
from peerwatch_demo.stack.tour import Servers, tour
from peerwatch_demo.stack.watch import Watcher, fewest_scraped
from peerwatch_demo.stack.webhook import WebhookReceiver


class Demo:
    """One run of the demo.

    Parameters
    ----------
    settings
        What the person chose.
    fault, faulty
        The fault and the node it will hit; the detector does not know.
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
        self._namespaces = namespaces

    def run(self) -> bool:
        """Run everything and say whether the right page came, and no other.

        Raises
        ------
        StackError
            If something could not be started or went wrong.
        """
        with ExitStack() as outer:
            outer.callback(self._console.line, "everything is down", "quiet")
            stack = outer.enter_context(Stack(self._directory))
            receiver = outer.enter_context(WebhookReceiver())
            names = node_names(self._settings.nodes)
            cluster = Cluster(
                names,
                self._place,
                stack,
                self._console,
                namespaces=self._namespaces,
                logs=True,
            )
            cluster.start_nodes()
            server = cluster.start_servers(receiver)
            cluster.wait_for_training()
            models = self._directory / "models.npz"
            cluster.learn(self._settings.healthy_seconds, models)
            detect = cluster.start_detector(models)
            watcher = Watcher(server.url, detect.url, receiver)
            verdict = self._break_and_wait(cluster, watcher, receiver)
            if self._settings.hold:
                self._hold(cluster, detect)
            return verdict.right

    def _break_and_wait(
        self, cluster: Cluster, watcher: Watcher, receiver: WebhookReceiver
    ) -> report.Verdict:
        say = self._console.line
        self._watch(watcher, self._settings.quiet_seconds, cluster, until_page=False)
        faulty = cluster.node(self._faulty)
        # The fault counts from before it is done, so that no delay is hidden.
        injected = time.time()
        watcher.events.append(report.Event("fault", injected, faulty.name))
        done = self._fault.inject(cluster.site, faulty)
        say(f"FAULT {self._fault.name} on {faulty.name}: {done}", "event")
        self._watch(watcher, self._settings.page_seconds, cluster, until_page=True)
        if receiver.pages():
            seconds = self._settings.second_page_seconds
            say(f"watching {seconds} s for a page too many", "quiet")
            self._watch(watcher, seconds, cluster, until_page=False)
        verdict = conclude(self._console, watcher, receiver, faulty.name, injected)
        if not verdict.right and cluster.prometheus is not None:
            fewest = fewest_scraped(cluster.prometheus.url, EXPORTER_JOB, time.time() - injected)
            if reason := too_busy(fewest, len(cluster.nodes), ""):
                self._console.text(reason, "bad")
        return verdict

    def _watch(
        self, watcher: Watcher, seconds: float, cluster: Cluster, *, until_page: bool
    ) -> None:
        watch(watcher, self._console, seconds, cluster.progress, until_page=until_page)

    def _hold(self, cluster: Cluster, detect: Server) -> None:
        assert cluster.prometheus is not None, "it was started"
        assert cluster.alertmanager is not None, "it was started"
        hold(
            self._console,
            {
                "Prometheus": cluster.prometheus.url,
                "Alertmanager": cluster.alertmanager.url,
                "detector": f"{detect.url}/",
                "logs": str(self._directory),
            },
            tour(
                Servers(detect.url, cluster.prometheus.url, cluster.alertmanager.url),
                cluster.job_id,
                self._faulty,
            ),
        )


def watch(
    watcher: Watcher,
    console: Console,
    seconds: float,
    progress: Callable[[], str],
    *,
    until_page: bool,
) -> None:
    """Show what is new for some seconds, and how the job goes when nothing is.

    Parameters
    ----------
    progress
        Says how the job goes.
    until_page
        Return as soon as a page comes.
    """
    began = last_line = time.monotonic()
    while time.monotonic() - began < seconds:
        for event in watcher.poll():
            last_line = time.monotonic()
            style = "plain" if event.kind == "candidate" else "event"
            console.line(sentence(event), style)
            if until_page and event.kind == "page":
                return
        if time.monotonic() - last_line >= PROGRESS_SECONDS:
            last_line = time.monotonic()
            console.line(progress(), "quiet")
        time.sleep(0.25)


def conclude(
    console: Console, watcher: Watcher, receiver: WebhookReceiver, faulty: str, injected: float
) -> report.Verdict:
    """Show what happened, the page as it came, and whether it was right.

    Parameters
    ----------
    faulty
        The node that the fault hit.
    injected
        When it did (Unix time).
    """
    verdict = report.evaluate(faulty, injected, receiver.pages())
    console.text(f"\n{report.table(watcher.events)}\n")
    console.text(f"pages: {len(receiver.pages())}, tickets: {len(receiver.tickets())}")
    for page in receiver.pages()[:1]:
        for alert in page.firing()[:1]:
            console.text(f"page:  {alert.description}")
    console.text(verdict.sentence, "good" if verdict.right else "bad")
    return verdict


def too_busy(fewest: int | None, nodes: int, remedy: str) -> str | None:
    """Return what to say after a wrong run in which nodes could not be scraped, or None.

    Parameters
    ----------
    fewest
        So few nodes answered Prometheus at some time; None if it could not say.
    nodes
        How many there are; the faulty one may be absent.
    remedy
        What else than a machine with less to do would help.
    """
    if fewest is None or fewest >= nodes - 1:
        return None
    return (
        f"At one time only {fewest} of {nodes} nodes answered Prometheus: this machine is too busy "
        "for the demo, and a node that does not answer looks absent. End what else runs here"
        f"{remedy}, and try again."
    )


def hold(console: Console, places: Mapping[str, str], worth_opening: str = "") -> None:
    """Say where everything is and what is worth opening, and keep it up until Ctrl-C."""
    lines = [f"  {name:<12}  {place}" for name, place in places.items()]
    try:
        # Who reads it may end it while the last lines are printed.
        console.text(
            "\n".join(["\nHOLD: everything stays up until Ctrl-C.", *lines, worth_opening])
        )
        while True:
            # A signal that comes just before a sleep begins is seen when it ends.
            time.sleep(0.5)
    except KeyboardInterrupt:
        console.text("")


def sentence(event: report.Event) -> str:
    """Return what the terminal says about an event."""
    if event.metric == "absent":
        differs, reason = "is absent", "it is absent"
    else:
        differs = f"is unlike its peers in {event.metric}"
        reason = f"by {event.metric}"
    return {
        "fault": f"fault on {event.node}",
        "candidate": f"candidate: {event.node} {differs}",
        "finding": f"FINDING: {event.node} is flagged, {reason}",
        "alert": f"ALERT PeerwatchFaultyNode fires for {event.node}",
        "page": f"PAGE received: it names {event.node}",
    }[event.kind]
