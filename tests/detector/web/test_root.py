"""The view of a job that failed: what to do first, and what came first."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import replace

import promql_parser
import pytest

from detector.diagnosis.fake_diagnosers import VERDICT
from detector.diagnosis.root.failed_job import JOB, NODES, ev, exits, lost_connection, timeouts
from detector.web.test_segments import FakeInstants, series
from detector.web.test_web import NASTY, START, Site, refuse
from peerwatch_detector.diagnosis.root.algorithm.algorithm import find_root
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, in_order
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.live.root import LiveRoot
from peerwatch_detector.errors import ReadError
from peerwatch_detector.service.diagnoses import Diagnoses
from peerwatch_detector.service.roots import JobRoots
from peerwatch_detector.web.root import view
from peerwatch_detector.web.root.sources import SOURCES, read_sources
from peerwatch_detector.web.root.timeline import timeline
from peerwatch_detector.web.root.view import RootViews, offset, root_view
from peerwatch_detector.web.server import application

T0 = START + 400.0


def shifted(evidence: Iterable[Evidence], by: float = T0) -> tuple[Evidence, ...]:
    return in_order(replace(each, time=each.time + by) for each in evidence)


def answer(
    *evidence: Evidence, job: JobPlaces = JOB, missing: tuple[str, ...] | None = None
) -> LiveRoot:
    """Return the answer about a job of which this was observed, some seconds after ``T0``."""
    seen = shifted(evidence)
    root = find_root(job, seen, job_id="job-1")
    if missing is not None:
        root = replace(root, missing=missing)
    return LiveRoot("job-1", T0 + 90, root, job, seen)


def gpu_lost() -> LiveRoot:
    return answer(
        ev(-300, "boot", "boot", "n2"),
        ev(0, "xid", "79", "n5", gpu="3", text="NVRM: Xid: 79, GPU has fallen off the bus."),
        *lost_connection("n5", 4),
        *exits(30),
    )


@pytest.fixture
def site() -> Site:
    found = Site()
    instants = FakeInstants({})
    found.detector.instants = instants
    found.detector.roots = JobRoots(instants, found.clock)
    found.application = application(found.detector, found.facts)
    found.add_job("job-1", faulty=False)
    found.run(300)
    return found


def show(site: Site, *found: LiveRoot, verdicts: bool = False) -> str:
    """Return the job's view while its detector holds this answer."""
    diagnoses = Diagnoses(
        (replace(VERDICT, job_id="job-1"),) if verdicts else (),
        roots={each.job_id: each for each in found},
    )
    site.detector.snapshot = replace(site.detector.snapshot, diagnoses=diagnoses)
    return site.get("/jobs/job-1")


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def rows_of(html: str) -> list[str]:
    (table,) = re.findall(r'<table class="timeline">(.*?)</table>', html, re.DOTALL)
    return [text_of(row) for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)[1:]]


def test_the_view_says_what_to_do_before_it_lists_findings(site: Site) -> None:
    html = show(site, gpu_lost())
    text = text_of(html)

    assert html.index("Isolate n5 and restart: GPU 3 fell off the bus") < html.index("Findings")
    assert "domain hardware · permanent · confidence sure · action isolate · n5" in text
    assert "+0.0 s kernel log: XID 79 (n5, GPU 3, fell off the bus): NVRM: Xid: 79" in text
    assert "against it nothing that was observed" in text
    assert "would change it a repair of the node since" in text
    assert "CriticalError n5: gpu_off_bus." in text
    assert "None" not in text


def test_the_list_of_jobs_says_what_to_do_first(site: Site) -> None:
    show(site, gpu_lost())
    index = site.get("/")

    assert "Isolate n5 and restart: GPU 3 fell off the bus" in index
    assert 'href="/jobs/job-1#diagnosis"' in index
    assert 'id="diagnosis"' in site.get("/jobs/job-1")
    # Green would contradict it.
    assert '"good">none' not in index
    assert '"good">No node' not in site.get("/jobs/job-1")


def test_what_came_first_is_marked_and_the_rest_counts_from_it(site: Site) -> None:
    html = show(site, gpu_lost())
    rows = rows_of(html)

    assert rows[0].startswith("-5 min")
    assert "+0.0 s 22:20:00 kernel log first sign XID 79 : fell off the bus" in rows[1]
    assert 1 == html.count('<tr class="first">')
    assert rows[1].endswith("n5, GPU 3")
    times = [row.split(" ", 1)[0] for row in rows[1:]]
    assert times == sorted(times, key=float)
    assert "0 is 2023-11-14 22:20:00 UTC" in html


