"""The fleet's demo from beginning to end: a past, Prometheus, the detector, faults, the pages."""

from __future__ import annotations

import subprocess
import time
import urllib.parse
from contextlib import ExitStack
from pathlib import Path

import yaml

from peerwatch_demo.cluster import detector
from peerwatch_demo.cluster.nodes import EXPORTER_JOB, Place
from peerwatch_demo.cluster.settings import Patience, Settings
from peerwatch_demo.fleet import alerts
from peerwatch_demo.fleet.hosts import Hosts
from peerwatch_demo.fleet.outcome import fault_text, verdict_of
from peerwatch_demo.fleet.plan import CLUSTER, SMALLEST, Plan
from peerwatch_demo.run import hold, too_busy, watch
from peerwatch_demo.stack import report
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
from peerwatch_demo.stack.tour import Servers, tour, tour_of_several
from peerwatch_demo.stack.watch import Watcher, fetch_json, fewest_scraped, scraped
from peerwatch_demo.stack.webhook import WebhookReceiver

# Chosen: long enough to know the usual of each job; of 64 nodes a minute's work (hosts.py).
PAST_SECONDS = 900.0
# The recording rules need two scrapes in 15 s; of large fleets chosen as rarely as that allows.
_SCRAPE_SECONDS, _LARGE_FLEET, _LARGE_SCRAPE_SECONDS = 5, 96, 7
# The usual scrape interval of the exporter.
_PAST_STEP_SECONDS = 15.0
# Chosen: twelve visits of each node at the rate of scrapes are made quickly, more are not.
_SHORT_GAP_SECONDS = 60.0
# The faulty jobs' nodes are made anew for the faults: chosen, they are by then.
_ONSET_SECONDS, _ONSET_SECONDS_PER_NODE = 3.0, 0.15
# The drawing itself gives up a minute earlier (docs/pictures/screen.py), and says so.
_PICTURE_SECONDS = 660.0


