"""One fault, one page: the shipped rules and routes, on a real Prometheus and a real Alertmanager.

Scripted nodes and detectors take the place of the exporters' and the detector's expositions;
everything behind them is real. All that lasts, in scripts, rules and routes, is the same factor
shorter. Each play has a cluster of its own, and all run at once. A machine that stands still for
longer than the timers allow cannot play them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from alertmanager_live import scaled
from e2e.fast_prometheus import (
    count_firing,
    fast_prometheus,
    longest_unevaluated,
    start_prometheus,
)
from e2e.scripted_expositions import Sample, Script, ScriptedExpositions
from peerwatch_demo.stack.servers import Stack, alertmanager, free_ports
from peerwatch_demo.stack.webhook import WebhookReceiver

ROOT = Path(__file__).parents[2]
# At 10 times the speed quiet machines with two cores stood still for longer than the timers allow.
SPEED = 5
# A node that is not scraped for so long counts as absent; a page waits so long for what holds it
# back. A machine that keeps the servers from working for longer has faults of its own.
LONGEST_UNSCRAPED, LONGEST_UNEVALUATED = 45, 25
# In seconds of the script: the fault, its end, and when the last page that may come has come.
FAULT, END = 120, 900
LAST = END + 600 + 600 + 120
# What is new is known when the rules have watched for 150 s.
PLACE_FAULT = FAULT + 90
RESTART = (420, 480)
NODES = [f"n{number:02d}" for number in range(1, 41)]
# The others serve the second job.
FIRST_JOB = NODES[:30]
# What a play costs is its nodes.
EIGHT, SIXTEEN = tuple(NODES[:8]), tuple(NODES[:16])

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xdist_group("plays-1"),
    pytest.mark.slow,
    # The plays take some 440 s.
    pytest.mark.timeout(1800),
]


@dataclass(frozen=True)
class Finding:
    """A finding of the detector that stands for a time."""

    node: str
    metric: str = "pfc_tx_rate"
    job_id: str = "j1"
    begin: float = FAULT + 45
    end: float = END

    def sample(self) -> Sample:
        labels = {"job_id": self.job_id, "node": self.node, "gpu": "", "metric": self.metric}
        return Sample(
            "peerwatch_finding", 1, {**labels, "method": "peerwatch", "severity": "critical"}
        )


@dataclass(frozen=True)
class Symptoms:
    """What the nodes of a job show for a time."""

    hot: tuple[str, ...] = ()
    cut_off: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    pausing: tuple[str, ...] = ()
    broken_gpus: dict[str, int] | None = None
    stalled: bool = False
    job_id: str = "j1"
    begin: float = FAULT
    end: float = END


@dataclass(frozen=True)
class Play:
    """What happens in a cluster, and which nodes must be paged for.

    Parameters
    ----------
    findings, symptoms
        What the detector and the nodes show.
    pages
        Nodes, or places of several, each once for every page that must come.
    gone
        When the detector is away.
    tickets
        Alerts that are filed because they come long before the cause.
    nodes
        The nodes of the cluster.
    leaf_size
        How many nodes share a leaf switch that the scrape configuration tells of; 0: it does not.
    """

    pages: list[str]
    findings: list[Finding]
    symptoms: list[Symptoms]
    gone: tuple[float, float] = (0, 0)
    tickets: tuple[str, ...] = ()
    nodes: tuple[str, ...] = EIGHT
    leaf_size: int = 0


def flapping(node: str) -> list[Finding]:
    """A finding that comes six times, away for longer than its alert looks back."""
    return [
        Finding(node, begin=second, end=second + 45)
        for second in range(FAULT, FAULT + 6 * 135, 135)
    ]


PLAYS = {
    "forty_five_alerts": Play(
        ["n07"],
        [Finding("n07", metric) for metric in ("pfc_tx_rate", "gpu_power", "cpu_usage")],
        [Symptoms(hot=tuple(FIRST_JOB), pausing=tuple(FIRST_JOB[:8]), stalled=True)],
        nodes=tuple(NODES),
    ),
    "cause_late": Play(
        ["n07"],
        [Finding("n07", begin=FAULT + 250)],
        [Symptoms(pausing=("n07",), stalled=True)],
        tickets=("PeerwatchPfcPause",),
    ),
    "cause_clears_first": Play(
        ["n07"],
        [Finding("n07", end=500)],
        [Symptoms(hot=("n07", "n08"), pausing=("n07",), stalled=True)],
    ),
    "cause_flaps": Play(["n07"], flapping("n07"), [Symptoms(stalled=True)]),
    "two_jobs": Play(
        ["n07", "n33"],
        [Finding("n07"), Finding("n33", job_id="j2")],
        [Symptoms(stalled=True), Symptoms(stalled=True, job_id="j2")],
        nodes=(*NODES[4:8], *NODES[30:34]),
    ),
    "two_nodes_of_one_job": Play(
        ["n07", "n11"],
        [Finding("n07"), Finding("n11", begin=FAULT + 60)],
        [Symptoms(pausing=("n07", "n11"), stalled=True)],
        nodes=SIXTEEN,
    ),
    "gpu_says_so_first": Play(
        ["n07"],
        [Finding("n07")],
        [Symptoms(broken_gpus={"n07": 8}, stalled=True)],
    ),
    "detector_restarts": Play(
        ["n07"],
        [Finding("n07")],
        [Symptoms(pausing=("n07",), stalled=True)],
        gone=RESTART,
    ),
    "prometheus_restarts": Play(
        ["n07"],
        [Finding("n07")],
        [Symptoms(pausing=("n07",), stalled=True)],
    ),
    "leaf_switch": Play(
        ["leaf 0"],
        [],
        [Symptoms(cut_off=SIXTEEN[:8], stalled=True, begin=PLACE_FAULT)],
        nodes=SIXTEEN,
        leaf_size=8,
    ),
    "leaf_switch_without_places": Play(
        ["cluster"],
        [],
        [Symptoms(cut_off=SIXTEEN[:8], stalled=True, begin=PLACE_FAULT)],
        nodes=SIXTEEN,
    ),
    # Nodes vanish with one leaf, ports go down at the other, and one more node of it fails later.
    "two_leaves": Play(
        ["leaf 0", "leaf 1", "n15"],
        [Finding(node, "absent", begin=PLACE_FAULT + 90) for node in SIXTEEN[:8]],
        [
            Symptoms(vanished=SIXTEEN[:8], begin=PLACE_FAULT),
            Symptoms(cut_off=SIXTEEN[8:12], stalled=True, begin=PLACE_FAULT),
            Symptoms(cut_off=("n15",), begin=PLACE_FAULT + 240),
        ],
        nodes=SIXTEEN,
        leaf_size=8,
    ),
    "nothing": Play([], [], []),
}


def nodes_exposition(play: Play, second: float) -> Iterator[Sample]:
    """What the exporters of a cluster show."""
    for place, node in enumerate(play.nodes):
        now = [shown for shown in play.symptoms if shown.begin <= second < shown.end]
        if any(node in shown.vanished for shown in now):
            continue
        job_id = "j1" if node in FIRST_JOB else "j2"
        leaf = {"topology_leaf": str(place // play.leaf_size)} if play.leaf_size else {}
        yield Sample("host_job_info", 1, {"job_id": job_id, "node": node})
        yield Sample("exporter_build_info", 1, {"node": node, **leaf})
        lost = [s for s in play.symptoms if s.stalled and s.job_id == job_id]
        still = sum(min(second, s.end) - s.begin for s in lost if second > s.begin)
        labels = {"job_id": job_id, "node": node, "rank": str(place)}
        # The rules compare an age with seconds as they are, so ages are those of the script.
        step = time.time() - (still if any(second < s.end for s in lost) else 0)
        yield Sample("rank_last_step_timestamp_seconds", step, labels)
        yield Sample("rank_heartbeat_timestamp_seconds", time.time(), labels)
        cut_off = any(node in shown.cut_off for shown in now)
        port = {"node": node, "device": "mlx5_0", "port": "1"}
        yield Sample("nic_port_state", 1 if cut_off else 4, port)
        yield Sample("nic_link_downed_total", 1, port)
        for symptoms in play.symptoms:
            yield from _devices(symptoms, node, second)


def _devices(symptoms: Symptoms, node: str, second: float) -> Iterator[Sample]:
    shown = max(0.0, min(second, symptoms.end) - symptoms.begin)
    if node in symptoms.hot:
        labels = {"node": node, "gpu": "0", "reason": "hw_thermal"}
        yield Sample("gpu_throttle_seconds_total", shown, labels)
    if node in symptoms.pausing:
        labels = {"node": node, "device": "mlx5_0", "port": "1", "direction": "transmit"}
        yield Sample("nic_pfc_pause_seconds_total", shown, labels)
    for gpu in range((symptoms.broken_gpus or {}).get(node, 0)):
        labels = {"node": node, "pci_bus_id": f"0000:{gpu:02x}:00.0"}
        errors = {**labels, "class": "hardware"}
        yield Sample("gpu_xid_class_errors_total", float(shown > 0), errors)
        if shown > 0:
            seen = {**labels, "gpu": str(gpu), "xid": "79"}
            yield Sample("gpu_xid_last_timestamp_seconds", time.time() - shown, seen)


def detector_exposition(play: Play, second: float) -> Iterator[Sample] | None:
    """What the detector of a cluster shows; None while it is away."""
    if play.gone[0] <= second < play.gone[1]:
        return None
    return _detector_lines(play, second)


def _detector_lines(play: Play, second: float) -> Iterator[Sample]:
    yield Sample("peerwatch_build_info", 1, {})
    yield Sample("peerwatch_reader_up", 1, {})
    yield Sample("peerwatch_discovery_last_success_timestamp_seconds", time.time(), {})
    for finding in play.findings:
        if finding.begin <= second < finding.end:
            yield finding.sample()


def scripts() -> dict[str, Script]:
    """All expositions by name."""
    found: dict[str, Script] = {}
    for name, play in PLAYS.items():
        found[f"{name}-nodes"] = partial(nodes_exposition, play)
        found[f"{name}-detector"] = partial(detector_exposition, play)
    return found


@dataclass
class Outcome:
    """What came of all plays."""

    receiver: WebhookReceiver
    firing: Counter[str]
    stood_still: bool

    def paged(self, cluster: str, status: str = "firing") -> list[str]:
        """Return the nodes, or places of several, that the pager was notified of."""
        return sorted(
            about(sent.group_labels)
            for sent in self.receiver.notifications("/page")
            if sent.status == status and sent.group_labels.get("cluster") == cluster
        )

    def tickets(self, cluster: str) -> tuple[str, ...]:
        """Return the alerts that tickets about a cluster were made of."""
        return tuple(
            alert.labels["alertname"]
            for sent in self.receiver.notifications("/ticket")
            for alert in sent.firing()
            if alert.labels.get("cluster") == cluster
        )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """All plays, from health to the last page that may come."""
    outcome = play_all(tmp_path_factory.mktemp("one-page"), SPEED)
    if outcome.stood_still:
        pytest.skip("the machine stood still while the plays were played")
    return outcome


def play_all(folder: Path, speed: float) -> Outcome:
    """Play everything once, so many times as fast as it would be."""
    shipped = yaml.safe_load((ROOT / "rules" / "alertmanager.example.yaml").read_text())
    with (
        WebhookReceiver() as receiver,
        ScriptedExpositions(scripts(), speed) as expositions,
        Stack(folder) as stack,
    ):
        text = json.dumps(scaled(shipped, speed, receiver.url))
        manager = alertmanager(stack, free_ports(1)[0], text)
        alone = "prometheus_restarts"
        names = [name for name in PLAYS if name != alone]
        others = fast_prometheus(stack, expositions, names, manager.url)
        first = fast_prometheus(stack, expositions, [alone], manager.url)
        expositions.begin()
        expositions.wait_until(RESTART[0])
        first.process.stop(10)
        expositions.wait_until(RESTART[1])
        port = int(first.url.rsplit(":", 1)[1])
        start_prometheus(stack, folder / f"prometheus-{port}", port, speed)
        expositions.wait_until(END - 30)
        firing = count_firing(others)
        expositions.wait_until(LAST)
        unscraped = max(expositions.longest_gap(f"{name}-nodes") for name in names)
        stood_still = (
            unscraped * speed > LONGEST_UNSCRAPED
            or longest_unevaluated(others) * speed > LONGEST_UNEVALUATED
        )
        return Outcome(receiver, firing, stood_still)


def about(group: Mapping[str, str]) -> str:
    """Return what a page is about: a node, or a place of several."""
    return group.get("node") or f"{group.get('level', '')} {group.get('place', '')}".strip()


@pytest.mark.parametrize("name", PLAYS)
def test_every_fault_is_paged_exactly_once(played: Outcome, name: str) -> None:
    assert PLAYS[name].pages == played.paged(name)


@pytest.mark.parametrize("name", PLAYS)
def test_the_end_of_every_fault_is_told_exactly_once(played: Outcome, name: str) -> None:
    assert PLAYS[name].pages == played.paged(name, "resolved")


@pytest.mark.parametrize("name", PLAYS)
def test_what_the_named_node_explains_makes_no_tickets(played: Outcome, name: str) -> None:
    assert PLAYS[name].tickets == played.tickets(name)


def test_the_page_about_a_place_lists_its_nodes_and_jobs(played: Outcome) -> None:
    (page,) = (
        alert
        for sent in played.receiver.notifications("/page")
        if sent.group_labels.get("cluster") == "leaf_switch" and sent.group_labels.get("level")
        for alert in sent.firing()
    )

    assert f": {', '.join(SIXTEEN[:8])}. Training jobs: j1." in page.annotations["description"]


def test_the_large_fault_fires_more_than_forty_five_alerts(played: Outcome) -> None:
    assert played.firing["forty_five_alerts"] >= 45
    assert played.firing["nothing"] == 0
