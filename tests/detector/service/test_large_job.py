"""A large job's first read comes in parts; what is found is the same as if it came at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from detector.fakes import START, FakeClock, FakeReader, node_names
from detector.training_job import NODES, ONSET, Values, training
from detector.world import World
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import ReadError
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.reading import job_reader
from peerwatch_detector.service.detector import Detector

END = ONSET + 280
FIRST = frozenset({"gpu_tensor_activity", "gpu_duty_cycle", "gpu_power"})


@pytest.fixture(autouse=True)
def _all_jobs_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_reader, "_AT_ONCE", 0)


def world_of(values: Values, **settings: Any) -> World:
    """Return a job of these metrics, of which no more is held than evaluating needs."""
    config = DetectorConfig.model_validate(
        {"metrics": {"enabled": list(values)}, "held_samples": 0} | settings
    )
    clock = FakeClock()
    reader = FakeReader(clock, config)
    reader.add_job("job-1", values, node_names(NODES), START)
    return World(config, clock, reader, Detector(config, reader, EMPTY, clock))


def waits() -> Values:
    """A node's network fails, all wait for it."""
    values = training(END + 200, waits=(ONSET, END))
    values["ecn_rate"][2, ONSET - 10 : END] *= 300
    return values


def slowed() -> Values:
    """A GPU slows the job down."""
    values = training(END + 200, slower=0.1)
    values["gpu_power"][3, 1, ONSET:] *= 0.5
    values["gpu_tensor_activity"][3, 1, ONSET:] *= 0.7
    return values


def rested() -> Values:
    """The GPUs rest for a while, nobody is at fault."""
    return training(END + 200, rests=(200, 330))


def cold_and_on(here: World, monkeypatch: pytest.MonkeyPatch, at_once: int) -> Iterator[str]:
    monkeypatch.setattr(job_reader, "_AT_ONCE", at_once)
    for seconds in (END, 15, 15, 60, 15):
        here.clock.advance(seconds)
        here.detector.cycle()
        here.reader.publish(here.detector.snapshot)
        yield repr(here.detector.snapshot.detections)


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("values", [waits, slowed, rested])
@pytest.mark.parametrize("settings", [{}, {"similarity": {"baseline_seconds": 0}}])
def test_in_parts_every_evaluation_is_that_of_a_job_read_at_once(
    values: Any, settings: dict[str, Any], together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_reader, "_LEAST_TOGETHER", together)
    whole = [*cold_and_on(world_of(values(), **settings), monkeypatch, 10**12)]
    parts = [*cold_and_on(world_of(values(), **settings), monkeypatch, 0)]
    assert whole == parts


@pytest.mark.parametrize(("values", "node"), [(waits, "node-02"), (slowed, "node-03")])
def test_a_fault_in_the_history_is_found_and_explained(values: Any, node: str) -> None:
    here = world_of(values())
    here.clock.advance(END)
    here.detector.cycle()
    (detection,) = here.detector.snapshot.detections
    assert [node] == [finding.node for finding in detection.findings]
    (why,) = detection.explanations.values()
    assert [] != list(why.metrics)
    assert all(metric_evidence.value is not None for metric_evidence in why.metrics)


def test_a_finding_is_restored_in_all_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for at_once in (0, 10**12):
        here = world_of(slowed())
        [*cold_and_on(here, monkeypatch, at_once)]
        here.restart()
        here.clock.advance(15)
        here.detector.cycle()
        method = here.detector.memories["job-1"].detector.method
        offsets = {
            name: metric_state.baseline.usual(metric_state.evaluated_until + 15).offset.tobytes()
            for name, metric_state in method.metrics.items()
        }
        found.append((repr(here.detector.snapshot.detections), offsets))
    assert found[1] == found[0]


def test_progress_is_read_first_and_no_two_requests_ask_for_the_same() -> None:
    here = world_of(training(END))
    here.clock.advance(END)
    here.detector.cycle()
    asked = [request.query for request in here.reader.requests if request.kind == "raw"]
    assert len(here.config.read_metrics()) == len(set(asked)) == len(asked)
    recorded = {
        metric_config.name: metric_config.recorded for metric_config in here.detector.metrics
    }
    assert {recorded[name] for name in FIRST} == {query.split("{")[0] for query in asked[:3]}


def test_a_metric_that_is_refused_costs_only_itself() -> None:
    here = world_of(slowed())
    recorded = {
        metric_config.name: metric_config.recorded for metric_config in here.detector.metrics
    }
    here.reader.failures_by_query = {recorded["gpu_duty_cycle"]: ReadError("refused", "no")}
    here.clock.advance(END)
    here.detector.cycle()
    (detection,) = here.detector.snapshot.detections
    assert {*recorded} - {"gpu_duty_cycle"} == {*detection.coverage}


def test_a_server_that_fails_between_two_parts_is_asked_again() -> None:
    here, other = world_of(slowed()), world_of(slowed())
    recorded = {
        metric_config.name: metric_config.recorded for metric_config in here.detector.metrics
    }
    here.reader.failures_by_query = {recorded["cpu_usage"]: ReadError("unreachable", "gone")}
    other.clock.advance(END)
    here.clock.advance(END)
    here.detector.cycle()
    assert () == here.detector.snapshot.detections
    here.reader.failures_by_query = {}
    for world in (here, other):
        world.clock.advance(15)
        world.detector.cycle()
    assert repr(other.detector.snapshot.detections) == repr(here.detector.snapshot.detections)