class FleetDemo:
    """One run.

    Parameters
    ----------
    plan
        The fleet and its faults; the detector does not know.
    settings
        The phases' lengths, and whether to hold.
    place
        Where the repository's parts are.
    directory
        Logs and data of this run.
    console
        The terminal.
    picture
        Where the picture of the dashboard goes.
    """

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        place: Place,
        directory: Path,
        console: Console,
        picture: Path,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._place = place
        self._directory = directory
        self._console = console
        self._picture = picture
        large = len(plan.nodes) > _LARGE_FLEET
        self._interval = _LARGE_SCRAPE_SECONDS if large else _SCRAPE_SECONDS

    def run(self) -> bool:
        """Run everything and say whether the right pages came, and no other.

        Raises
        ------
        StackError
            If something could not be started or went wrong.
        """
        with ExitStack() as outer:
            outer.callback(self._console.line, "everything is down", "quiet")
            stack = outer.enter_context(Stack(self._directory))
            receiver = outer.enter_context(WebhookReceiver())
            hosts = self._start_nodes(stack)
            ports = free_ports(3)
            config = alertmanager_config(self._place.alertmanager_example, receiver.url)
            notifier = alertmanager(stack, ports[1], config)
            server = self._start_prometheus(stack, hosts, notifier, (ports[0], ports[2]))
            detect = self._start_detector(stack, server, ports[2])
            watcher = Watcher(server.url, detect.url, receiver)
            verdict = self._break_and_wait(hosts, server, detect, watcher, receiver)
            self._explain(server, notifier, receiver)
            self._draw(server)
            if self._settings.hold:
                places = {"Prometheus": server.url, "Alertmanager": notifier.url}
                places["detector"] = f"{detect.url}/"
                servers = Servers(detect.url, server.url, notifier.url)
                hold(self._console, places, self._tour(servers))
            return verdict.right

    def _tour(self, servers: Servers) -> str:
        faults = self._plan.faults
        if len(faults) == 1:
            return tour(servers, faults[0].job_id, faults[0].node)
        return tour_of_several(servers, [(each.job_id, each.node, each.name) for each in faults])

    def _start_nodes(self, stack: Stack) -> Hosts:
        start = (time.time() - PAST_SECONDS) // 5 * 5
        hosts = Hosts(stack, self._place, self._plan, start)
        hosts.start()
        say = self._console.line
        say(f"{len(self._plan.nodes)} simulated nodes with {self._plan.gpus} GPUs are there")
        say(f"simulating their last {PAST_SECONDS / 60:g} minutes: the exporter's code reads each")
        loading = time.time()
        hosts.load_past(_PAST_STEP_SECONDS, self._data, lambda text: say(text, "quiet"))
        # Loading took time; what passed meanwhile closes the gap to the first scrape. A machine
        # that took minutes for it would take as long again for minutes at the rate of scrapes.
        gap = time.time() - loading
        step = self._interval if gap < _SHORT_GAP_SECONDS else _PAST_STEP_SECONDS
        hosts.load_past(step, self._data, lambda text: say(text, "quiet"))
        return hosts

    @property
    def _data(self) -> Path:
        return self._directory / "prometheus" / "data"

    def _start_prometheus(
        self, stack: Stack, hosts: Hosts, notifier: Server, ports: tuple[int, int]
    ) -> Server:
        labels = {"cluster": CLUSTER}
        detect = Target(detector.DETECTOR_JOB, f"127.0.0.1:{ports[1]}", labels)
        config = prometheus_config(
            [*hosts.targets, detect],
            rules=self._place.rules,
            alertmanager=notifier.url,
            interval=f"{self._interval}s",
        )
        server = prometheus(stack, ports[0], config)
        known = nodes_with_past(server.url)
        self._console.line(
            f"Prometheus is up, with the shipped rules and the past of {known} nodes; it scrapes "
            f"every {self._interval} s; Alertmanager has the shipped routes"
        )
        return server

    def _start_detector(self, stack: Stack, server: Server, port: int) -> Server:
        config = detector_config(server.url, port, Patience())
        detect = detector.start_detector(stack, self._place, config, port)
        self._console.line("peerwatch-detector run: it has read the past and evaluates every 2 s")
        return detect

    def _break_and_wait(
        self,
        hosts: Hosts,
        server: Server,
        detect: Server,
        watcher: Watcher,
        receiver: WebhookReceiver,
    ) -> report.Verdict:
        plan, settings, began = self._plan, self._settings, time.time()

        def progress() -> str:
            return f"{scraped(server.url, EXPORTER_JOB)} of {len(plan.nodes)} nodes scraped"

        def observe(seconds: float, *, until_page: bool) -> None:
            watch(watcher, self._console, seconds, progress, until_page=until_page)

        observe(settings.quiet_seconds, until_page=False)
        if reason := self._too_busy(server, began):
            raise StackError(reason)
        # Of all nodes that are made anew for the faults.
        changed = sum(plan.jobs[fault.job_id] for fault in plan.faults)
        onset = time.time() + _ONSET_SECONDS + _ONSET_SECONDS_PER_NODE * changed
        hosts.begin_fault(onset)
        watcher.events += [report.Event("fault", onset, fault.node) for fault in plan.faults]
        observe(max(0.0, onset - time.time()), until_page=True)
        for fault in plan.faults:
            self._console.line(f"FAULT {fault.name} on {fault.node}, job {fault.job_id}", "event")
        end = time.time() + settings.page_seconds
        while len(receiver.pages()) < len(plan.faults) and (left := end - time.time()) > 0:
            observe(left, until_page=True)
        if receiver.pages():
            seconds = settings.second_page_seconds
            self._console.line(f"watching {seconds} s for a page too many", "quiet")
            observe(seconds, until_page=False)
        verdict = self._conclude(detect, watcher, receiver, onset)
        if not verdict.right and (reason := self._too_busy(server, began)):
            self._console.text(reason, "bad")
        return verdict

    def _too_busy(self, server: Server, since: float) -> str | None:
        """Return what to say if nodes could not be scraped since a Unix time; None if all were."""
        nodes = len(self._plan.nodes)
        remedy = f" or take a smaller fleet (FLEET={SMALLEST})" if nodes > SMALLEST else ""
        fewest = fewest_scraped(server.url, EXPORTER_JOB, time.time() - since)
        return too_busy(fewest, nodes, remedy)

    def _conclude(
        self, detect: Server, watcher: Watcher, receiver: WebhookReceiver, onset: float
    ) -> report.Verdict:
        """Show what became of each fault, and whether all is right."""
        verdict = verdict_of(self._plan, onset, receiver.pages())
        answer = fetch_json(f"{detect.url}/api/v1/jobs")
        jobs = {job["job_id"]: job for job in answer["jobs"]} if answer else {}
        for fault in self._plan.faults:
            job = jobs.get(fault.job_id)
            told = fault_text(fault, watcher.events, receiver.pages(), job)
            self._console.text(f"\n{told}")
        tickets = len(receiver.tickets())
        self._console.text(f"\npages: {len(receiver.pages())}, tickets: {tickets}")
        self._console.text(verdict.sentence, "good" if verdict.right else "bad")
        return verdict

    def _explain(self, server: Server, notifier: Server, receiver: WebhookReceiver) -> None:
        fired = fetch_json(f"{notifier.url}/api/v2/alerts")
        rules = fetch_json(f"{server.url}/api/v1/rules?type=alert")
        if fired is None or rules is None:
            self._console.text(
                "Alertmanager or Prometheus did not return its alerts in time.", "bad"
            )
            return
        explained = alerts.explain(fired, rules["data"], receiver.notifications())
        self._console.text(f"\nAlerts, and what becomes of each:\n{alerts.text(explained)}\n")

    def _draw(self, server: Server) -> None:
        script = self._place.root / "docs" / "pictures" / "draw.py"
        board, chosen = "fleet", []
        if len(self._plan.faults) == 1:
            (fault,) = self._plan.faults
            chosen = ["--variable", f"job_id={fault.job_id}", "--variable", f"node={fault.node}"]
            board = "job"
        command = [self._place.python, str(script), board, "--prometheus", server.url]
        command += ["--output", str(self._picture), *chosen, "--rows", "1", "2", "3"]
        try:
            ended = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=_PICTURE_SECONDS,
                env=self._place.environment(),
            )
        except subprocess.TimeoutExpired:
            self._console.text(f"no picture: it took over {_PICTURE_SECONDS:g} s")
            return
        done = f"the {board}'s dashboard: {self._picture}"
        self._console.text(done if ended.returncode == 0 else ended.stderr.strip())