def test_what_many_ranks_say_is_one_row_with_the_first_of_them() -> None:
    rows = timeline(shifted(timeouts(0)), JOB)

    (row,) = rows
    assert ("logs of ranks", "collective timeout", 64) == (row.source, row.what, row.count)
    assert tuple(NODES) == row.nodes
    assert "n0, n1, n2 and 5 more, 64 ranks" == row.where
    assert (T0, T0 + 0.63) == (row.time, pytest.approx(row.until))


def test_the_node_at_fault_keeps_its_own_row_and_a_few_nodes_do_too() -> None:
    seen = shifted(timeouts(0))
    at_fault, others = sorted(timeline(seen, JOB, {"n3"}), key=lambda row: row.count)
    few = timeline([each for each in seen if each.node in ("n1", "n2")], JOB)

    assert (("n3",), 8, 7) == (at_fault.nodes, at_fault.count, len(others.nodes))
    assert [("n1",), ("n2",)] == [row.nodes for row in few]


def test_what_comes_again_after_a_quiet_minute_is_another_row() -> None:
    seen = [ev(T0 + after, "kernel", "nic_link_down", "n1") for after in (0, 30, 90, 151)]

    assert [(T0, 3), (T0 + 151, 1)] == [(row.time, row.count) for row in timeline(seen, JOB)]


def test_one_line_about_two_peers_is_one_line_and_names_both() -> None:
    seen = [
        ev(T0, "log", "gloo_connection", "n1", class_name="D", rank=9, peer_rank=peer)
        for peer in (16, 24)
    ]
    (row,) = timeline(seen, JOB)

    assert (1, ("n2", "n3")) == (row.count, row.about)


def test_an_xid_that_is_known_twice_is_shown_once() -> None:
    seen = [ev(T0, "xid", "79", "n1", gpu="0", class_name=each) for each in ("", "hardware")]
    (row,) = timeline(seen, JOB)

    assert ("XID 79", 1) == (row.what, row.count)


def test_what_holds_since_an_unknown_time_stands_last(site: Site) -> None:
    found = gpu_lost()
    seen = (ev(0.0, "config", "nccl.version", "n5"), ev(1e300, "boot", "boot", "n1"))
    html = show(site, replace(found, evidence=(*seen, *found.evidence)))

    assert ["unknown checks and settings", "unknown node"] == [
        row.split(" nccl")[0].split(" boot")[0] for row in rows_of(html)[-2:]
    ]


def test_the_last_step_is_called_that() -> None:
    (row,) = timeline([ev(T0, "step", "stalled")], JOB)

    assert "the last step that the job made" == row.says


def test_several_diagnoses_are_numbered_and_so_are_their_first_signs(site: Site) -> None:
    html = show(
        site,
        answer(ev(0, "xid", "79", "n1", gpu="0"), ev(1, "xid", "79", "n4", gpu="7"), *exits(20)),
    )
    marked = [row for row in rows_of(html) if "first sign" in row]

    assert ["1.", "2."] == re.findall(r"<h3>(\d\.)", html)
    assert ["first sign of 1", "first sign of 2"] == [
        re.findall(r"first sign of \d", row)[0] for row in marked
    ]


def test_the_picture_has_a_row_for_each_source_and_names_its_marks(site: Site) -> None:
    html = show(site, gpu_lost())
    picture = ET.fromstring(re.findall(r"<svg.*?</svg>", html, re.DOTALL)[0])
    texts = [each.text for each in picture.findall("{*}text")]
    titles = [each.text for each in picture.findall("{*}g/{*}title")]

    assert ["kernel log", "node", "logs of ranks", "ranks"] == texts[:4]
    assert {"0", "-1 min", "+10 s"} <= set(texts[4:])
    assert "XID 79, n5, GPU 3" in titles
    assert len(rows_of(html)) == len(titles)
    assert "nan" not in html.lower()


def test_nothing_stands_is_said_and_so_is_what_is_not_read(site: Site) -> None:
    text = text_of(show(site))

    assert "Nothing to do: nothing stands against this job." in text
    assert "What came first" not in text
    assert "logs of ranks (no log of the job is followed: logs.enabled of the exporters" in text


