from __future__ import annotations

import math
import shutil
import subprocess
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from detector.diagnosis import fake_diagnosers as told
from detector.fakes import a_deviation, a_finding
from peerwatch_common.settings.reload import ReloadFacts
from peerwatch_common.web.facts import WebFacts
from peerwatch_detector import __version__
from peerwatch_detector.detection.explanation.explain import Confidence, Explanation, JobProgress
from peerwatch_detector.detection.explanation.fault_families import UNKNOWN
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.diagnosis.config.changes import Change
from peerwatch_detector.diagnosis.config.majority import Split
from peerwatch_detector.diagnosis.config.watch import ConfigState, Minority
from peerwatch_detector.diagnosis.root.live.root import root_of
from peerwatch_detector.diagnosis.traffic.job_traffic import JobTraffic
from peerwatch_detector.jobs import Job
from peerwatch_detector.reading import ReadingStatistics
from peerwatch_detector.service.catalog import SPECS
from peerwatch_detector.service.diagnoses import Diagnoses
from peerwatch_detector.service.metrics import Exposition, Membership, Snapshot
from peerwatch_detector.service.schedule import Backlog
from peerwatch_detector.service.signing import Signer

ORDER = (
    "job_id",
    "query",
    "node",
    "gpu",
    "metric",
    "model",
    "fingerprint",
    "method",
    "severity",
    "stage",
    "result",
)
ORDER += ("rank", "class", "root", "domain", "confidence", "action")
ORDER += ("key", "value", "majority", "before", "after")
ORDER += ("reason", "version", "family", "summary", "api", "group", "member", "direction")
SENTENCE = 'a GPU 3: "Load" 12 % (peers 45 %), likely at fault'
WHY = Explanation(
    2000.0,
    (),
    JobProgress("trains"),
    Confidence(0.7, "likely"),
    UNKNOWN,
    before_restart=False,
    sentence=SENTENCE,
)
VERDICT = replace(told.VERDICT, node="a")
VERDICT_LABELS = ("rank_exited", "unknown", "sure", "restart")
NASTY = 'a "b"\\c\nd'


def detection(**changes: object) -> Detection:
    values: dict = {
        "job": Job("job-1", ("a", "b")),
        "time": 2000.0,
        "comparable": True,
        "findings": (a_finding("a", gpu="3", since=1234.5),),
        "deviations": (a_deviation("a"),),
        "fault_scores": {"a": 1.0, "b": 0.25},
        "normal_scores": {"load": {"a": 1.5, "b": math.nan}},
        "zscores": {"load": {"a": -2.5, "b": math.inf}},
        "continuity": {"load": {"a": 240.0, "b": 0.0}},
        "coverage": {"load": 0.5},
        "step_rate": JobStepRate("rank_steps", usual=2.5, ratio=0.6),
    }
    values |= changes
    return Detection(**values, explanations=dict.fromkeys(values["findings"], WHY))


SMALL = detection(
    job=Job("small", ("c",)), comparable=False, not_compared="1 node, needs 3", findings=()
)
FULL = Snapshot(
    detections=(detection(), SMALL),
    last_success={"job-1": 1990.0},
    discovered=1995.0,
    stages={"discover": 0.1, "read": 0.2, "detect": 0.3},
    models=(("load", "identity", ""),),
    reading=ReadingStatistics(
        samples=1234,
        received_bytes=56_000,
        requests=7,
        splits=3,
        deferred=4,
        partial=1,
        seconds={"query": 0.5},
        errors={"timeout": 2},
        up=True,
        api="remote_read",
        wait_seconds=12.5,
    ),
    backlog=Backlog({"job-1": 0.5, "job-2": 20.0}, waiting=1, skipped=3),
    membership=Membership(
        "pretraining", "detector-0", shares=True, jobs={"job-1": True, "job-2": False}
    ),
    preparing=True,
    clock_jumps={"back": 2},
    diagnoses=Diagnoses(
        (VERDICT,),
        {"job-1": 1991.0},
        {"timeout": 3, "diagnoser": 1},
        {"job-1": root_of({}, 1991.0, "job-1", ["boot"])},
    ),
    configurations={
        "job-1": ConfigState(
            1992.0,
            (Minority("a", "gpu.vbios", "96.2", "96.1", 1, 4),),
            (Split("cpu.smt", 2, 4),),
            (Change(1800.0, "b", "cpu.governor", "performance", "powersave"),),
        )
    },
    traffic={"job-1": JobTraffic("tcp_rdma_throughput", 2e9, 0.4, 12.5, 2.5)},
)


