"""Pauses, stalls and evaluations of a healthy job, in which some node always differs a little."""

from __future__ import annotations

import numpy as np
import pytest

from detector.training_job import FAULT, ONSET, changed, found, nodes_found, stopped_rank, training

# One sign is enough.
ALONE = {"company": False}


def test_one_sign_without_company_is_given_time() -> None:
    ((node, _, since, raised),) = found(stopped_rank(), cycle=5)
    assert ("node-02", True) == (node, abs(since - ONSET) <= 10)
    # The wait begins ten seconds after the onset, and is long after 110.
    assert 110 <= raised - ONSET - 10 <= 125
    # A pause that ends before is nobody's fault.
    short = changed(
        training(900, waits=(ONSET + 10, ONSET + 90)), "cpu_usage", 2, 0.3, slice(ONSET, ONSET + 90)
    )
    assert [] == found(short, cycle=5)
    assert ["node-02"] == nodes_found(short, peerwatch=ALONE)


def test_metrics_of_one_cause_are_no_company_for_each_other() -> None:
    values = training(900, waits=(ONSET + 10, ONSET + 90))
    for name in ("gpu_power", "gpu_duty_cycle"):
        changed(values, name, 2, 0.3, slice(ONSET, ONSET + 90))
    assert [] == found(values, cycle=5)
    assert ["node-02"] == nodes_found(values, peerwatch=ALONE)
    changed(values, "cpu_usage", 2, 0.3, slice(ONSET, ONSET + 90))
    assert ["node-02"] == nodes_found(values)


def test_what_little_is_left_in_a_long_wait_is_not_compared() -> None:
    """The usual level is that of the work, also when the job waits for most of ten minutes."""
    wait = slice(ONSET, ONSET + 420)
    values = training(1200, waits=(wait.start, wait.stop))
    traffic = values["network_throughput"] * 500
    traffic[:, wait] /= 500
    traffic[2, wait] *= 0.4
    values["tcp_rdma_throughput"] = traffic
    assert [] == found(values)


@pytest.mark.parametrize(("after", "expected"), [(100, ["node-02"]), (150, [])])
def test_who_begins_to_differ_long_into_a_pause_is_not_its_reason(
    after: int, expected: list[str]
) -> None:
    """A storage is slow for minutes; meanwhile a node wanders as it does at all times."""
    values = training(1200, waits=(ONSET, ONSET + 330))
    changed(values, "cpu_usage", 2, 0.7, slice(ONSET + after, ONSET + after + 150))
    assert expected == nodes_found(values)
    assert ["node-02"] == nodes_found(values, peerwatch=ALONE)


def test_an_evaluation_beside_a_host_that_works_costs_the_job_nothing() -> None:
    """Another program runs for long; part of the time the job evaluates, which computes less."""
    values = changed(training(1200), "network_throughput", 2, 20.0, FAULT)
    changed(values, "gpu_tensor_activity", slice(None), 0.5, slice(ONSET + 40, ONSET + 140))
    assert [] == found(values)
    assert ["node-02"] == nodes_found(values, peerwatch={"steady_loss": False})


@pytest.mark.parametrize(
    ("hangs", "frees", "expected"),
    [
        pytest.param(True, True, ["node-02"], id="hangs and ends"),
        pytest.param(True, False, [], id="pauses and rests"),
        pytest.param(False, True, [], id="works and ends"),
    ],
)
def test_a_job_that_ends_right_out_of_a_wait_has_failed(
    hangs: bool, frees: bool, expected: list[str]
) -> None:
    """Watchdogs end a job a minute after one rank stopped, before one sign has had its time."""
    end = ONSET + 75
    waits = (ONSET + 10, end) if hangs else None
    values = training(end + 40, waits=waits, rests=(end, end + 40))
    changed(values, "cpu_usage", 2, 0.3, slice(ONSET, end))
    values["gpu_memory_used"] = np.full_like(values["gpu_power"], 5e10)
    if frees:
        values["gpu_memory_used"][..., end:] = 6e8
    assert expected == nodes_found(values)
    assert [] == nodes_found(values, peerwatch={"ended": False})


def test_who_loses_in_a_wait_what_it_has_more_than_others_is_no_suspect() -> None:
    """A node with tasks of its own, in a wait in which all do the same."""
    wait = slice(ONSET + 10, ONSET + 90)
    values = training(900, waits=(wait.start, wait.stop))
    usage = values["cpu_usage"]
    usage[2] *= 2
    usage[2, wait] = 1.05 * np.median(usage[:, wait])
    assert [] == found(values, cycle=5, peerwatch=ALONE)
    assert ["node-02"] == nodes_found(values, peerwatch=ALONE | {"away": False})
    # Below the others it is one.
    usage[2, wait] *= 0.6
    assert ["node-02"] == nodes_found(values, peerwatch=ALONE)
