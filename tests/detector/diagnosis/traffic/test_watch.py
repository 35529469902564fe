"""The watch on a job's traffic: what it says of jobs that hang, slow down, pause or go on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from detector.diagnosis.traffic.random_jobs import healthy_job
from detector.diagnosis.traffic.traffic_series import START, Layout, watch
from peerwatch_detector.detection.explanation.explain import JobProgress
from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.diagnosis.traffic.recent import Recent, carried, spacing
from peerwatch_detector.diagnosis.traffic.verdicts import verdicts_of
from peerwatch_detector.diagnosis.traffic.watch import Doing, TrafficWatch
from peerwatch_detector.frame import JobFrame

FAULT = 1500
Change = Callable[[NDArray[np.float64]], None]


def stop(rates: NDArray[np.float64]) -> None:
    rates[:, FAULT:] = 1e4


def fall(rates: NDArray[np.float64]) -> None:
    rates[:, FAULT:] *= 0.4


def scatter(rates: NDArray[np.float64]) -> None:
    """Send as much as before, at random times."""
    bursts = np.random.default_rng(1).exponential(1, rates.shape[1] - FAULT)
    rates[:, FAULT:] = rates[:, :FAULT].mean(axis=1)[:, None] * bursts


def slow_node(rates: NDArray[np.float64]) -> None:
    rates[2, FAULT:] *= 0.4


def scattered_node(rates: NDArray[np.float64]) -> None:
    bursts = np.random.default_rng(1).exponential(1, rates.shape[1] - FAULT)
    rates[2, FAULT:] = rates[2, :FAULT].mean() * bursts


def changed(change: Change, **about: object) -> Layout:
    layout = Layout(seconds=2700, pauses=((900, 940),), **about)  # type: ignore[arg-type]
    change(layout.rates)
    return layout


@pytest.mark.parametrize("nodes", [1, 4, 64])
@pytest.mark.parametrize(("period", "rate"), [(5, 1), (60, 1), (5, 15), (60, 15)])
@pytest.mark.parametrize(("change", "state"), [(stop, "stopped"), (fall, "fallen")])
def test_traffic_of_all_that_falls_is_the_jobs_and_names_nobody(
    change: Change, state: str, nodes: int, period: float, rate: int
) -> None:
    seen = watch(changed(change, nodes=nodes, period=period, rate_seconds=rate))
    first = seen.first(state)

    assert first is not None
    assert 110 < first - FAULT < 360
    assert {"usual", state} == seen.states
    assert set() == seen.named
    assert abs(seen.last.since - START - FAULT) < 70


@pytest.mark.parametrize(("period", "rate"), [(5, 1), (20, 1), (60, 1), (60, 15)])
def test_a_rhythm_that_is_lost(period: float, rate: int) -> None:
    layout = Layout(nodes=8, seconds=3000, period=period, rate_seconds=rate)
    scatter(layout.rates)
    seen = watch(layout)

    assert {"usual", "irregular"} == seen.states
    assert FAULT + 300 < (seen.first("irregular") or 0)
    assert set() == seen.named
    assert "lost its rhythm" in next(verdicts_of("j", seen.last)).summary


def test_a_rhythm_too_fast_for_the_samples_is_not_missed() -> None:
    seen = watch(changed(scatter, nodes=8, period=5, rate_seconds=15))

    assert {"usual"} == seen.states
    assert (None, 37.5) == (seen.last.period_seconds, seen.last.shortest_seconds)


@pytest.mark.parametrize("nodes", [4, 64])
@pytest.mark.parametrize(
    ("change", "state", "period", "rate"),
    [
        (slow_node, "fallen", 5, 1),
        (slow_node, "fallen", 60, 15),
        (scattered_node, "irregular", 5, 1),
        (scattered_node, "irregular", 60, 1),
    ],
)
def test_a_node_that_changes_alone(
    change: Change, state: str, nodes: int, period: float, rate: int
) -> None:
    seen = watch(changed(change, nodes=nodes, period=period, rate_seconds=rate))
    (verdict,) = verdicts_of("j", seen.last)

    assert {("n002", state)} == seen.named
    assert {"usual"} == seen.states
    assert ("n002", f"traffic_{state}") == (verdict.node, verdict.class_name)
    # It needs a second sign: no finding comes of it.
    assert ("undecided", None) == (verdict.confidence, verdict.severity)


def test_several_nodes_that_change_together_are_not_named() -> None:
    layout = Layout(nodes=16, seconds=2700)
    layout.rates[:5, FAULT:] *= 0.3

    assert set() == watch(layout).named


@pytest.mark.parametrize("activity", ["trains", "rests"])
def test_an_evaluation_or_a_rest_is_given_ten_minutes(activity: str) -> None:
    doing = Doing(lambda since, time: JobProgress(activity))  # type: ignore[arg-type]
    seen = watch(changed(stop), doing=doing)

    assert (seen.first("stopped") or 0) - FAULT > 600


@pytest.mark.parametrize(
    "doing",
    [
        Doing(step_rate=JobStepRate("rank_steps", 0.1, 0.9)),
        Doing(lambda since, time: JobProgress("trains", 0.01)),
    ],
    ids=["steps", "hardware"],
)
def test_a_job_that_goes_on_as_usual_may_send_what_it_likes(doing: Doing) -> None:
    assert {"usual"} == watch(changed(fall), doing=doing).states


def test_pauses_that_the_job_came_back_from_are_ordinary() -> None:
    pauses = tuple((at, at + 240) for at in range(600, 3000, 600))
    seen = watch(Layout(seconds=3000, pauses=pauses))
    later = [each.state for at, each in seen.said if each and at > 1200]

    assert {"usual"} == set(later)


@pytest.mark.parametrize("drift", [-0.5, 0.5])
def test_steps_that_become_longer_or_shorter_keep_a_rhythm(drift: float) -> None:
    seen = watch(Layout(period=20, drift=drift, seconds=3600))

    assert {"usual"} == seen.states
    assert 20 * (1 + drift) == pytest.approx(seen.last.period_seconds, rel=0.1)


def test_data_that_stops_is_no_traffic_that_stops() -> None:
    layout = Layout()
    values = layout.observed()
    values[:, FAULT:] = np.nan
    seen = watch(layout, values)

    assert {"usual"} == seen.states
    assert seen.said[-1][1] is None


def test_a_job_on_other_nodes_begins_anew() -> None:
    watching = TrafficWatch(1.0, 1.0, 110.0)
    seen = Layout(nodes=4, seconds=900).observed()
    times = START + np.arange(900, dtype=np.float64)
    frame = JobFrame("j", "tcp_rdma_throughput", ("a", "b", "c", "d"), times, seen)

    assert watching.update({frame.metric: frame}, Doing()) is not None
    other = JobFrame("j", frame.metric, ("a", "b", "c", "e"), times[-30:], seen[:, -30:])
    assert watching.update({frame.metric: other}, Doing()) is None


@pytest.mark.parametrize(
    ("rdma", "expected"), [(2e9, "tcp_rdma_throughput"), (0.0, "network_throughput"), (None, "")]
)
def test_rdma_counts_where_it_is_used(rdma: float | None, expected: str) -> None:
    times, nodes = START + np.arange(900, dtype=np.float64), ("a", "b", "c")
    levels = {"tcp_rdma_throughput": rdma, "network_throughput": 5e8}
    frames = {
        name: JobFrame("j", name, nodes, times, np.full((3, 900), value, np.float32))
        for name, value in levels.items()
        if value is not None and expected
    }
    found = TrafficWatch(1.0, 15.0, 110.0).update(frames, Doing())

    assert expected == (found.metric if found else "")


@pytest.mark.parametrize("step", [0.1, 0.5, 1.0])
def test_samples_finer_than_a_second_are_averaged(step: float) -> None:
    count = round(1200 / step)
    times = START + np.arange(count) * step
    seconds = np.floor(np.arange(count) * step)
    values = np.tile(np.where(seconds % 10 < 4, 4e9, 0), (3, 1)).astype(np.float32)
    frame = JobFrame("j", "tcp_rdma_throughput", ("a", "b", "c"), times, values)
    found = TrafficWatch(step, 1.0, 110.0).update({frame.metric: frame}, Doing())

    assert found is not None
    assert 10 == pytest.approx(found.period_seconds, rel=0.01)
    assert 1 == pytest.approx(found.ratio, abs=0.05)


def test_a_clock_that_goes_back_forgets_the_future() -> None:
    recent = Recent(1, 10, 1.0)
    recent.write(np.arange(100, 110), np.arange(10, dtype=np.float32)[None])
    recent.write(np.arange(50, 52), np.array([[7, 8]], np.float32))

    assert 51 == recent.newest
    assert [7.0, 8.0] == recent.last(2)[0].tolist()
    assert np.isnan(recent.last(10)[0, :8]).all()


def test_what_came_late_is_taken_in_and_what_is_lost_changes_nothing() -> None:
    recent = Recent(1, 10, 1.0)
    recent.write(np.arange(5), np.array([[1, np.nan, 3, np.nan, 5]], np.float32))
    recent.write(np.arange(5), np.array([[np.nan, 2, np.nan, np.nan, np.nan]], np.float32))

    held = recent.last(5)
    assert [1, 2, 3, 5] == held[np.isfinite(held)].tolist()
    assert [1, 2, 3, 3, 5] == carried(held, 1.0)[0].tolist()
    assert 1 == spacing(held[0])


@pytest.mark.parametrize("seed", range(20_000, 20_030))
def test_a_healthy_job_names_nobody(seed: int) -> None:
    assert set() == healthy_job(seed, 64).named
