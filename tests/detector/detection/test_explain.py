from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.fakes import START, Replay, a_deviation, a_finding, config_for, node_names
from detector.fakes import metric as metric_settings
from detector.training_job import ONSET, Values, replay, training
from detector.world import ONSET as WORLD_ONSET
from detector.world import world
from peerwatch_detector.config import DetectorConfig, MetricConfig, load_preset
from peerwatch_detector.detection.explanation.explain import (
    MOST_CHARACTERS,
    Explanation,
    JobProgress,
    MetricEvidence,
    confidence_of,
    explain,
    measure,
)
from peerwatch_detector.detection.explanation.fault_families import (
    FAMILIES,
    UNKNOWN,
    Shown,
    meaning_of,
)
from peerwatch_detector.detection.findings import Deviation
from peerwatch_detector.frame import JobFrame, mean_over_gpus
from peerwatch_detector.units import metric_words, quantity

AFTER = slice(ONSET, None)
POWER = MetricConfig.model_validate(
    metric_settings("gpu_power", unit="watts", bounds=[0, 1000], min_effect_size=80)
)


def evidence(metric: str = "cpu_usage", **changes: Any) -> MetricEvidence:
    values: dict[str, Any] = {
        "metric": metric,
        "title": metric_words(metric),
        "unit": "ratio",
        "gpu": "",
        "direction": "low",
        "value": 0.12,
        "median": 0.45,
        "low": 0.4,
        "high": 0.5,
        "factor": 0.12 / 0.45,
        "since": 1000.0,
        "effects": 4.0,
    }
    return MetricEvidence(**(values | changes))


def frame_of(values: np.ndarray, start: int = 1000) -> JobFrame:
    times = start + np.arange(values.shape[-1], dtype=np.float64)
    values = values.astype(np.float32)
    names = node_names(len(values))
    if values.ndim == 2:
        return JobFrame("job-1", "gpu_power", names, times, values)
    gpus = tuple(str(gpu) for gpu in range(values.shape[1]))
    return JobFrame("job-1", "gpu_power", names, times, mean_over_gpus(values), gpus, values)


def explained(values: Values, until: int, **settings: Any) -> Explanation:
    """Return why the first node of a replayed job was named."""
    here = replay(values, **settings)
    here.run(until)
    assert 1 == len(here.standing)
    (why,) = here.state.explanations.values()
    return why


def dead_rank() -> Values:
    values = training(900, waits=(ONSET + 10, 900))
    values["cpu_usage"][2, AFTER] *= 0.3
    values["network_throughput"][2, AFTER] *= 0.05
    return values


def congested() -> Values:
    rng = np.random.default_rng(5)
    values = training(1000, slower=0.2)
    values["pfc_tx_rate"] = rng.uniform(40, 60, (6, 1000)).astype(np.float32)
    values["pfc_tx_rate"][3, AFTER] *= 60
    values["ecn_rate"][3, AFTER] *= 8
    return values


def throttled() -> Values:
    rng = np.random.default_rng(6)
    values = training(1000, slower=0.2)
    values["gpu_sm_clock"] = rng.uniform(1.95e9, 1.98e9, (6, 4, 1000)).astype(np.float32)
    values["gpu_sm_clock"][1, 3, AFTER] *= 0.6
    values["gpu_power"][1, 3, AFTER] *= 0.6
    return values


def test_a_stopped_rank_is_explained_by_what_its_node_shows_and_the_waiting_job() -> None:
    why = explained(dead_rank(), ONSET + 120)
    assert "dead_rank" == why.meaning.family
    assert "waits" == why.job.activity
    cpu, tcp = why.metrics
    assert ("cpu_usage", "low", "network_throughput", "low") == (
        cpu.metric,
        cpu.direction,
        tcp.metric,
        tcp.direction,
    )
    assert pytest.approx(0.3, abs=0.03) == cpu.factor
    assert pytest.approx(0.05, abs=0.01) == tcp.factor
    assert "CPU usage 9.03 % (peers 29 %) and 1 more since 22:23:25 UTC" in why.sentence
    assert "very likely at fault: its ranks died or hang" in why.sentence