def detector_config(url: str, port: int, patience: Patience) -> str:
    """Return the detector's configuration file: all that waits is shorter, the rest as shipped.

    Parameters
    ----------
    url
        Of Prometheus.
    port
        Where the detector listens.
    patience
        The shorter times.
    """
    config = {
        "prometheus": {"url": url},
        "listen": {"address": "127.0.0.1", "port": port},
        "cycle_seconds": 2,
        "history_seconds": 300,
        # The past has a sample every 15 s.
        "fill_limit_seconds": _PAST_STEP_SECONDS,
        "continuity": {"threshold_seconds": patience.continuity_seconds, "clear_seconds": 60},
        "peerwatch": {
            "fast_seconds": patience.continuity_seconds,
            "fast_pair_seconds": patience.continuity_seconds / 2,
        },
        "absent": {"threshold_seconds": patience.absent_seconds},
    }
    return yaml.safe_dump(config, sort_keys=False)


def nodes_with_past(url: str) -> int:
    """Return how many nodes have recorded series in all of the past's minutes."""
    metric = "job_node:rdma_throughput:rate"
    now = time.time()
    query = {
        "query": metric, "start": now - PAST_SECONDS + 60, "end": now, "step": 60,
    }  # fmt: skip
    answer = fetch_json(f"{url}/api/v1/query_range?{urllib.parse.urlencode(query)}")
    series = answer["data"]["result"] if answer else []
    minutes = PAST_SECONDS // 60
    return sum(len(values["values"]) >= minutes for values in series)
