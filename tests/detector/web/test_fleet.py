"""The list of jobs and the view of a node."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import pytest

from detector.fakes import healthy, node_names
from detector.web.test_web import START, Site
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.explanation.explain import JobProgress
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.jobs import Job
from peerwatch_detector.web.alerts import AlertView
from peerwatch_detector.web.fleet.view import CHOICES, Asked, FleetView, fleet_view
from peerwatch_detector.web.job.view import SHOWN_NODES
from peerwatch_detector.web.state import state_of
from peerwatch_detector.web.terms import meanings, term

NOW = float(START)


def detection(job_id: str, *, running: bool = True, nodes: int = 4) -> Detection:
    job = Job(job_id, node_names(nodes), running=running)
    return replace(Detection.none(job, NOW, ""), not_compared="", comparable=True)


def flagged(job_id: str, severity: str = "critical") -> Detection:
    finding = Finding(job_id, "node-01", "", "load", "peerwatch", severity, 1, NOW, NOW, 3.0)
    return replace(detection(job_id), findings=(finding,))


def with_progress(job_id: str, activity: str, waits: float | None = None) -> Detection:
    return replace(detection(job_id), progress=JobProgress(activity, None, waits))


def still(job_id: str, activity: str, seconds: float) -> Detection:
    return replace(detection(job_id), progress=JobProgress(activity, still_seconds=seconds))


def with_step_rate(job_id: str, ratio: float, usual: float = 4.0) -> Detection:
    step_rate = JobStepRate("rank_steps", usual, ratio)
    return replace(with_progress(job_id, "trains"), step_rate=step_rate)


def listed(*detections: Detection, **asked: str) -> FleetView:
    return fleet_view(detections, Asked.of(asked), lambda _: (), NOW, alerts_of)


def alerts_of(job: Job) -> tuple[AlertView, ...]:
    found = AlertView("PeerwatchGpuMissing", "", ("node-01",), 0)
    return (found,) if "alert" in job.job_id else ()


def ids(view: FleetView) -> list[str]:
    return [row.job_id for row in view.rows]


@pytest.mark.parametrize(
    ("job", "kind", "text", "level"),
    [
        (detection("a", running=False), "ended", "ended", ""),
        (with_progress("a", "waits", 59), "waiting", "waits for its ranks, 59 s so far", ""),
        (with_progress("a", "waits", 90), "stalled", "stalled since 22:11:50 UTC", "bad"),
        (with_progress("a", "rests"), "paused", "paused: its GPUs rest, as in a checkpoint", ""),
        (still("a", "rests", 599), "paused", "paused: its GPUs rest, as in a checkpoint", ""),
        (
            still("a", "rests", 690),
            "stalled",
            "no steps known: GPUs idle since 22:01:50 UTC",
            "warn",
        ),
        (still("a", "unknown", 500), "stalled", "no steps known: GPUs busy without work", "warn"),
        (
            with_step_rate("a", 0.6),
            "slowed",
            "slowed to 60 % of its usual step rate, 2.4 steps/s",
            "warn",
        ),
        (with_step_rate("a", 0.5, 0.5), "slowed", "a step in 4 s", "warn"),
        (with_step_rate("a", 0.0), "slowed", "no step is finished", "warn"),
        (with_step_rate("a", 1.05), "training", "training, 4.2 steps/s", ""),
        (with_progress("a", "trains"), "training", "training", ""),
        (detection("a"), "running", "running, progress unknown", ""),
    ],
)
def test_a_state_is_told_in_true_words(job: Detection, kind: str, text: str, level: str) -> None:
    state = state_of(job)
    assert (kind, level) == (state.kind, state.level)
    assert text in state.text


def test_what_needs_a_person_comes_first() -> None:
    view = listed(
        with_step_rate("a-trains", 1.0),
        detection("b-ended", running=False),
        with_step_rate("c-slow", 0.4),
        flagged("d-warned", "warning"),
        with_progress("e-stalled", "waits", 300),
        flagged("f-faulty"),
        with_step_rate("g-alert", 1.0),
    )
    expected = ["f-faulty", "d-warned", "g-alert", "e-stalled", "c-slow", "a-trains", "b-ended"]
    assert expected == ids(view)
    counts = {"faulty": 2, "alerting": 1, "stalled": 1, "slowed": 1, "training": 2, "ended": 1}
    assert counts == view.counts
    assert 2 == view.findings


@pytest.mark.parametrize("choice", CHOICES)
def test_jobs_are_chosen_by_state(choice: str) -> None:
    jobs = {
        "faulty": flagged("faulty"),
        "alerting": detection("alerting"),
        "stalled": with_progress("stalled", "waits", 300),
        "slowed": with_step_rate("slowed", 0.4),
        "training": with_step_rate("training", 1.0),
        "not-compared": replace(detection("not-compared"), not_compared="2 nodes, needs 3"),
        "ended": detection("ended", running=False),
    }
    assert [choice] == ids(listed(*jobs.values(), state=choice))


def test_jobs_are_searched_by_their_name_and_their_nodes() -> None:
    jobs = [detection("Team/llama"), detection("team/vision", nodes=12)]
    assert ["Team/llama"] == ids(listed(*jobs, q=" LLAMA "))
    assert ["team/vision"] == ids(listed(*jobs, q="node-11"))
    assert [] == ids(listed(*jobs, q="nothing"))


def test_the_list_shows_a_hundred_jobs_at_a_time_and_odd_parts_are_the_nearest() -> None:
    jobs = [detection(f"job-{number:03}") for number in range(250)]
    assert ids(listed(*jobs))[-1] == "job-099"
    assert ids(listed(*jobs, page="3"))[-1] == "job-249"
    assert "201 to 250" == listed(*jobs, page="3").places
    for odd in ("99", "0", "-1", "x", "²", "9" * 50):
        assert 1 <= listed(*jobs, page=odd).part <= 3


@pytest.fixture
def site() -> Site:
    return Site()


def test_the_list_keeps_what_was_asked(site: Site) -> None:
    site.add_job("job-1")
    site.add_job("job-2", faulty=False)
    site.run(900)
    html = site.get("/?state=faulty&q=job")
    assert ">job-1</a>" in html
    assert ">job-2</a>" not in html
    assert 'value="job"' in html
    assert re.search(r'href="/\?state=faulty&amp;q=job" aria-current="true">with a faulty', html)
    assert "None of 2 training jobs matches" in site.get("/?q=nothing")
    assert "<script>alert" not in site.get('/?q="><script>alert(1)</script>')


def test_the_view_of_a_node_says_what_stands_against_it(site: Site) -> None:
    site.add_job("job-1")
    site.add_job("job-2", faulty=False)
    site.run(900)
    html = site.get("/nodes/node-01")
    assert "<title>flagged: node-01" in html
    # The job in which it is flagged comes first.
    assert html.index('href="/jobs/job-1"') < html.index('href="/jobs/job-2"')
    assert "differs from its peers in Load" in html
    assert "The node is not flagged." in html
    assert '<span class="bad">flagged</span>' in html
    assert 3 == html.count("<svg")
    calm = site.get("/nodes/node-02?metric=nonsense")
    assert 'class="bad"' not in calm
    assert "No training job has a node" in site.get("/nodes/nobody", 404)


def test_the_view_of_an_absent_node_says_since_when(site: Site) -> None:
    site.add_job("job-1", faulty=False)
    site.run(300)
    site.reader.remove_node("job-1", "node-02", START + 300)
    site.run(60)
    assert re.search(r"last there \d+ s ago", site.get("/nodes/node-02"))


def test_a_large_job_shows_the_nodes_that_stand_out_and_all_where_asked(site: Site) -> None:
    names = tuple(f"gpu-{number:04}" for number in range(1500))
    site.reader.add_job("big", {"load": healthy(1500, 400)}, names, START)
    site.run(60)
    html = site.get("/jobs/big")
    assert f"{1500 - SHOWN_NODES} nodes more" in html
    assert len(html) < 200_000
    assert "gpu-1499" in site.get("/jobs/big?nodes=all")


def test_nothing_is_red_on_a_healthy_job(site: Site) -> None:
    site.add_job("job-1", faulty=False)
    site.run(300)
    for path in ("/", "/jobs/job-1", "/nodes/node-01"):
        html = site.get(path)
        assert not re.search(r'class="[^"]*\b(?:bad|warn)\b', html), path


def test_every_view_has_what_keyboards_and_screen_readers_need(site: Site) -> None:
    site.add_job("job-1")
    site.run(900)
    for path in ("/", "/jobs/job-1", "/nodes/node-01", "/segments/job-1"):
        html = site.get(path)
        assert '<html lang="en">' in html
        assert '<a class="skip" href="#content">' in html
        assert 1 == html.count("<main")
        assert 1 == html.count("<h1")
        levels = [int(level) for level in re.findall(r"<h([1-6])", html)]
        steps = itertools.pairwise(levels)
        assert all(deeper - level <= 1 for level, deeper in steps), path
        named = re.findall(r'<label for="([^"]+)"', html)
        assert named == re.findall(r'<input id="([^"]+)"', html)
        assert all("aria-label" in tag for tag in re.findall(r"<svg[^>]*>", html)), path


def test_the_state_is_in_the_json_too(site: Site) -> None:
    site.add_job("job-1", faulty=False)
    site.run(300)
    (job,) = json.loads(site.get("/api/v1/jobs"))["jobs"]
    assert "running" == job["state"]


def test_terms_are_those_of_the_glossary() -> None:
    assert "finding" in meanings()
    assert not [text for text in meanings().values() if re.search(r"\]\(|\*\*|`", text)]
    assert '<abbr title="the other nodes' in term("peers")
    with pytest.raises(KeyError):
        term("crew")


def test_the_script_is_served_and_is_the_only_one(site: Site) -> None:
    site.add_job("job-1")
    site.run(300)
    for path in ("/", "/jobs/job-1", "/nodes/node-01"):
        scripts = re.findall(r"<script[^>]*>", site.get(path))
        assert ['<script src="/static/refresh.js" defer>'] == scripts
    answer = site.ask("/static/refresh.js")
    assert (200, "text/javascript; charset=utf-8") == (answer.status, answer.content_type)
    assert b"replaceWith" in answer.body


def test_a_job_that_stopped_long_ago_and_whose_steps_nobody_counts_is_not_called_training() -> None:
    told = ["gpu_tensor_activity", "gpu_duty_cycle"]
    site = Site(DetectorConfig.model_validate({"metrics": {"enabled": told}}))
    values = healthy(4, 2400)
    values[:, 900:] = 0.0
    site.reader.add_job("job-1", dict.fromkeys(told, values), node_names(4), START)
    site.run(900)
    assert "training" in re.sub(r"<h1>.*?</h1>|<th.*?</th>", "", site.get("/?state=training"))
    site.run(1200)
    html = site.get("/")
    (since,) = re.findall(r"no steps known: GPUs idle since (\d\d:\d\d:\d\d) UTC", html)
    # 22:13:20 and 900 s, as far as a cycle tells.
    assert "22:28:1" <= since <= "22:28:3"
    assert "<title>1 stalled" in html


def test_an_address_that_is_none_leads_on_and_the_room_one_is_in_is_marked() -> None:
    site = Site()
    html = site.get("/jobs/gone", 404)
    assert 'href="/incidents"' in html
    assert "No training job &#39;gone&#39; is known" in html
    for path in ("/", "/incidents", "/actions", "/reliability"):
        assert [path] == re.findall(r'<a href="([^"]+)" aria-current="page">', site.get(path))