def test_pause_frames_of_a_job_that_goes_on_slower_mean_pcie_or_nic() -> None:
    why = explained(congested(), 1000)
    assert "pcie_or_nic" == why.meaning.family
    assert {("pfc_tx_rate", "high"), ("ecn_rate", "high")} == {
        (metric_evidence.metric, metric_evidence.direction) for metric_evidence in why.metrics
    }
    assert "slowed" == why.job.activity
    assert pytest.approx(0.2, abs=0.03) == why.job.loss
    assert " packets/s (peers " in why.sentence
    assert "the job is slowed by 20 %" in why.sentence


def test_low_clock_and_power_of_one_gpu_mean_throttling_and_name_it() -> None:
    why = explained(throttled(), 1000)
    assert "throttling" == why.meaning.family
    assert {("gpu_sm_clock", "3"), ("gpu_power", "3")} == {
        (metric_evidence.metric, metric_evidence.gpu) for metric_evidence in why.metrics
    }
    assert why.sentence.startswith("node-01 GPU 3: ")
    by_name = {metric_evidence.metric: metric_evidence for metric_evidence in why.metrics}
    assert "GPU SM clock 1.18 GHz (peers 1.97 GHz)" == by_name["gpu_sm_clock"].text()
    assert pytest.approx(0.6, abs=0.05) == by_name["gpu_power"].factor


def test_a_vanished_node_is_explained_without_numbers() -> None:
    here = world(faulty=None)
    here.run(600)
    here.reader.remove_node("job-1", "node-02", START + 600)
    here.run(75)
    (why,) = here.detector.snapshot.detections[0].explanations.values()
    assert ("unreachable", ()) == (why.meaning.family, why.metrics)
    assert why.sentence.startswith("node-02: cannot be reached, its peers can since 22:23:20 UTC")


@pytest.mark.parametrize("method", ["minder", "zscore"])
def test_findings_of_the_papers_methods_are_explained_too(method: str) -> None:
    values = 0.5 + np.random.default_rng(0).normal(0, 0.005, (8, 1200)).astype(np.float32)
    values[3, 300:] = 0.1
    here = Replay(config_for(method=method), {"load": values})
    here.run()
    (finding,) = here.standing.values()
    (metric_evidence, *_) = here.state.explanations[finding].metrics
    assert ("load", "low", None) == (
        metric_evidence.metric,
        metric_evidence.direction,
        metric_evidence.effects,
    )
    assert pytest.approx(0.1, abs=0.01) == metric_evidence.value
    assert pytest.approx(0.5, abs=0.01) == metric_evidence.median


@pytest.mark.parametrize("cycle", [5, 20, 60])
def test_an_explanation_does_not_depend_on_the_cycles_or_on_what_follows(cycle: int) -> None:
    whole, short = replay(dead_rank(), quiet=0), dead_rank()
    whole.run(ONSET + 120, cycle=cycle)
    (why,) = whole.state.explanations.values()
    cut = round(why.made - START) + 1
    early = replay({name: array[..., :cut] for name, array in short.items()})
    early.run(cycle=5)
    assert [why] == list(early.state.explanations.values())


def test_an_explanation_goes_with_its_finding() -> None:
    values = training(1500, waits=(ONSET + 10, ONSET + 200))
    values["cpu_usage"][2, ONSET : ONSET + 200] *= 0.3
    here = replay(values)
    here.run(ONSET + 150)
    assert [*here.standing.values()] == [*here.state.explanations]
    detection = here.step(ONSET + 600)
    assert ((), {}) == (detection.findings, detection.explanations)


