"""What a job computes is told from how fast it trains: an evaluation is no loss of progress."""

from __future__ import annotations

import numpy as np
import pytest

from detector.training_job import ONSET, Values, changed, nodes_found, training

OFF = {"other_work": False}
TRAFFIC = "nvlink_bandwidth"


def slow_beside_a_busy_host(
    seconds: int, slow: slice, computed: float, sent: float, *, traffic: bool = True
) -> Values:
    """Return a job that computes less for a while, and of which a node's CPU is low."""
    values = training(seconds)
    if traffic:
        values[TRAFFIC] = values["gpu_tensor_activity"] * 1e11
        values[TRAFFIC][..., slow] *= sent
    values["gpu_tensor_activity"][..., slow] *= computed
    return changed(values, "cpu_usage", 2, 0.6, slice(ONSET, None))


EVALUATION = slice(ONSET + 40, ONSET + 280)


@pytest.mark.parametrize("computed", [0.6, 0.9])
def test_an_evaluation_is_no_loss_of_progress(computed: float) -> None:
    """It takes four minutes, nearly all of the time that the node has differed for."""
    values = slow_beside_a_busy_host(1100, EVALUATION, computed, 0.1)
    assert [] == nodes_found(values)
    assert ["node-02"] == nodes_found(values, peerwatch=OFF)


def test_a_slower_job_sends_as_much_for_what_it_computes() -> None:
    values = slow_beside_a_busy_host(1100, slice(ONSET, None), 0.8, 0.8)
    assert ["node-02"] == nodes_found(values)


def test_a_job_that_was_slower_while_it_evaluated_is_found_as_soon_as_it_trains() -> None:
    values = slow_beside_a_busy_host(1300, slice(ONSET, None), 0.8, 0.8)
    for name in ("gpu_tensor_activity", TRAFFIC):
        values[name][..., ONSET + 40 : ONSET + 200] *= 0.1 if name == TRAFFIC else 0.6
    assert ["node-02"] == nodes_found(values)


def test_what_lasts_for_longer_than_evaluations_is_the_jobs_work() -> None:
    values = slow_beside_a_busy_host(1800, slice(ONSET, None), 0.8, 0.3)
    assert ["node-02"] == nodes_found(values)


def test_where_no_traffic_is_measured_all_that_is_lost_counts() -> None:
    values = slow_beside_a_busy_host(1100, EVALUATION, 0.6, 0.1, traffic=False)
    assert ["node-02"] == nodes_found(values)


def test_traffic_that_stops_coming_says_nothing() -> None:
    values = slow_beside_a_busy_host(1100, slice(ONSET, None), 0.8, 0.8)
    values[TRAFFIC][..., ONSET - 30 :] = np.nan
    assert ["node-02"] == nodes_found(values)
