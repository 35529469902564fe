from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import Any
from urllib.parse import quote, unquote

import markupsafe
import numpy as np
import pytest

from detector.fakes import FakeClock, FakeReader, config_for, healthy, metric, node_names
from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.request import Request
from peerwatch_common.web.response import Response
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import ReadError
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web import deviation
from peerwatch_detector.web import pictures as web_pictures
from peerwatch_detector.web.app import create_app
from peerwatch_detector.web.server import application

START = 1_700_000_000
NASTY = '<script>alert("x")</script>&amp;/..?a=b#c'
ODD_NAMES = [
    NASTY,
    "team/train-7",
    "/scratch//run",
    "a b",
    "ünï",
    "..",
    "50%",
    "{{ 7*7 }}",
    "two\nlines",
]


class Site:
    """A detector over a fake Prometheus, and its web UI."""

    def __init__(self, config: DetectorConfig | None = None) -> None:
        self.clock = FakeClock(START)
        self.config = config or config_for()
        self.reader = FakeReader(self.clock, self.config)
        self.detector = Detector(self.config, self.reader, EMPTY, self.clock)
        self.facts = WebFacts()
        self.application = application(self.detector, self.facts)

    def add_job(self, job_id: str, *, faulty: bool = True, names: tuple[str, ...] = ()) -> None:
        values = healthy(4, 1000)
        if faulty:
            values[1, 500:] += 0.3
        self.reader.add_job(job_id, {"load": values}, names or node_names(4), START)

    def run(self, seconds: int) -> None:
        for _ in range(seconds // 30):
            self.clock.advance(30)
            self.detector.cycle()

    def get(self, path: str, status: int = 200) -> str:
        answer = self.ask(path)
        assert status == answer.status
        return answer.body.decode()

    def ask(self, target: str, **headers: str) -> Response:
        path, _, query = target.partition("?")
        quoted = quote(path, safe="/%")
        return self.application.answer(Request("GET", quoted, query, headers, True, "127.0.0.1"))


@pytest.fixture
def site() -> Site:
    return Site()


def test_every_view_works_before_anything_was_read(site: Site) -> None:
    assert "No training job is known" in site.get("/")
    assert "host_job_info" in site.get("/")
    assert {"jobs": [], "preparing": False} == json.loads(site.get("/api/v1/jobs"))
    assert "peerwatch_reader_up 0.0" in site.get("/metrics")
    assert "healthy" in site.get("/-/healthy")
    assert "not been read" in site.get("/-/ready", 503)


def test_ready_after_the_first_discovery(site: Site) -> None:
    site.reader.failure = "unreachable"
    site.run(30)
    site.get("/-/ready", 503)
    assert "Prometheus cannot be read" in site.get("/")
    site.reader.failure = None
    site.run(30)
    assert "ready" in site.get("/-/ready")
    assert "Prometheus is read" in site.get("/")


def test_views_of_a_healthy_job(site: Site) -> None:
    site.add_job("job-1", faulty=False)
    site.run(300)
    assert "none" in site.get("/")
    html = site.get("/jobs/job-1")
    assert "No node is flagged." in html
    assert "None" not in html
    assert 1 == html.count("<svg")


def test_views_of_a_job_with_a_finding(site: Site) -> None:
    site.add_job("job-1")
    site.run(900)
    index, html = site.get("/"), site.get("/jobs/job-1")
    for text in (index, html):
        assert "differs from its peers in Load" in text
        assert "2023-11-14 22:21:40 UTC" in text
        assert "node-01" in text
    assert "<title>1 finding · " in index
    assert "Load; red: node-01; band and grey line: 10 to 90 %" in html
    assert 'href="/jobs/job-1"' in index
    assert 2 == html.count("<svg")


def test_a_job_without_any_sample_has_a_view(site: Site) -> None:
    site.reader.add_job("job-1", {"other": np.ones((3, 100))}, node_names(3), START)
    site.run(60)
    html = site.get("/jobs/job-1")
    assert "None" not in html
    assert "<svg" not in html
    assert "No samples of this job yet." in html


def test_an_absent_node_has_a_view_without_a_picture(site: Site) -> None:
    site.add_job("job-1", faulty=False)
    site.run(300)
    site.reader.remove_node("job-1", "node-02", START + 300)
    site.run(120)
    assert "vanished: its exporter cannot be reached" in site.get("/")
    html = site.get("/jobs/job-1")
    assert 1 == html.count("<svg")
    assert "None" not in html


def test_the_visitor_chooses_metric_and_node(site: Site) -> None:
    site = Site(config_for(metric("load"), metric("other")))
    site.add_job("job-1")
    site.reader.add_job("job-1", {"other": healthy(4, 1000, 3)}, node_names(4), START)
    site.run(300)
    html = site.get("/jobs/job-1?metric=other&node=node-03")
    assert "<h2>Other: node-03 against its peers" in html
    assert 'aria-label="Other of node-03 and its peers: at the end ' in html
    for odd in ("metric=nope", "node=nope", "metric=%3Cscript%3E", "node=&metric="):
        assert "<script>" not in site.get(f"/jobs/job-1?{odd}")


def test_pictures_are_well_formed_and_refer_to_nothing_outside(site: Site) -> None:
    site.add_job("job-1")
    site.run(900)
    pictures = re.findall(r"<svg.*?</svg>", site.get("/jobs/job-1"), re.DOTALL)
    assert 2 == len(pictures)
    for text in pictures:
        root = ET.fromstring(text)
        assert "0 0 760 260" == root.get("viewBox")
        assert len(root.findall("{*}path")) >= 4
        assert "NaN" not in text
        assert "nan" not in text
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", pictures[0])


def test_an_unknown_job_is_told_and_escaped(site: Site) -> None:
    assert "No training job &#39;nope&#39; is known" in site.get("/jobs/nope", 404)
    assert "<script>" not in site.get("/jobs/<script>alert(1)</script>", 404)
    site.get("/nowhere", 404)


@pytest.mark.parametrize("job_id", ODD_NAMES)
def test_odd_names_are_escaped_and_their_links_work(site: Site, job_id: str) -> None:
    names = tuple(f"{job_id}-{index}" for index in range(4))
    site.add_job(job_id, names=names)
    site.run(900)
    index = site.get("/")
    assert "<script>" not in index
    (link,) = {href for href in re.findall(r'href="([^"]*)"', index) if "/jobs/" in href}
    html = site.get(link.replace("&amp;", "&"))
    assert "differs from its peers" in html
    assert "<script>" not in html
    assert f"<h1>Training job {markupsafe.escape(job_id)}</h1>" in html
    for href in re.findall(r'href="([^#"][^"]*)"', html):
        site.get(href.replace("&amp;", "&"))
    assert job_id in json.loads(site.get("/api/v1/jobs"))["jobs"][0]["job_id"]


def test_json_tells_jobs_findings_and_candidates(site: Site) -> None:
    site.add_job("job-1")
    site.run(900)
    (job,) = json.loads(site.get("/api/v1/jobs"), parse_constant=refuse)["jobs"]
    assert ("job-1", list(node_names(4)), True, True) == (
        job["job_id"],
        job["nodes"],
        job["running"],
        job["comparable"],
    )
    assert START + 898 == job["evaluated_until"]
    (finding,) = job["findings"]
    assert {
        "node": "node-01",
        "gpu": "",
        "metric": "load",
        "method": "peerwatch",
        "severity": "critical",
    }.items() <= finding.items()
    assert {"score", "since", "raised"} <= finding.keys()
    (candidate,) = job["candidates"]
    assert ("node-01", 240.0) == (candidate["node"], candidate["threshold_seconds"])
    assert candidate["continuity_seconds"] >= 240


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON.")


def test_json_stays_json_while_a_suspect_cannot_be_evaluated(site: Site) -> None:
    site.add_job("job-1")
    for index, series in enumerate(site.reader.recorded["job-1", "load"]):
        if series.labels["node"] == "node-01":
            here = series.times < START + 800
            site.reader.recorded["job-1", "load"][index] = type(series)(
                series.labels, series.times[here], series.values[here]
            )
    site.run(900)
    (job,) = json.loads(site.get("/api/v1/jobs"), parse_constant=refuse)["jobs"]
    (candidate,) = job["candidates"]
    assert candidate["normal_score"] is None


def test_json_stays_json_for_a_zscore_of_a_node_that_cannot_be_evaluated() -> None:
    site = Site(config_for(method="zscore"))
    values = healthy(8, 1000)
    values[1, 500:] += 0.3
    values[1, 700:] = np.nan
    site.reader.add_job("job-1", {"load": values}, node_names(8), START)
    site.run(900)
    (job,) = json.loads(site.get("/api/v1/jobs"), parse_constant=refuse)["jobs"]
    assert ["node-01"] == [candidate["node"] for candidate in job["candidates"]]


def test_metrics_speak_openmetrics_to_those_who_ask(site: Site) -> None:
    site.add_job("job-1")
    site.run(30)
    plain = site.ask("/metrics")
    assert plain.content_type.startswith("text/plain; version=")
    asked = site.ask("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert asked.content_type.startswith("application/openmetrics-text")
    assert asked.body.endswith(b"# EOF\n")


def test_views_load_nothing_from_elsewhere(site: Site) -> None:
    site.add_job("job-1")
    site.run(900)
    html = site.get("/jobs/job-1")
    assert [] == re.findall(r'(?:src|href)="(?:https?:)?//', html)
    assert ['<script src="/static/refresh.js" defer>'] == re.findall("<script[^>]*>", html)


def test_a_finding_is_explained_in_the_view_with_people_s_units(site: Site) -> None:
    site.add_job("job-1")
    site.run(900)
    (job,) = site.detector.snapshot.detections
    (why,) = job.explanations.values()
    (metric_evidence,) = why.metrics
    html = site.get("/jobs/job-1")
    assert f'<p class="why">{why.sentence}</p>' in html
    assert why.meaning.text in html
    assert "Load (high)" in html
    assert f'<td class="n">{100 * metric_evidence.value:.3g} %</td>' in html
    assert f'<td class="n">{100 * metric_evidence.median:.3g} %</td>' in html
    assert f"{100 * metric_evidence.low:.3g} % to {100 * metric_evidence.high:.3g} %" in html
    assert f"Confidence {why.confidence.ratio:.2f} of 1 ({why.confidence.words})" in html
    assert "of the moment at which the node was flagged" in html


def test_json_tells_the_explanation(site: Site) -> None:
    site.add_job("job-1")
    site.run(900)
    (job,) = json.loads(site.get("/api/v1/jobs"), parse_constant=refuse)["jobs"]
    why = job["findings"][0]["explanation"]
    (metric_evidence,) = why["metrics"]
    assert ("load", "high", "ratio", "") == (
        metric_evidence["metric"],
        metric_evidence["direction"],
        metric_evidence["unit"],
        metric_evidence["gpu"],
    )
    assert (
        metric_evidence["low"]
        <= metric_evidence["median"]
        <= metric_evidence["high"]
        < metric_evidence["value"]
    )
    assert (
        pytest.approx(metric_evidence["value"] / metric_evidence["median"])
        == metric_evidence["factor"]
    )
    unknown = dict.fromkeys(("loss", "waits_seconds", "still_seconds"))
    assert {"activity": "unknown", **unknown} == why["job"]
    assert 0.5 <= why["confidence"]["ratio"] <= 1
    assert {"family", "short", "text", "first_check"} == why["meaning"].keys()
    assert why["made"] <= job["evaluated_until"]
    assert why["before_restart"] is False


def test_an_explanation_stays_as_it_was_when_the_node_was_named(site: Site) -> None:
    site.add_job("job-1")
    site.run(780)
    (before,) = site.detector.snapshot.detections[0].explanations.values()
    site.run(120)
    (after,) = site.detector.snapshot.detections[0].explanations.values()
    assert before == after


def test_the_picture_shows_the_begin_of_a_finding_while_its_samples_are_kept(site: Site) -> None:
    values = healthy(4, 2400)
    values[1, 500:] += 0.3
    site.reader.add_job("job-1", {"load": values}, node_names(4), START)
    for until, marked in ((900, True), (1400, True), (1900, False)):
        site.run(until - round(site.clock.now - START))
        (picture, *_) = re.findall(r"<svg.*?</svg>", site.get("/"), re.DOTALL)
        assert marked == ("stroke-dasharray" in picture)
        assert marked == ("deviates since 22:21:" in picture)


def test_the_picture_of_a_finding_on_one_gpu_draws_that_gpu() -> None:
    site = Site(config_for(metric("load", scope="gpu", recorded="job_gpu:load:ratio")))
    values = healthy(16, 1000, spread=0).reshape(4, 4, 1000)
    values[1, 2, 500:] = 0.95
    site.reader.add_job("job-1", {"load": values}, node_names(4), START)
    site.run(900)
    html = site.get("/jobs/job-1")
    assert "red: node-01 GPU 2; band and grey line: 10 to 90 %" in html
    assert "<td>Load, GPU 2 (high)</td>" in html
    assert '<td class="n">95 %</td>' in html
    (drawn, _) = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    (line,) = [
        each.get("d", "")
        for each in ET.fromstring(drawn).findall("{*}path")
        if "--bad" in each.get("stroke", "") and each.get("stroke-width")
    ]
    heights = {float(point.split()[1]) for point in line.split("L")[-20:]}
    assert 1 == len(heights)


def test_a_picture_is_drawn_once_a_cycle_for_all_who_look(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    real = deviation.deviation_svg

    def draw(curve: deviation.Curve, *rest: Any, **options: Any) -> str:
        drawn.append(curve.node)
        return real(curve, *rest, **options)

    monkeypatch.setattr(deviation, "deviation_svg", draw)
    site.add_job("job-1")
    site.run(900)
    assert site.get("/") == site.get("/")
    assert ["node-01"] == drawn
    site.get("/jobs/job-1?metric=load&node=node-02")
    site.get("/jobs/job-1?metric=load&node=node-02")
    assert ["node-01", "node-02"] == drawn
    site.run(30)
    site.get("/")
    assert ["node-01", "node-02", "node-01"] == drawn


def test_only_so_many_pictures_are_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_pictures, "_KEPT_BYTES", 0)
    site.add_job("job-1")
    site.run(900)
    pictures = web_pictures.Pictures(site.detector)
    (detection,) = site.detector.snapshot.detections
    with create_app(site.detector, site.facts).test_request_context():
        found = {node: pictures.get(detection, "load", node, None) for node in detection.job.nodes}
    assert all("<svg" in str(picture) for picture in found.values())
    assert not pictures.held


def test_a_name_of_a_megabyte_takes_no_view_down(site: Site) -> None:
    job_id, node = 1_000_000 * "j", 1_000_000 * "n"
    site.add_job(job_id, names=(*node_names(3), node))
    site.run(900)
    for path, most in (("/metrics", 200_000), ("/", 500_000), ("/api/v1/jobs", 50_000)):
        assert len(site.get(path)) < most
    assert 0 < site.facts.shortened_labels
    assert re.search(r"\npeerwatch_web_shortened_labels_total [1-9]", site.get("/metrics"))
    (job,) = json.loads(site.get("/api/v1/jobs"))["jobs"]
    assert "1000000 bytes" in job["job_id"]
    (link,) = re.findall(r'<td class="name"><a href="/jobs/([^"]+)"', site.get("/"))
    assert len(link) < 4096
    html = site.get(f"/jobs/{unquote(link)}")
    assert "1000000 bytes" in html
    assert len(html) < 500_000


def test_a_job_of_two_nodes_is_called_not_compared_and_never_healthy(site: Site) -> None:
    site.reader.add_job("job-1", {"load": healthy(2, 1000)}, node_names(2), START)
    site.run(300)
    views = [site.get("/"), site.get("/jobs/job-1")]
    assert all("ot compared: 2 nodes, needs 3" in html for html in views)
    assert not any('"good">No' in html or '"good">none' in html for html in views)
    (job,) = json.loads(site.get("/api/v1/jobs"))["jobs"]
    assert "2 nodes, needs 3" == job["not_compared"]
    series = 'peerwatch_job_not_compared_info{job_id="job-1",reason="2 nodes, needs 3"} 1'
    assert series in site.get("/metrics")


def test_a_detector_that_reads_nothing_for_a_while_is_not_ready(site: Site) -> None:
    site.add_job("job-1", faulty=False)
    site.run(300)
    site.reader.failure = "timeout"
    site.run(90)
    assert "ready" in site.get("/-/ready")
    site.run(300)
    assert "has not been read from Prometheus for" in site.get("/-/ready", 503)
    site.reader.failure = None
    site.run(30)
    assert "ready" in site.get("/-/ready")


def test_a_job_whose_steps_are_counted_shows_how_fast_it_is_against_its_usual_step_rate(
    site: Site,
) -> None:
    # Steps of two seconds; of four for the last two minutes.
    time = np.arange(1200)
    steps = np.where(time < 1080, time // 2, 540 + (time - 1080) // 4)
    values = {"load": healthy(3, 1200), "rank_steps": np.tile(steps, (3, 1)).astype(float)}
    site.reader.add_job("job-1", values, node_names(3), START)
    site.run(300)
    assert json.loads(site.get("/api/v1/jobs"))["jobs"][0]["progress"] is None
    assert "usual step rate" not in site.get("/jobs/job-1")
    site.run(900)
    (job,) = json.loads(site.get("/api/v1/jobs"))["jobs"]
    assert ("rank_steps", 0.5) == (job["progress"]["metric"], round(job["progress"]["ratio"], 1))
    assert "50 % of its usual step rate (a step in 2 s)" in site.get("/jobs/job-1")
    assert 'peerwatch_job_progress_ratio{job_id="job-1"} 0.5' in site.get("/metrics")


def test_a_detector_that_has_never_read_a_job_is_not_ready_for_ever(site: Site) -> None:
    site.add_job("job-1", faulty=False)
    site.reader.failures_by_query = {"load": ReadError("timeout", "no end of a head")}
    site.run(60)
    assert "ready" in site.get("/-/ready")
    site.run(300)
    assert "No job's samples have been read" in site.get("/-/ready", 503)
    site.reader.failures_by_query = {}
    site.run(60)
    assert "ready" in site.get("/-/ready")