@pytest.mark.parametrize("faulty_for", [400, 1500], ids=["in the history", "before the history"])
def test_a_restored_finding_has_the_explanation_that_the_present_data_allow(
    faulty_for: int, caplog: pytest.LogCaptureFixture
) -> None:
    here = world()
    here.run(WORLD_ONSET + faulty_for)
    (fresh,) = here.detector.snapshot.detections[0].explanations.values()
    here.restart()
    caplog.clear()
    caplog.set_level(logging.INFO, "peerwatch_detector")
    here.run(15)
    (finding,) = here.detector.snapshot.detections[0].findings
    (why,) = here.detector.snapshot.detections[0].explanations.values()
    assert (False, True) == (fresh.before_restart, why.before_restart)
    (before,), (after,) = fresh.metrics, why.metrics
    assert ("load", "high") == (after.metric, after.direction)
    assert pytest.approx(before.value, abs=0.1) == after.value
    assert "found before the detector's restart" in why.sentence
    assert finding.since < why.made
    here.run(60)
    assert [why] == list(here.detector.snapshot.detections[0].explanations.values())


def test_a_restored_finding_that_no_longer_shows_says_so() -> None:
    here = world(end=WORLD_ONSET + 400)
    here.run(WORLD_ONSET + 400)
    here.restart()
    here.clock.advance(60)
    here.run(15)
    (why,) = here.detector.snapshot.detections[0].explanations.values()
    assert () == why.metrics
    assert "was unlike its peers in Load, is not now" in why.sentence


def test_a_raised_finding_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "peerwatch_detector")
    here = world()
    here.run(WORLD_ONSET + 300)
    (why,) = here.detector.snapshot.detections[0].explanations.values()
    (line,) = [
        record.getMessage() for record in caplog.records if "finding_raised" in record.getMessage()
    ]
    assert f"family={why.meaning.family} why={why.sentence!r}" in line


def measured(deviation: Deviation, values: np.ndarray, end: int) -> MetricEvidence:
    return measure(deviation, POWER, frame_of(values), node_names(len(values)), end, 15)


def test_value_and_peers_are_means_of_the_seconds_up_to_that_time() -> None:
    values = np.repeat([[100.0], [200.0], [300.0], [400.0]], 40, axis=1)
    values[:, :20] = 1e6
    values[:, 35:] = 1e6
    power = measured(a_deviation("node-00", high=False), values, 1034)
    assert (100.0, 300.0) == (power.value, power.median)
    low, high = np.quantile([200.0, 300.0, 400.0], [0.1, 0.9])
    assert pytest.approx((low, high)) == (power.low, power.high)
    assert pytest.approx(1 / 3) == power.factor


def test_one_gpu_is_compared_with_the_gpus_of_the_other_nodes() -> None:
    values = np.full((3, 2, 30), 500.0)
    values[0, 1], values[0, 0] = 200.0, 9000.0
    power = measured(a_deviation("node-00", gpu="1", high=False), values, 1029)
    assert (200.0, 500.0, 500.0, 500.0) == (power.value, power.median, power.low, power.high)
    whole = measured(a_deviation("node-00", high=True), values, 1029)
    assert 4600.0 == whole.value


def test_samples_that_are_missing_are_none_and_stay_json() -> None:
    values = np.full((3, 30), 500.0)
    values[0] = np.nan
    power = measured(a_deviation("node-00", high=False), values, 1029)
    assert (None, 500.0, None) == (power.value, power.median, power.factor)
    alone = measured(a_deviation("node-01", high=False), values[:2], 1029)
    assert (500.0, None, None, None) == (alone.value, alone.median, alone.low, alone.high)
    zero = measured(a_deviation("node-01", high=True), values * [[1], [1], [0]], 1029)
    assert (500.0, 0.0, None) == (zero.value, zero.median, zero.factor)
    json.dumps([asdict(each) for each in (power, alone, zero)], allow_nan=False)


strengths = st.floats(0, 1e6)
lengths = st.floats(0, 1e4)
sources = st.integers(0, 20)