def test_a_verdict_of_which_the_root_is_not_known_yet_is_no_all_clear(site: Site) -> None:
    text = text_of(show(site, verdicts=True))

    assert "Not known yet: it is asked every 15 s." in text
    assert "Nothing to do" not in text


def test_an_answer_without_a_cause_is_no_all_clear_while_something_stands(site: Site) -> None:
    found = answer(ev(0, "boot", "boot", "n1"))

    assert "Nothing is wrong with the job, as far as it was observed." in text_of(show(site, found))
    assert "see what stands against it below" in text_of(show(site, found, verdicts=True))


def test_a_failure_of_which_nobody_knows_why_is_no_all_clear(site: Site) -> None:
    found = answer(ev(0, "process", "killed", "n1", rank=8, value=-64.0))
    text = text_of(show(site, found))

    assert () == found.root.causes
    assert "The job failed or stands, and nothing that was observed says why." in text
    assert "Run before a restart:" in text


def test_without_diagnosis_the_view_says_so() -> None:
    site = Site()
    site.add_job("job-1", faulty=False)
    site.run(60)

    assert "Not diagnosed: diagnosis.enabled is false." in site.get("/jobs/job-1")
    (job,) = json.loads(site.get("/api/v1/jobs"))["jobs"]
    assert job["root"] is None


def test_what_is_missing_and_what_to_run_are_shown(site: Site) -> None:
    found = answer(*timeouts(600), missing=("Nothing of NICs is known.",))
    text = text_of(show(site, found))

    assert found.root.checks
    assert "Run before a restart:" in text
    assert f"peerwatch-check {found.root.checks[0].check} on" in text
    assert "What is missing: Nothing of NICs is known." in text


def test_hostile_names_are_escaped_everywhere(site: Site) -> None:
    job = JobPlaces((NASTY, "n1"), {0: NASTY, 1: "n1"}, {NASTY: {"leaf": NASTY}})
    seen = [
        ev(0, "xid", "79", NASTY, gpu=NASTY, class_name=NASTY, text=NASTY),
        ev(1, "log", NASTY, NASTY, class_name="D", rank=0, peer_address=NASTY, text=NASTY),
        ev(2, "nic", NASTY, NASTY, device=NASTY),
        ev(3, "process", "exited", NASTY, rank=0, text=NASTY),
        ev(4, "config", NASTY, NASTY),
        ev(5, "finding", NASTY, NASTY),
    ]
    html = show(site, answer(*seen, job=job, missing=(NASTY,)))

    assert ['<script src="/static/refresh.js" defer>'] == re.findall("<script[^>]*>", html)
    assert ['<script src="/static/refresh.js" defer>'] == re.findall("<script[^>]*>", site.get("/"))
    assert html.count("&lt;script&gt;") > 12
    for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ET.fromstring(text)
    assert [] == re.findall(r'(?:src|href)="(?:https?:)?//', html)


def test_a_flood_of_evidence_stays_a_view_and_keeps_what_matters(site: Site) -> None:
    noise = [ev(k % 97, "kernel", f"line_{k}", f"n{k % 8}") for k in range(5000)]
    found = answer(ev(0, "xid", "79", "n5", gpu="3"), *noise, *exits(200))
    html = show(site, found)
    (job,) = json.loads(site.get("/api/v1/jobs"), parse_constant=refuse)["jobs"]

    assert view.MOST_ROWS == len(rows_of(html))
    assert "first sign" in " ".join(rows_of(html))
    assert re.search(r"\d+ rows more are in the", html)
    assert len(html) < 100_000
    assert view.MOST_ROWS_IN_JSON == len(job["root"]["timeline"])
    assert job["root"]["timeline_left_out"] > 4000


def test_names_of_a_megabyte_take_no_view_down(site: Site) -> None:
    name = 1_000_000 * "n"
    found = answer(
        ev(0, "xid", "79", name, gpu=name), ev(1, "log", name, name, class_name="D"), *exits(20)
    )

    assert len(show(site, found)) < 500_000
    assert len(site.get("/api/v1/jobs")) < 500_000


