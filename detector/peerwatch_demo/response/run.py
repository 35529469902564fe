"""``make demo RESPOND=1``: the loop to its end, without a person."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from peerwatch_demo.cluster.cluster import PROGRESS_SECONDS, node_names
from peerwatch_demo.cluster.faults import Fault
from peerwatch_demo.cluster.nodes import EXPORTER_JOB, Place
from peerwatch_demo.cluster.settings import Settings
from peerwatch_demo.response import story
from peerwatch_demo.response.cluster import RespondingCluster, history
from peerwatch_demo.run import hold, sentence, too_busy
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.report import Event
from peerwatch_demo.stack.servers import Server, Stack
from peerwatch_demo.stack.watch import Watcher, fetch_json, fewest_scraped
from peerwatch_demo.stack.webhook import WebhookReceiver

# Chosen: the demo tells times to a tenth of a second, and this is not far from it.
_POLL_SECONDS = 0.25
# Steps after the restart that show that training goes on: chosen, two reports of rank 0.
_STEPS_AFTER = 10
# As train.py prints it.
_RESUMES = "resumes at step "


class RespondingDemo:
    """One run: as ``Demo``, but the responder answers, and the job goes on.

    Parameters
    ----------
    settings
        What the person chose.
    fault, faulty
        The fault and the node it will hit; the programs do not know.
    place
        Where the repository's parts are.
    directory
        Logs and data of this run.
    console
        The terminal.
    namespaces
        Whether nodes have networks of their own.
    slurm
        Whether a real Slurm runs the job.
    learns
        Whether the models are trained on this job first; otherwise the shipped ones serve.
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
        slurm: bool,
        learns: bool = True,
    ) -> None:
        self._settings, self._fault, self._faulty = settings, fault, faulty
        self._place, self._directory, self._console = place, directory, console
        self._namespaces, self._slurm, self._learns = namespaces, slurm, learns
        self.chain: list[story.Moment] = []

    def run(self) -> bool:
        """Run everything and say whether the node is out, the job goes on and one page came.

        Raises
        ------
        StackError
            If something could not be started or went wrong.
        """
        with ExitStack() as outer:
            outer.callback(self._console.line, "everything is down", "quiet")
            stack = outer.enter_context(Stack(self._directory))
            receiver = outer.enter_context(WebhookReceiver())
            cluster = RespondingCluster(
                node_names(self._settings.nodes + 1),
                self._place,
                stack,
                self._console,
                namespaces=self._namespaces,
                slurm=self._slurm,
            )
            cluster.start_nodes()
            server = cluster.start_servers(receiver)
            responder = cluster.start_responder()
            cluster.wait_for_training()
            detect = self._start_detector(cluster)
            watcher = Watcher(server.url, detect.url, receiver)
            watch = _Watch(cluster, watcher, self._console, detect.url)
            right = self._break_and_wait(cluster, watch, receiver)
            if self._settings.hold:
                places = {
                    "Prometheus": server.url,
                    "detector": f"{detect.url}/",
                    "responder": f"{responder.url}/",
                    "logs": str(self._directory),
                }
                hold(self._console, places)
            return right

    def _start_detector(self, cluster: RespondingCluster) -> Server:
        if not self._learns:
            cluster.settle()
            return cluster.start_configured_detector(cluster.detector_config(None))
        models = self._directory / "models.npz"
        cluster.learn(self._settings.healthy_seconds, models)
        return cluster.start_detector(models)

    def _break_and_wait(
        self, cluster: RespondingCluster, watch: _Watch, receiver: WebhookReceiver
    ) -> bool:
        say = self._console.line
        watch.until(lambda: False, self._settings.quiet_seconds)
        faulty = cluster.node(self._faulty)
        injected = time.time()
        watch.events.append(Event("fault", injected, faulty.name))
        done = self._fault.inject(cluster.site, faulty)
        say(f"FAULT {self._fault.name} on {faulty.name}: {done}", "event")
        watch.until(lambda: watch.restart is not None, self._settings.page_seconds)
        watch.until(lambda: bool(receiver.pages()), self._settings.page_seconds / 2)
        say(f"watching {self._settings.second_page_seconds} s for a page too many", "quiet")
        watch.until(lambda: False, self._settings.second_page_seconds)
        return self._conclude(cluster, watch, receiver, injected)

    def _conclude(
        self,
        cluster: RespondingCluster,
        watch: _Watch,
        receiver: WebhookReceiver,
        injected: float,
    ) -> bool:
        text = self._console.text
        responses = watch.responses
        response = responses[0] if responses else None
        self.chain = story.moments(watch.events, watch.diagnoses, response, watch.restart)
        text(f"\n{story.table(self.chain)}\n")
        out = cluster.launcher.proof(self._faulty)
        text(f"{cluster.launcher.name}: {out or f'{self._faulty} is in use'}")
        text(f"the job runs on {', '.join(cluster.launcher.nodes()) or 'no node'}")
        for page in receiver.pages()[:1]:
            for alert in page.firing()[:1]:
                text(f"page:  {alert.description}")
        if response is not None and response["undo"]:
            text(f"undo:  {response['undo']}")
        pages = [page.nodes() for page in receiver.pages()]
        verdict = story.verdict(self._faulty, responses, watch.restart, out, pages)
        text(verdict.sentence, "good" if verdict.right else "bad")
        if not verdict.right and cluster.prometheus is not None:
            fewest = fewest_scraped(cluster.prometheus.url, EXPORTER_JOB, time.time() - injected)
            if reason := too_busy(fewest, len(cluster.nodes), ""):
                text(reason, "bad")
        return verdict.right


