"""The view of an incident: what happened, what to do, and everything in order of time."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping

import numpy as np
import promql_parser
import pytest

from detector.diagnosis.root.failed_job import ev, exits
from detector.fakes import config_for, metric
from detector.web.test_root import answer, text_of
from detector.web.test_segments import series
from detector.web.test_web import NASTY, START, Site
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.service.diagnoses import Diagnoses
from peerwatch_detector.web.actions.view import QUERIES as ACTIONS
from peerwatch_detector.web.deviation import Curve
from peerwatch_detector.web.incident import queries
from peerwatch_detector.web.incident.address import Address
from peerwatch_detector.web.incident.differences import difference
from peerwatch_detector.web.incident.heat import heat_map, heat_svg
from peerwatch_detector.web.incident.waits import waits_of, waits_svg
from peerwatch_detector.web.reliability.view import QUERIES as RELIABILITY
from peerwatch_detector.web.server import application

BEGUN = START + 300
INCIDENT = f"/incidents/{Address('job-1', BEGUN).when}/job-1"


class FakeHistory:
    """Answers by the names of queries; curves by metric and line."""

    def __init__(
        self,
        at: Mapping[str, list[Series]] | ReadError,
        over: Callable[[str, np.ndarray], list[Series]] = lambda _name, _times: [],
    ) -> None:
        self.answers, self.lines = at, over
        self.queries: list[str] = []
        self.asked = 0

    def at(self, queries: Mapping[str, str], time: float) -> Answers:
        self.asked += 1
        self.queries += queries.values()
        if isinstance(self.answers, ReadError):
            raise self.answers
        return {name: list(self.answers.get(name, [])) for name in queries}

    def over(self, queries: Mapping[str, str], start: float, end: float, step: float) -> Answers:
        self.queries += queries.values()
        times = np.arange(start, end + 1e-3, step)
        return {name: self.lines(name, times) for name in queries}


FINDING = {
    "node": "node-01",
    "metric": "load",
    "method": "peerwatch",
    "severity": "critical",
}
STOOD: dict[str, list[Series]] = {
    "since": [series(BEGUN, **FINDING)],
    "until": [series(BEGUN + 200, **FINDING)],
    "why": [
        series(1, **FINDING, family="host_load", summary="node-01: load 80 % (peers 50 %)"),
    ],
    "alerts": [
        series(BEGUN + 90, alertname="PeerwatchFaultyNode", severity="critical", node="node-01")
    ],
    "responded": [
        series(BEGUN + 120, node="node-01", result="done", summary="isolate: node-01 is drained.")
    ],
    "nodes": [series(4)],
    "step_rate": [series(0.6)],
}


def lines(name: str, times: np.ndarray) -> list[Series]:
    """Return the curves of a node that deviates from ``BEGUN`` on, and of all nodes."""
    high = np.where(times >= BEGUN, 0.8, 0.5)
    usual = np.full(len(times), 0.5)
    if name == "all":
        return [
            Series({"node": f"node-{k:02d}"}, times, high if k == 1 else usual + 0.001 * k)
            for k in range(4)
        ]
    rows = {"value": high, "low": usual - 0.01, "median": usual, "high": usual + 0.01}
    return [Series({"line": line}, times, values) for line, values in rows.items()]


def site_with(history: FakeHistory, config: object = None) -> Site:
    site = Site(config) if config is not None else Site()  # type: ignore[arg-type]
    site.application = application(site.detector, site.facts, history)
    return site


@pytest.fixture
def over() -> Site:
    """A detector that knows nothing of the job any more, an hour after the incident."""
    site = site_with(FakeHistory(STOOD, lines))
    site.clock.now = BEGUN + 3600.0
    return site


def test_an_incident_opens_from_series_after_its_job_has_ended(over: Site) -> None:
    html = over.get(INCIDENT)
    text = text_of(html)

    assert '<h1 class="sentence">node-01: load 80 % (peers 50 %)</h1>' in html
    assert "over: last seen 2023-11-14 22:21:40 UTC" in text
    assert "Look first at: The processes that are not the job" in text
    assert "take node-01 out and restart the job" in text
    assert "the job fell to 60 % of its usual step rate" in text
    assert "4 nodes" in text


def test_one_timeline_has_findings_alerts_and_actions_in_order(over: Site) -> None:
    text = text_of(over.get(INCIDENT))
    places = [
        text.index(each)
        for each in ("findings load", "alerts PeerwatchFaultyNode", "responder response: done")
    ]

    assert sorted(places) == places
    assert "isolate: node-01 is drained." in text
    assert "+1.5 min" in text or "+90.0 s" in text


def test_what_a_responder_only_decided_is_no_action() -> None:
    site = site_with(FakeHistory({**STOOD, "dry_run": STOOD["responded"]}, lines))
    site.clock.now = BEGUN + 3600.0

    assert "a dry run, nothing was done" in text_of(site.get(INCIDENT))


def test_the_metric_that_deviates_is_drawn_and_the_others_are_folded() -> None:
    other = metric("calm")
    site = site_with(FakeHistory(STOOD, lines), config_for(metric(), other))
    site.clock.now = BEGUN + 3600.0
    html = site.get(INCIDENT)
    shown, folded = html.split("metrics in which it does not deviate", 1)

    assert "<b>Load</b>" in shown
    assert "<figcaption>Calm</figcaption>" in folded
    assert "1 metrics" in html or "1 metric" in html


def test_a_metric_that_reads_like_its_peers_is_folded_though_it_counts_as_deviating() -> None:
    def standing(name: str, times: np.ndarray) -> list[Series]:
        if name != "calm":
            return lines(name, times)
        nothing = np.zeros(len(times))
        return [
            Series({"line": each}, times, nothing) for each in ("value", "low", "median", "high")
        ]

    # Deviations are asked for under the same name, and have no label but the metric.
    stood = {**STOOD, "since": [*STOOD["since"], series(BEGUN + 5, metric="calm")]}
    site = site_with(FakeHistory(stood, standing), config_for(metric(), metric("calm")))
    site.clock.now = BEGUN + 3600.0
    html = site.get(INCIDENT)
    shown, folded = html.split("metrics in which it does not deviate", 1)

    assert "<figcaption>Calm</figcaption>" in folded
    assert "<figcaption><b>Calm</b>" not in shown
    assert not re.search(r"metrics Calm : 0 ratio", text_of(html))


@pytest.mark.parametrize(
    ("own", "peers", "told"),
    [
        # Everything stands: both are at nothing.
        (0.0, 0.0, ""),
        # Of 11 GB/s before nobody sees 11 MB/s in a picture.
        (258e6, 247e6, ""),
        (258e6, 3e9, "258 MB/s, peers 3 GB/s"),
        (np.nan, 0.0, "deviates"),
    ],
)
def test_what_nobody_can_tell_apart_is_no_difference(own: float, peers: float, told: str) -> None:
    times = np.arange(0, 600, 10.0)
    before = times < 300
    values, median = np.where(before, 11e9, own), np.where(before, 11e9, peers)
    curve = Curve(
        "pcie", "PCIe", "bytes per second", "n", "", times, values, median, median, median
    )
    assert told == difference(curve, 300.0)


def test_a_difference_that_comes_late_is_told() -> None:
    times = np.arange(0, 600, 10.0)
    values, median = np.full(60, 0.5), np.where(times < 400, 0.5, 0.9)
    curve = Curve("load", "Load", "ratio", "n", "", times, values, median, median, median)
    assert "50 %, peers 90 %" == difference(curve, 300.0)


def test_a_finding_is_told_by_the_title_of_its_metric() -> None:
    finding = {**FINDING, "metric": "tcp_rdma_throughput"}
    stood = {name: [series(float(each[0].values[-1]), **finding)] for name, each in STOOD.items()}
    site = site_with(FakeHistory({**stood, "why": []}, lines))
    site.clock.now = BEGUN + 3600.0
    for text in (text_of(site.get(INCIDENT)), site.ask(f"{INCIDENT}?as=text").body.decode()):
        assert "RDMA throughput (critical, method peerwatch)" in text
        assert "tcp_rdma_throughput (critical" not in text


def test_the_heat_map_names_who_is_far_from_the_others(over: Site) -> None:
    html = over.get(INCIDENT)

    assert "Far from the others: node-01." in html
    assert 'class="shade' in html


def test_queries_of_everything_are_shown_and_are_promql(over: Site) -> None:
    html = over.get(INCIDENT)
    asked = over.application  # the view's own queries are parsed below
    assert asked is not None
    shown = re.findall(r"<code>(.*?)</code>", html, re.DOTALL)
    assert len(shown) >= 7
    for query in shown:
        promql_parser.parse(query.replace("&#34;", '"').replace("&gt;", ">"))


def test_every_query_is_promql_for_hostile_names_and_without_rules() -> None:
    config = config_for(prometheus={"recorded": False})
    own = metric()
    compared = config.detection_metrics()[0]
    texts = [
        *queries.facts(NASTY, 1200.0).values(),
        *queries.listed(86400.0).values(),
        queries.deviations(NASTY, NASTY, 900.0),
        queries.curve(compared, NASTY, NASTY, "", config),
        queries.curve(compared, NASTY, NASTY, "3", config_for(own)),
        queries.of_all(compared, NASTY, "", config),
        *ACTIONS.values(),
        *RELIABILITY.values(),
    ]
    for text in texts:
        promql_parser.parse(text)


def test_the_text_for_a_ticket_is_plain_and_has_the_address(over: Site) -> None:
    answered = over.ask(f"{INCIDENT}?as=text")
    text = answered.body.decode()

    assert answered.content_type.startswith("text/plain")
    assert text.startswith("node-01: load 80 % (peers 50 %)\n")
    assert f"{INCIDENT}\n" in text
    assert "What to do:\n1. Look first at:" in text
    assert "<" not in text


def test_a_running_job_is_drawn_from_what_is_held_and_its_view_leads_to_the_incident() -> None:
    history = FakeHistory({}, lambda _name, _times: [])
    site = site_with(history)
    site.add_job("job-1")
    site.run(900)
    job = site.get("/jobs/job-1")
    (address,) = set(re.findall(r'href="(/incidents/\d{8}T\d{6}Z/job-1)"', job))
    html = site.get(address)
    text = text_of(html)

    assert "it stands" in text
    assert '<h1 class="sentence">node-01: Load' in html
    assert "<b>Load</b>" in html
    assert "node-01 against its peers" in text
    assert re.search(r"metrics Load : [\d.]+ %, peers [\d.]+ %", text)
    asked = history.asked
    assert html == site.get(address)
    assert asked == history.asked


def test_the_root_of_a_running_job_is_the_sentence_and_the_first_thing_to_do() -> None:
    site = site_with(FakeHistory({}))
    site.add_job("job-1", faulty=False)
    site.run(600)
    found = answer(ev(0, "xid", "79", "n5", gpu="3"), *exits(30))
    diagnoses = Diagnoses((), roots={"job-1": found})
    site.detector.snapshot = _with(site, diagnoses)
    html = site.get(f"/incidents/{Address('job-1', START + 400).when}/job-1")

    assert '<h1 class="sentence">Isolate n5 and restart: GPU 3 fell off the bus' in html
    assert "<li>Isolate n5 and restart (sure).</li>" in html
    assert "first sign" in html


def _with(site: Site, diagnoses: Diagnoses) -> object:
    from dataclasses import replace

    return replace(site.detector.snapshot, diagnoses=diagnoses)


def test_nothing_stood_is_said() -> None:
    site = site_with(FakeHistory({}))
    site.clock.now = BEGUN + 3600.0

    assert "Nothing stood against this job at that time." in site.get(INCIDENT)


def test_a_server_that_does_not_answer_is_said_and_asked_again() -> None:
    history = FakeHistory(ReadError("timeout", "It did not answer."))
    site = site_with(history)
    site.clock.now = BEGUN + 3600.0

    assert "Prometheus did not answer: It did not answer." in site.get(INCIDENT, 503)
    assert "It did not answer." in site.get("/incidents")
    assert "It did not answer." in site.get("/actions")
    assert "It did not answer." in site.get("/reliability")


@pytest.mark.parametrize("when", ["now", "20231399T000000Z", "19700101T000000Z", "1"])
def test_a_time_that_is_none_is_not_found(over: Site, when: str) -> None:
    assert "is no time of an incident" in over.get(f"/incidents/{when}/job-1", 404)


def test_hostile_names_are_escaped() -> None:
    nasty = {**FINDING, "node": NASTY, "metric": NASTY}
    stood = {
        "since": [series(BEGUN, **nasty)],
        "until": [series(BEGUN + 200, **nasty)],
        "why": [series(1, **nasty, family=NASTY, summary=NASTY)],
        "responded": [series(BEGUN, node=NASTY, result=NASTY, summary=NASTY)],
        "alerts": [series(BEGUN, alertname=NASTY, severity=NASTY, node=NASTY)],
        "roots": [series(BEGUN, **{"node": NASTY, "class": NASTY, "summary": NASTY})],
    }
    site = site_with(FakeHistory(stood, lines))
    site.clock.now = BEGUN + 3600.0
    when = Address(NASTY, BEGUN).when
    for path in (f"/incidents/{when}/{NASTY.replace('?', '%3F').replace('#', '%23')}", INCIDENT):
        html = site.get(path)
        scripts = re.findall("<script[^>]*>", html)
        assert 2 == len(scripts), scripts
        for picture in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
            ET.fromstring(picture)


def test_incidents_are_listed_by_job_and_time_with_their_addresses() -> None:
    listed = {
        "since": [
            series(BEGUN, job_id="job-1", **FINDING),
            series(BEGUN + 30, job_id="job-1", **{**FINDING, "node": "node-02"}),
            series(BEGUN + 7200, job_id="job-1", **FINDING),
        ],
        "standing": [series(1, job_id="job-1", **FINDING)],
        "roots": [series(1, job_id="job-1", node="node-01", summary="Isolate node-01")],
    }
    site = site_with(FakeHistory(listed))
    html = site.get("/incidents?days=7")

    assert 2 == len(re.findall(r'href="/incidents/\d', html))
    assert INCIDENT in html
    assert "node-01, node-02" in html
    assert "Isolate node-01" in html


def test_without_a_responder_or_books_the_rooms_say_so() -> None:
    site = site_with(FakeHistory({}))

    assert "No responder is configured" in site.get("/actions")
    assert "No books are kept" in site.get("/reliability")
    assert "Nothing was found in a day." in site.get("/incidents")


def test_without_prometheus_the_rooms_say_so() -> None:
    site = Site()
    assert "asks no Prometheus" in site.get("/actions")
    assert "asks no Prometheus" in site.get("/reliability")
    assert "does not ask" in site.get(INCIDENT, 503)


def test_actions_show_what_was_done_and_what_stands_against_the_rest() -> None:
    known = {
        "up": [series(1)],
        "budget": [series(2, budget="hour")],
        "waiting": [series(3, reason="budget_job")],
        "ended": [
            series(BEGUN, node="n1", job_id="j", key="k", result="done", summary="drained."),
        ],
        "under_way": [series(BEGUN - 5, node="n1", job_id="j", key="k")],
        "stuck": [series(1, node="n2", job_id="j", key="s")],
        "decisions": [series(4, decision="act", reason="rule")],
    }
    text = text_of(site_with(FakeHistory(known)).get("/actions"))

    assert "Dry run: everything is decided, and nothing is done." in text
    assert "may still be taken out within an hour 2" in text
    assert "alerts that wait: budget_job 3" in text
    assert text.index("n2 j stuck") < text.index("n1 j done drained.")
    assert "under way" not in text
    assert "act rule 4" in text


def test_a_responder_that_is_gone_is_said() -> None:
    text = text_of(site_with(FakeHistory({"last": [series(BEGUN)]})).get("/actions"))

    assert "publishes nothing any more: last seen 2023-11-14 22:18:20 UTC" in text


def test_the_books_have_sizes_losses_and_lemons() -> None:
    known = {
        "made": [series(BEGUN)],
        "target": [series(0.9)],
        "ettr": [
            series(0.85, size_class="1024", bound="expected"),
            series(0.8, size_class="1024", bound="low"),
            series(0.9, size_class="1024", bound="high"),
        ],
        "mttf": [series(7200.0, size_class="1024", bound="value")],
        "rate": [series(0.0065, bound="value")],
        "failures": [series(3, cause="gpu_memory")],
        "lost": [series(7200.0, cause="gpu_memory", order="first")],
        "lemons": [series(1, node="n7", reason="tickets")],
        "scores": [series(2.5, node="n7")],
        "missing": [series(2)],
    }
    text = text_of(site_with(FakeHistory(known)).get("/reliability"))

    assert "6.5 failures per 1,000 node-days" in text
    assert "up to 1024 GPUs 85.0 % 80.0 % to 90.0 % 2 h" in text
    assert "gpu memory 3 2 GPU hours" in text
    assert "n7 tickets 2.5" in text
    assert "suffer from 2 things" in text


def test_a_healthy_job_has_no_shade_and_nobody_far_away() -> None:
    rng = np.random.default_rng(1)
    values = 0.5 + rng.normal(0, 0.01, (200, 60))
    times = [START + 15.0 * k for k in range(60)]
    found = heat_map("Load", "ratio", [f"n{k}" for k in range(200)], times, values, 0.1)

    assert found is not None
    assert () == found.hot
    assert "shade2" not in heat_svg(found, None)
    assert 168 == found.left_out


def test_two_nodes_have_no_heat_map() -> None:
    assert heat_map("Load", "ratio", ["a", "b"], [1.0, 2.0], np.ones((2, 2)), 0.1) is None


def test_a_heat_map_of_1500_nodes_is_small() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 1, (1500, 60))
    times = [START + 15.0 * k for k in range(60)]
    found = heat_map("Load", "ratio", [f"n{k}" for k in range(1500)], times, values, 0.1)

    assert found is not None
    assert 40_000 > len(heat_svg(found, START + 100))


def collectives(moment: float) -> dict[str, list[Series]]:
    """Return four ranks of which the last does not launch the tenth collective."""
    ranks = range(4)

    def of(name: str, value: float, rank: int, **labels: str) -> Series:
        return series(value, rank=str(rank), node=f"n{rank}", group="default", **labels)

    return {
        "sequence": [
            of("sequence", count, rank, state=state)
            for rank in ranks
            for state, count in (
                ("launched", 9 if rank == 3 else 10),
                ("completed", 9),
            )
        ],
        "groups": [of("groups", 1, rank, size="4") for rank in ranks],
        "read": [of("read", moment, rank) for rank in ranks],
        "up": [of("up", 1, rank) for rank in ranks],
        "age": [of("age", 60, rank) for rank in ranks if rank != 3],
    }


def test_who_waits_for_whom_names_the_rank_that_did_not_come() -> None:
    (wait,) = waits_of(collectives(START - 15.0), collectives(float(START)), START, 15.0)

    assert ("rank 3 (n3)", True) == (wait.whom, wait.is_root)
    assert wait.who.startswith("3 ranks: rank 0 (n0)")
    assert "have not launched it" == wait.why
    assert "rank 3 (n3)" in waits_svg([wait])
    ET.fromstring(waits_svg([wait]))


def test_who_gets_on_waits_for_nobody() -> None:
    assert [] == waits_of({}, {}, START, 15.0)
    assert json.dumps([]) == json.dumps(waits_of({}, collectives(START - 900.0), START, 15.0))


def test_actions_of_a_dry_run_are_told_as_decided_only() -> None:
    ended = [series(BEGUN, node="n1", job_id="j", key="k", result="done", summary="drained.")]
    totals = [series(1, action="drain", result="done")]
    acted = {"up": [series(0)], "ended": ended, "totals": totals}
    done = text_of(site_with(FakeHistory(acted)).get("/actions"))
    decided = text_of(
        site_with(FakeHistory({**acted, "up": [series(1)], "dry_run": ended})).get("/actions")
    )

    assert "dry run: done" not in done
    assert "Actions so far" in done
    assert "dry run: done" in decided
    assert "Actions so far, all decided only" in decided