def test_json_has_the_answer_of_diagnose_with_its_timeline(site: Site) -> None:
    show(site, gpu_lost())
    (job,) = json.loads(site.get("/api/v1/jobs"), parse_constant=refuse)["jobs"]
    root = job["root"]
    (cause,) = root["causes"]
    (first,) = [row for row in root["timeline"] if row["first_of"]]

    assert (["n5"], "isolate", "sure") == (cause["nodes"], cause["action"], cause["confidence"])
    assert {
        "after_seconds": 0.0,
        "time": T0,
        "source": "kernel log",
        "name": "XID 79",
        "nodes": ["n5"],
        "gpus": ["3"],
        "first_of": [1],
    }.items() <= first.items()
    assert T0 + 90 == root["time"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "+0.0 s"), (4.23, "+4.2 s"), (-12.5, "-12.5 s"), (300, "+5 min"), (-7200, "-2.0 h")],
)
def test_how_long_after(seconds: float, expected: str) -> None:
    assert expected == offset(seconds)


def test_an_end_is_written_only_where_it_reads_otherwise(site: Site) -> None:
    lines = [
        (0, "xid_79"),
        (1800, "hung_task"),
        (1803, "hung_task"),
        (2400, "soft"),
        (2455, "soft"),
    ]
    seen = [ev(after, "kernel", name, "n1") for after, name in lines]
    rows = rows_of(show(site, answer(*seen)))

    assert ["+0.0 s", "+30 min", "+40 min"] == [" ".join(row.split()[:2]) for row in rows]
    assert ["22:20:00", "22:50:00", "to"] == [row.split()[2] for row in rows]


def test_a_suspect_is_named_as_its_finding_names_it(site: Site) -> None:
    said = "n2: CPU usage 19 % (peers 0.3 %); the job stands; very likely at fault: a loop."
    seen = ev(-60, "finding", "cpu_usage", "n2", text=said)
    text = text_of(show(site, answer(ev(0, "step", "stalled"), seen)))

    assert "Examine n2 first: the job stands, and of all nodes only this one differs" in text
    assert "confidence that of its finding · action inspect · n2" in text
    assert "very likely at fault: a loop." in text
    assert "isolate nobody" not in text


def test_that_it_is_open_whose_fault_it_is_is_not_said_above_a_finding() -> None:
    open_one = answer(
        ev(0, "step", "stalled"),
        *(ev(-60, "finding", "cpu_usage", node) for node in ("n2", "n3")),
    )
    (cause,) = root_view(open_one).causes
    assert "isolate nobody" in cause.summary

    beside = root_view(open_one, frozenset({"n2"}))
    assert () == beside.causes
    assert (
        "See what is said of n2 below: nothing else that was observed decides whose fault it is."
    ) == beside.no_cause
    # What would settle it is still said.
    assert beside.checks == root_view(open_one).checks
    assert any("full on n2, n3" in text for text in beside.checks)


def test_the_view_of_a_job_with_findings_names_them_before_an_open_answer(site: Site) -> None:
    open_one = answer(
        ev(0, "step", "stalled"),
        *(ev(-60, "finding", "cpu_usage", node) for node in ("n2", "n3")),
    )
    assert "isolate nobody" in show(site, open_one)
    html = show(site, open_one, verdicts=True)

    assert f"See what is said of {VERDICT.node} below" in html
    assert "isolate nobody" not in html


def test_a_view_is_made_once_for_all_who_look() -> None:
    views, found = RootViews(), gpu_lost()

    assert views.get(found) is views.get(found)
    assert views.get(replace(found)) is not views.get(found)
    assert views.get(None) is None


def test_evidence_that_contradicts_itself_is_shown_with_what_speaks_against() -> None:
    found = gpu_lost()
    (cause,) = found.root.causes
    doubted = replace(cause, against=("Another node shows it too.",), confidence="likely")
    shown = root_view(replace(found, root=replace(found.root, causes=(doubted,))))

    assert ("Another node shows it too.",) == shown.causes[0].against


def test_sources_are_told_apart_and_a_server_that_does_not_answer_is_no_missing_source() -> None:
    some = read_sources(FakeInstants({"ranks": [series(8.0)], "gpus": [series(2.0)]}), "job-1")
    none = read_sources(FakeInstants(ReadError("timeout", "It did not answer.")), "job-1")

    assert ("ranks and their processes", "GPUs and XIDs") == some.present
    assert len(SOURCES) - 2 == len(some.missing)
    assert ((), (), "It did not answer.") == (none.present, none.missing, none.note)


def test_queries_about_sources_are_promql() -> None:
    instants = FakeInstants({})
    read_sources(instants, NASTY)
    for query in instants.queries[0].values():
        promql_parser.parse(query)