def exposition(snapshot: Snapshot, signer: Signer | None = None) -> str:
    reloads = ReloadFacts()
    reloads.started(1_700_000_000.0)
    exposition = Exposition(lambda: snapshot, WebFacts(), reloads, signer)
    return exposition.render(openmetrics=False).decode()


def samples(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    return {
        (
            sample.name,
            *(sample.labels[name] for name in sorted(sample.labels, key=ORDER.index)),
        ): sample.value
        for family in text_string_to_metric_families(exposition(snapshot))
        for sample in family.samples
    }


def test_the_exposition_has_exactly_the_catalogues_metrics_and_labels() -> None:
    expected = {spec.name: (spec.kind, set(spec.labels)) for spec in SPECS}
    found = {}
    signer = Signer(b"k" * 32, "https://peerwatch.example.com", 3600)
    for family in text_string_to_metric_families(exposition(FULL, signer)):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {frozenset(sample.labels) for sample in family.samples}
        assert 1 == len(labels), name
        found[name] = (family.type, set(*labels))
    assert expected == found


def test_every_metric_is_declared_even_without_jobs() -> None:
    declared = [line.split()[2] for line in exposition(Snapshot()).splitlines() if "# TYPE" in line]
    assert sorted(spec.name for spec in SPECS) == sorted(declared)


def test_values_are_those_of_the_snapshot() -> None:
    found = samples(FULL)
    labels = ("job-1", "a", "3", "load", "peerwatch", "critical")
    expected = {
        ("peerwatch_finding", *labels): 1.0,
        ("peerwatch_finding_start_timestamp_seconds", *labels): 1234.5,
        ("peerwatch_finding_info", *labels[:-1], UNKNOWN.family, SENTENCE): 1.0,
        ("peerwatch_diagnosis", "job-1", "a", "3", *VERDICT_LABELS): 1.0,
        ("peerwatch_diagnosis_info", "job-1", "a", "3", "rank_exited", "", VERDICT.summary): 1.0,
        ("peerwatch_diagnosis_last_success_timestamp_seconds", "job-1"): 1991.0,
        ("peerwatch_diagnosis_errors_total", "timeout"): 3.0,
        ("peerwatch_diagnosis_errors_total", "unreachable"): 0.0,
        ("peerwatch_diagnosis_errors_total", "diagnoser"): 1.0,
        ("peerwatch_job_config_minority", "job-1", "a", "gpu.vbios"): 1.0,
        ("peerwatch_job_config_minority_info", "job-1", "a", "gpu.vbios", "96.2", "96.1"): 1.0,
        ("peerwatch_job_config_split", "job-1", "cpu.smt"): 2.0,
        ("peerwatch_job_config_change_timestamp_seconds", "job-1", "b", "cpu.governor"): 1800.0,
        ("peerwatch_job_config_last_success_timestamp_seconds", "job-1"): 1992.0,
        ("peerwatch_job_traffic_ratio", "job-1"): 0.4,
        ("peerwatch_job_traffic_period_seconds", "job-1"): 12.5,
        ("peerwatch_job_traffic_shortest_period_seconds", "job-1"): 2.5,
        ("peerwatch_fault_score", "job-1", "a"): 1.0,
        ("peerwatch_fault_score", "job-1", "b"): 0.25,
        ("peerwatch_normal_score", "job-1", "a", "load"): 1.5,
        ("peerwatch_zscore", "job-1", "a", "load"): -2.5,
        ("peerwatch_continuity_seconds", "job-1", "a", "load"): 240.0,
        ("peerwatch_continuity_seconds", "job-1", "b", "load"): 0.0,
        ("peerwatch_job_nodes", "job-1"): 2.0,
        ("peerwatch_job_comparable", "job-1"): 1.0,
        ("peerwatch_job_progress_ratio", "job-1"): 0.6,
        ("peerwatch_job_usual_step_rate", "job-1", "rank_steps"): 2.5,
        ("peerwatch_job_comparable", "small"): 0.0,
        ("peerwatch_job_not_compared_info", "small", "1 node, needs 3"): 1.0,
        ("peerwatch_preparing",): 1.0,
        ("peerwatch_clock_jumps_total", "back"): 2.0,
        ("peerwatch_clock_jumps_total", "forward"): 0.0,
        ("peerwatch_data_coverage_ratio", "job-1", "load"): 0.5,
        ("peerwatch_cycle_last_success_timestamp_seconds", "job-1"): 1990.0,
        ("peerwatch_discovery_last_success_timestamp_seconds",): 1995.0,
        ("peerwatch_cycle_duration_seconds", "read"): 0.2,
        ("peerwatch_read_samples_total",): 1234.0,
        ("peerwatch_read_errors_total", "timeout"): 2.0,
        ("peerwatch_read_errors_total", "unreachable"): 0.0,
        ("peerwatch_read_bytes_total",): 56_000.0,
        ("peerwatch_read_requests_total",): 7.0,
        ("peerwatch_read_splits_total",): 3.0,
        ("peerwatch_read_deferred_total",): 4.0,
        ("peerwatch_read_errors_total", "throttled"): 0.0,
        ("peerwatch_read_partial_responses_total",): 1.0,
        ("peerwatch_read_seconds_total", "query"): 0.5,
        ("peerwatch_read_seconds_total", "export"): 0.0,
        ("peerwatch_reader_info", "remote_read"): 1.0,
        ("peerwatch_reader_wait_seconds",): 12.5,
        ("peerwatch_reader_up",): 1.0,
        ("peerwatch_cycle_lateness_seconds", "job-1"): 0.5,
        ("peerwatch_cycle_lateness_seconds", "job-2"): 20.0,
        ("peerwatch_cycles_skipped_total",): 3.0,
        ("peerwatch_jobs_waiting",): 1.0,
        ("peerwatch_jobs_owned",): 1.0,
        ("peerwatch_job_owner", "job-1", "pretraining", "detector-0"): 1.0,
        ("peerwatch_job_owner", "job-2", "pretraining", "detector-0"): 0.0,
        ("peerwatch_detector_member", "pretraining", "detector-0"): 1.0,
        ("peerwatch_model_info", "load", "identity", ""): 1.0,
        ("peerwatch_build_info", __version__): 1.0,
    }
    assert expected == {key: found.get(key) for key in expected}


def test_scores_that_are_no_numbers_are_left_out() -> None:
    found = samples(FULL)
    assert ("peerwatch_normal_score", "job-1", "b", "load") not in found
    assert ("peerwatch_zscore", "job-1", "b", "load") not in found


def test_nothing_stale_is_left_when_a_job_is_gone() -> None:
    gone = samples(Snapshot(discovered=1.0))
    assert not [key for key in gone if "job-1" in key]


def test_a_detector_that_has_not_read_yet_says_so() -> None:
    found = samples(Snapshot())
    assert 0.0 == found["peerwatch_reader_up",]
    assert ("peerwatch_discovery_last_success_timestamp_seconds",) not in found


def test_odd_names_survive_the_exposition() -> None:
    odd = detection(
        job=Job(NASTY, (NASTY,)),
        findings=(a_finding(NASTY, job_id=NASTY),),
        fault_scores={NASTY: 1.0},
    )
    found = samples(Snapshot(detections=(odd,)))
    assert 1.0 == found["peerwatch_fault_score", NASTY, NASTY]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_promtool_accepts_the_exposition() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        check=False,
        input=exposition(FULL),
        text=True,
        capture_output=True,
    )
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