@given(strengths, strengths, sources, sources, lengths, lengths)
def test_more_evidence_is_never_less_sure(
    a: float, b: float, m: int, n: int, x: float, y: float
) -> None:
    weak = confidence_of(min(a, b), min(m, n), min(x, y))
    strong = confidence_of(max(a, b), max(m, n), max(x, y))
    assert 0.5 <= weak.ratio <= strong.ratio <= 1
    order = ["likely", "very likely", "almost certainly"]
    assert order.index(weak.words) <= order.index(strong.words)


def test_each_kind_of_evidence_makes_it_surer() -> None:
    base = confidence_of(2, 1, 0.2).ratio
    assert confidence_of(4, 1, 0.2).ratio > base
    assert confidence_of(2, 2, 0.2).ratio > base
    assert confidence_of(2, 1, 0.9).ratio > base
    assert 0.5 == confidence_of(1, 1, 0).ratio


def test_metrics_of_one_network_count_once() -> None:
    pair = [evidence("pfc_tx_rate", kind="network"), evidence("ecn_rate", kind="network")]
    apart = [evidence("pfc_tx_rate", kind="network"), evidence("cpu_usage")]
    finding = a_finding(metric="pfc_tx_rate", score=4.0)
    curve = JobProgress("trains")
    paired, unpaired = (explain(finding, each, curve, 1200, 240) for each in (pair, apart))
    assert paired.confidence.ratio < unpaired.confidence.ratio


def test_what_began_long_before_is_listed_but_not_counted() -> None:
    old = evidence("memory_usage", since=100.0, effects=50.0)
    finding = a_finding(metric="cpu_usage", score=4.0)
    with_old = explain(finding, [old, evidence()], JobProgress("waits"), 1030, 240)
    without = explain(finding, [evidence()], JobProgress("waits"), 1030, 240)
    assert ["cpu_usage", "memory_usage"] == [
        metric_evidence.metric for metric_evidence in with_old.metrics
    ]
    assert without.confidence == with_old.confidence


@given(
    node=st.text(min_size=1, max_size=300),
    gpu=st.text(max_size=60),
    name=st.from_regex(r"[a-z][a-z0-9_]{0,80}", fullmatch=True),
    value=st.none() | st.floats(0, 1e15),
    unit=st.sampled_from(["ratio", "bytes per second", "furlongs per fortnight"]),
    curve=st.sampled_from(["trains", "slowed", "waits", "rests", "unknown"]),
    restored=st.booleans(),
)
def test_the_sentence_fits_whatever_the_names_are(
    node: str, gpu: str, name: str, value: float | None, unit: str, curve: Any, restored: bool
) -> None:
    measurement = evidence(name, gpu=gpu, value=value, unit=unit)
    finding = a_finding(node, gpu=gpu, metric=name)
    why = explain(
        finding, [measurement], JobProgress(curve, 0.1), 1300, 240, before_restart=restored
    )
    assert len(why.sentence) <= MOST_CHARACTERS
    assert why.sentence.startswith(node[:40])
    assert why.sentence.endswith((".", "…"))


def test_a_value_that_left_a_permanent_offset_is_not_said_to_differ_from_the_median() -> None:
    measurement = evidence(value=0.46, median=0.45)
    assert "CPU usage 46 %, low for this node" == measurement.text()


def _name(value: object) -> str:
    """The name of a parameter; a set has no order of its own from one process to the next."""
    return "+".join(f"{m}_{d}" for m, d in sorted(value)) if isinstance(value, set) else str(value)