class _Watch:
    """Shows what is new, of the detector, of the responder and of the job."""

    def __init__(
        self, cluster: RespondingCluster, watcher: Watcher, console: Console, detector: str
    ) -> None:
        self._cluster, self._watcher, self._console = cluster, watcher, console
        self._detector = detector
        self.diagnoses: list[story.Diagnosis] = []
        self._shown: set[tuple[Any, ...]] = set()
        self._before = 0
        self.responses: list[dict[str, Any]] = []
        self.restart: story.Restart | None = None

    @property
    def events(self) -> list[Event]:
        """What the detector and the pager said."""
        return self._watcher.events

    def until(self, condition: Any, seconds: float) -> None:  # noqa: ANN401 - a callable
        """Show what is new until something holds, or the seconds are over."""
        end = time.monotonic() + seconds
        last_line = time.monotonic()
        while time.monotonic() < end and not condition():
            if self._poll():
                last_line = time.monotonic()
            elif time.monotonic() - last_line >= PROGRESS_SECONDS:
                last_line = time.monotonic()
                self._console.line(self._cluster.progress(), "quiet")
            time.sleep(_POLL_SECONDS)

    def _poll(self) -> bool:
        said = False
        for event in self._watcher.poll():
            self._console.line(sentence(event), "plain" if event.kind == "candidate" else "event")
            said = True
        said |= self._diagnosed()
        self.responses = history(fetch_json(f"{self._cluster.responder_url}/api/v1/history"))
        for response in reversed(self.responses):
            said |= self._told(("planned", response["key"]), f"DECISION: {response['why']}")
            for step in response["steps"]:
                if step["outcome"] == "done":
                    what = f"DONE {step['action']}: {step['text']}"
                    said |= self._told((response["key"], step["action"], step["step"]), what)
            if response["ended_at"]:
                what = f"response {response['key']} is {response['status']}: {response['text']}"
                said |= self._told(("ended", response["key"]), what)
        return self._job() or said

    def _diagnosed(self) -> bool:
        """Look what the job itself says, once the fault is there."""
        said = False
        answer = fetch_json(f"{self._detector}/api/v1/jobs") if self.events else None
        for job in answer["jobs"] if answer else ():
            for each in job["diagnoses"]:
                what = f"{each['class']} ({each['domain']}, {each['confidence']})"
                key = ("diagnosis", each["node"], each["class"])
                if self._told(key, f"DIAGNOSIS: {each['node'] or 'the job'}: {what}"):
                    said = True
                    self.diagnoses.append(story.Diagnosis(time.time(), each["node"], what))
        return said

    def _job(self) -> bool:
        """Look whether the job was started again."""
        resumed, step = last_start(self._cluster.rank_log)
        if not self.responses or resumed == 0:
            self._before = max(self._before, step)
            return False
        said = self._told(("resumed", resumed), f"JOB STARTED AGAIN from step {resumed}")
        if self.restart is None and step >= resumed + _STEPS_AFTER:
            nodes = self._cluster.launcher.nodes()
            self.restart = story.Restart(time.time(), resumed, self._before, nodes)
            said = self._told(("works",), f"TRAINING GOES ON: {self._cluster.progress()}")
        return said

    def _told(self, key: tuple[Any, ...], text: str) -> bool:
        if key in self._shown:
            return False
        self._shown.add(key)
        self._console.line(text, "event")
        return True


def last_start(log: Path) -> tuple[int, int]:
    """Return the step that the newest start went on from, and the last one it has reported."""
    begun = step = 0
    if log.exists():
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith(_RESUMES):
                begun = step = int(line.removeprefix(_RESUMES))
            elif line.startswith("step="):
                step = int(line.split()[0].removeprefix("step="))
    return begun, step
