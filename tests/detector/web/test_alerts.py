"""Critical alerts in the views: what a rule knows is not hidden by what a comparison does not."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from detector.fakes import node_names
from detector.web.test_incident import FakeHistory, site_with
from detector.web.test_segments import series
from detector.web.test_web import Site
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.jobs import Job
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.web.alerts import Alert, Firing, FiringAlerts

RECOVERY, LOST, STALLED = "PeerwatchGpuRecoveryAction", "PeerwatchGpuMissing", "PeerwatchJobStalled"
JOBS = [Job("a", node_names(4)), Job("b", ("node-10", "node-11"))]


def firing(*alerts: tuple[str, str, str]) -> dict[str, list[Series]]:
    return {
        "alerts": [
            series(1, alertname=name, **({"job_id": job_id} if job_id else {}), node=node)
            for name, job_id, node in alerts
        ]
    }


def names(views: object) -> list[tuple[str, tuple[str, ...], int]]:
    return [(view.name, view.nodes, view.more) for view in views]  # type: ignore[attr-defined]


def test_alerts_belong_to_their_job_or_to_that_of_their_node() -> None:
    found = Firing(
        [
            Alert(RECOVERY, "a", "node-01"),
            Alert(RECOVERY, "a", "node-00"),
            Alert(LOST, "", "node-10"),
            Alert(STALLED, "a", ""),
            Alert("PeerwatchDetectorDown", "", ""),
            Alert(LOST, "", "spare"),
            Alert(STALLED, "gone", ""),
        ],
        "https://books.example/",
    )
    assert [(RECOVERY, ("node-00", "node-01"), 0), (STALLED, (), 0)] == names(found.of_job(JOBS[0]))
    assert [(LOST, ("node-10",), 0)] == names(found.of_job(JOBS[1]))
    assert [(RECOVERY, ("node-01",), 0)] == names(found.of_node("node-01"))
    assert [(LOST, ("spare",), 0)] == names(found.of_node("spare"))
    others = [("PeerwatchDetectorDown", (), 0), (LOST, ("spare",), 0), (STALLED, (), 0)]
    assert others == names(found.of_none(JOBS))
    assert f"https://books.example/{LOST}.md" == found.of_job(JOBS[1])[0].runbook


def test_many_nodes_of_an_alert_are_counted() -> None:
    alerts = [Alert(LOST, "a", f"node-{number:02d}") for number in range(9)]
    (view,) = Firing(alerts).of_job(JOBS[0])
    assert (("node-00", "node-01", "node-02", "node-03"), 5) == (view.nodes, view.more)


@pytest.fixture
def site() -> Site:
    history = FakeHistory(
        firing(
            (RECOVERY, "job-1", "node-01"),
            ("PeerwatchFaultyNode", "job-1", "node-02"),
            (LOST, "", "spare"),
        )
    )
    site = site_with(history)
    site.add_job("job-1", faulty=False)
    site.add_job("job-2", faulty=False, names=("x-1", "x-2", "x-3", "x-4"))
    site.run(300)
    return site


def test_a_job_with_a_critical_alert_comes_first_and_is_not_said_to_be_well(site: Site) -> None:
    html = site.get("/")
    first, second = html.index("/jobs/job-1"), html.index("/jobs/job-2")
    row = html[first:second]
    assert "critical alert" in row
    assert f"{RECOVERY}.md" in row
    assert 'href="/nodes/node-01"' in row
    assert 'class="good">none' not in row
    assert 'class="good">none' in html[second:]
    assert "PeerwatchFaultyNode" not in html
    assert "Of no job here" in html
    assert 'href="/nodes/spare"' not in html
    assert "with a critical alert 1" in html
    assert "/jobs/job-2" not in site.get("/?state=alerting")


def test_views_of_the_job_and_the_node_tell_it(site: Site) -> None:
    for path in ("/jobs/job-1", "/nodes/node-01"):
        assert RECOVERY in site.get(path)
    for path in ("/jobs/job-2", "/nodes/node-02"):
        assert "critical alert" not in site.get(path)


def test_a_server_that_does_not_answer_is_said_and_the_view_opens() -> None:
    site = site_with(FakeHistory(ReadError("unreachable", "nobody <there>")))
    site.add_job("job-1", faulty=False)
    site.run(300)
    html = site.get("/")
    assert "Which alerts fire is not known: nobody &lt;there&gt;" in html
    assert "/jobs/job-1" in html


class SlowHistory(FakeHistory):
    """Answers once it is let go."""

    def __init__(self) -> None:
        super().__init__(firing((LOST, "a", "node-01")))
        self.gate = threading.Event()

    def at(self, queries: Mapping[str, str], time: float) -> Answers:
        assert self.gate.wait(60)
        return super().at(queries, time)


def test_a_slow_server_keeps_no_view_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peerwatch_detector.web.alerts._PATIENCE_SECONDS", 0.01)
    history, now = SlowHistory(), [0.0]
    alerts = FiringAlerts(history, lambda: "", lambda: 1e9, lambda: now[0])
    for _ in range(3):
        assert alerts.get().note
        now[0] += 100
    history.gate.set()
    assert alerts._thread is not None
    alerts._thread.join()
    assert 1 == history.asked
    monkeypatch.setattr("peerwatch_detector.web.alerts._PATIENCE_SECONDS", 60)
    known = alerts.get()  # asks anew, and does not wait
    assert [(LOST, ("node-01",), 0)] == names(known.of_job(JOBS[0]))
    alerts._thread.join()
    assert 2 == history.asked
    alerts.get()
    assert 2 == history.asked