@pytest.mark.parametrize(
    ("shown", "curve", "family"),
    [
        ({("cpu_usage", "low")}, "waits", "dead_rank"),
        ({("cpu_usage", "low")}, "trains", "unknown"),
        ({("cpu_usage", "high")}, "slowed", "host_load"),
        ({("pfc_tx_rate", "high")}, "slowed", "pcie_or_nic"),
        (
            {("pfc_tx_rate", "high"), ("ecn_rate", "high"), ("tcp_rdma_throughput", "low")},
            "waits",
            "pcie_or_nic",
        ),
        ({("pcie_bandwidth", "low")}, "slowed", "pcie_or_nic"),
        (
            {
                ("pfc_tx_rate", "high"),
                ("gpu_power", "low"),
                ("gpu_tensor_activity", "low"),
                ("nvlink_bandwidth", "low"),
            },
            "trains",
            "pcie_or_nic",
        ),
        (
            {("gpu_sm_clock", "low"), ("gpu_power", "low"), ("pcie_bandwidth", "low")},
            "slowed",
            "throttling",
        ),
        ({("tcp_rdma_throughput", "low")}, "slowed", "network"),
        ({("gpu_power", "low")}, "slowed", "throttling"),
        ({("gpu_power", "low")}, "waits", "dead_rank"),
        ({("gpu_power", "high")}, "waits", "late_rank"),
        ({("nvlink_bandwidth", "low"), ("gpu_power", "low")}, "slowed", "nvlink"),
        ({("gpu_duty_cycle", "low")}, "trains", "idle_gpu"),
        ({("heartbeat_age", "high"), ("cpu_usage", "low")}, "waits", "hung_rank"),
        ({("absent", "high"), ("network_throughput", "high")}, "rests", "unreachable"),
        ({("of_my_own", "high")}, "trains", "unknown"),
        (set(), "trains", "unknown"),
    ],
    ids=_name,
)
def test_families_by_metrics_direction_and_the_job(
    shown: set[Shown], curve: Any, family: str
) -> None:
    assert family == meaning_of(frozenset(shown), curve).family


def test_every_family_is_written_out_and_speaks_of_metrics_that_exist() -> None:
    known = {metric.name for metric in DetectorConfig().detection_metrics()} | {"absent"}
    sides = {metric.name: metric.direction for metric in DetectorConfig().detection_metrics()}
    named = {family.name for family in FAMILIES}
    assert len(named) == len(FAMILIES)
    for metric in load_preset("peerwatch").metrics:
        assert named >= {name for weights in metric.faults.values() for name in weights}
    meanings = {family.meaning for family in FAMILIES}
    assert len({meaning.family for meaning in meanings}) == len(meanings)
    for family in FAMILIES:
        assert known >= {metric for metric, _ in family.decisive | family.supporting}
        for metric, direction in family.decisive:
            assert sides.get(metric, "both") in ("both", direction)
    for meaning in (*(family.meaning for family in FAMILIES), UNKNOWN):
        assert 0 < len(meaning.short) <= 32
        assert meaning.text.endswith(".")
        assert meaning.first_check.endswith(".")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.456, "ratio", "45.6 %"),
        (0.0, "ratio", "0 %"),
        (312.4, "watts", "312 W"),
        (1.2e9, "bytes per second", "1.2 GB/s"),
        (999.9e6, "bytes per second", "1 GB/s"),
        (12.0, "bytes", "12 B"),
        (1.98e9, "hertz", "1.98 GHz"),
        (3100.0, "packets per second", "3.1 k packets/s"),
        (1234.0, "seconds", "1234 s"),
        (None, "watts", "unknown"),
        (7.0, "furlongs", "7 furlongs"),
    ],
)
def test_quantities_are_written_for_people(value: float | None, unit: str, text: str) -> None:
    assert text == quantity(value, unit)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cpu_usage", "CPU usage"),
        ("tcp_rdma_throughput", "TCP RDMA throughput"),
        ("pfc_tx_rate", "PFC transmit rate"),
        ("nvlink_bandwidth", "NVLink bandwidth"),
        ("heartbeat_age", "Heartbeat age"),
    ],
)
def test_metric_names_become_phrases(name: str, words: str) -> None:
    assert words == metric_words(name)
