"""What the jobs themselves say beside the comparison of nodes: findings, series, restarts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from detector.diagnosis.fake_diagnosers import VERDICT, Broken, FakeInstants, Told
from detector.fakes import START
from detector.world import ONSET, World, world
from peerwatch_common.metrics.exposition import Renderer
from peerwatch_common.web.facts import WebFacts
from peerwatch_detector.diagnosis.diagnoser import Diagnoser
from peerwatch_detector.diagnosis.findings import HOLD_SECONDS, RESTORED_SECONDS
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.metrics import families
from peerwatch_detector.web.app import create_app

EVIDENCE = ("job-1", "node-01", "", "rank_exited", "evidence", "critical")
SINCE = START + 700.0


@pytest.fixture(autouse=True)
def nothing_is_said() -> Iterator[None]:
    Told.said.clear()
    yield
    Told.said.clear()


def asked_world(
    *, faulty: int | None = None, diagnosers: Sequence[type[Diagnoser]] = (Told,)
) -> tuple[World, FakeInstants]:
    here = world(faulty=faulty)
    instants = FakeInstants(here.clock)
    restart(here, instants, diagnosers)
    return here, instants


def restart(
    here: World, instants: FakeInstants, diagnosers: Sequence[type[Diagnoser]] = (Told,)
) -> None:
    here.detector = Detector(
        here.config, here.reader, EMPTY, here.clock, instants=instants, diagnosers=diagnosers
    )


def say(*verdicts: object) -> None:
    Told.said["job-1"] = [*verdicts]  # type: ignore[list-item]


def published(here: World, name: str) -> list[str]:
    text = Renderer(1000, lambda: None).render(families(here.detector.snapshot), openmetrics=False)
    return [line for line in text.decode().splitlines() if line.startswith(name + "{")]


def test_a_verdict_that_names_a_node_is_a_finding_with_its_explanation() -> None:
    here, instants = asked_world()
    here.run(60)
    assert [] == here.findings()
    say(replace(VERDICT, start_time=SINCE))
    here.run(15)

    assert [(*EVIDENCE, SINCE)] == here.findings()
    (detection,) = here.detector.snapshot.detections
    (why,) = detection.explanations.values()
    assert VERDICT.summary == why.sentence
    assert "rank_exited" == why.meaning.family
    assert 1.0 == detection.fault_scores["node-01"]
    assert ['rank_process_state{ job_id="job-1" }'] == instants.asked[:1]


def test_the_series_of_a_verdict_have_the_labels_of_the_contract() -> None:
    here, _ = asked_world()
    say(replace(VERDICT, node="", rank=None, confidence="undecided", class_name="mismatch"))
    here.run(60)

    assert [
        'peerwatch_diagnosis{action="restart",class="mismatch",confidence="undecided",'
        'domain="unknown",job_id="job-1",node="",rank=""} 1'
    ] == published(here, "peerwatch_diagnosis")
    (info,) = published(here, "peerwatch_diagnosis_info")
    assert f'summary="{VERDICT.summary}"' in info
    assert [] == here.findings()
    assert 1 == len(published(here, "peerwatch_diagnosis_last_success_timestamp_seconds"))


def test_evidence_and_statistics_about_a_node_are_one_finding_evidence_first() -> None:
    here, _ = asked_world(faulty=1)
    here.run(ONSET + 400)
    ((*_, metric, method, _, _),) = here.findings()
    assert ("load", "peerwatch") == (metric, method)
    say(replace(VERDICT, start_time=SINCE))
    here.run(30)

    assert [(*EVIDENCE, SINCE)] == here.findings()
    (detection,) = here.detector.snapshot.detections
    (why,) = detection.explanations.values()
    assert VERDICT.summary == why.sentence
    assert ["load"] == [evidence.metric for evidence in why.metrics]
    # Once the evidence has ended, what the comparison found stands as before.
    say()
    here.run(HOLD_SECONDS + 15)
    assert [("load", "peerwatch")] == [finding[3:5] for finding in here.findings()]


def test_a_node_that_evidence_names_is_not_found_again_by_its_metrics() -> None:
    here, _ = asked_world(faulty=1)
    here.run(ONSET - 15)
    say(replace(VERDICT, start_time=START + ONSET))
    here.run(600)

    assert [(*EVIDENCE, START + ONSET)] == here.findings()
    assert {} == here.detector.memories["job-1"].detector.state.standing


def test_what_follows_on_other_nodes_is_a_symptom() -> None:
    here, _ = asked_world(faulty=1)
    here.run(ONSET)
    say(replace(VERDICT, node="node-03", start_time=START + ONSET - 5.0))
    here.run(400)

    assert ["node-03"] == [finding[1] for finding in here.findings()]


def test_a_more_direct_class_takes_the_place_of_another() -> None:
    here, _ = asked_world()
    hang = replace(VERDICT, class_name="not_launched", confidence="likely", start_time=SINCE)
    say(hang)
    here.run(60)
    assert ["not_launched"] == [finding[3] for finding in here.findings()]
    say(hang, replace(VERDICT, start_time=SINCE - 10))
    here.run(15)
    assert [(*EVIDENCE, SINCE - 10)] == here.findings()


def test_a_verdict_that_misses_an_asking_keeps_its_finding_and_its_beginning() -> None:
    here, _ = asked_world()
    say(replace(VERDICT, start_time=SINCE))
    here.run(60)
    say()
    here.run(15)
    say(replace(VERDICT, start_time=SINCE + 7))
    here.run(15)
    assert [(*EVIDENCE, SINCE)] == here.findings()
    say()
    here.run(HOLD_SECONDS + 15)
    assert [] == here.findings()


def test_a_restart_neither_resolves_the_finding_nor_raises_it_again() -> None:
    here, instants = asked_world()
    say(replace(VERDICT, start_time=SINCE))
    here.run(60)
    say()
    restart(here, instants)
    here.run(15)
    assert [(*EVIDENCE, SINCE)] == here.findings()
    # The diagnosers have seen enough again, and date it a little differently.
    say(replace(VERDICT, start_time=SINCE + 4))
    here.run(150)
    assert [(*EVIDENCE, SINCE)] == here.findings()


def test_a_restored_finding_falls_if_no_verdict_repeats_it() -> None:
    here, instants = asked_world()
    say(replace(VERDICT, start_time=SINCE))
    here.run(60)
    say()
    restart(here, instants)
    here.run(RESTORED_SECONDS + 30)
    assert [] == here.findings()


def test_a_reading_that_fails_leaves_what_stood_and_the_comparison_alone() -> None:
    here, instants = asked_world(faulty=1)
    say(replace(VERDICT, node="node-02", start_time=START - 600.0))
    here.run(60)
    instants.failure = "timeout"
    here.run(ONSET + 900)

    assert {"node-01", "node-02"} == {finding[1] for finding in here.findings()}
    failed = 'peerwatch_diagnosis_errors_total{reason="timeout"}'
    (line,) = [
        line
        for line in published(here, "peerwatch_diagnosis_errors_total")
        if line.startswith(failed)
    ]
    assert float(line.split()[-1]) > 50
    assert here.detector.snapshot.reading.up


def test_what_rests_on_a_part_of_the_series_says_so_and_is_not_sure() -> None:
    here, instants = asked_world()
    say(replace(VERDICT, start_time=SINCE))
    instants.partial = True
    here.run(60)
    assert here.detector.snapshot.diagnoses is not None
    (verdict,) = here.detector.snapshot.diagnoses.verdicts
    assert "likely" == verdict.confidence
    assert verdict.summary.startswith(f"{VERDICT.summary}; Prometheus left out some series")
    instants.partial = False
    here.run(60)
    (verdict,) = here.detector.snapshot.diagnoses.verdicts
    assert ("sure", VERDICT.summary) == (verdict.confidence, verdict.summary)


def test_a_diagnoser_with_a_bug_costs_only_itself() -> None:
    here, _ = asked_world(diagnosers=(Broken, Told))
    say(replace(VERDICT, start_time=SINCE))
    here.run(60)

    assert [(*EVIDENCE, SINCE)] == here.findings()
    assert 'peerwatch_diagnosis_errors_total{reason="diagnoser"} 4' in published(
        here, "peerwatch_diagnosis_errors_total"
    )
    assert [] == published(here, "peerwatch_diagnosis_last_success_timestamp_seconds")


def test_evidence_does_not_wait_for_the_first_samples() -> None:
    here, _ = asked_world()
    say(replace(VERDICT, start_time=SINCE))
    here.reader.failures_by_query["load"] = ZeroDivisionError("no range can be read")
    here.run(30)

    assert [(*EVIDENCE, SINCE)] == here.findings()
    (detection,) = here.detector.snapshot.detections
    assert "not compared yet" == detection.not_compared


def test_the_web_ui_and_the_json_show_what_the_job_says() -> None:
    here, _ = asked_world()
    say(replace(VERDICT, start_time=SINCE), replace(VERDICT, node="", class_name="mismatch"))
    here.run(60)
    client = create_app(here.detector, WebFacts()).test_client()

    html = client.get("/jobs/job-1").text
    assert 2 <= html.count(VERDICT.summary)
    assert "is named by the job itself: Rank exited" in html
    assert "almost certainly" in html
    (job,) = client.get("/api/v1/jobs").json["jobs"]
    assert ["rank_exited", "mismatch"] == [item["class"] for item in job["diagnoses"]]
    assert [0, 1, 2] == job["diagnoses"][0]["victims"]
    assert ["evidence"] == [finding["method"] for finding in job["findings"]]
    assert 200 == client.get("/").status_code
