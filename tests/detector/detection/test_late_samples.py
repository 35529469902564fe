"""A node whose samples come late, as its clock is, seems to be the first to stop in a pause."""

from __future__ import annotations

import numpy as np
import pytest

from detector.training_job import ONSET, Values, nodes_found, training

SECONDS, LATE = 1100, 7
TRUSTED = {"late_samples": False}
# Of all nodes alike, and of each by itself.
SHOWN = ("gpu_tensor_activity", "ecn_rate")


def short_work(pause: str) -> Values:
    """Return a job that works for eight seconds between a pause and a wait of four minutes."""
    begin, back = ONSET - 60, ONSET - 8
    if pause == "rest":
        values = training(SECONDS, rests=(begin, back), waits=(ONSET, ONSET + 240))
    else:
        values = training(SECONDS, waits=(begin, ONSET + 240))
        usual = training(SECONDS)
        for name, array in values.items():
            array[..., back:ONSET] = usual[name][..., back:ONSET]
    return {name: values[name] for name in (*SHOWN, "gpu_duty_cycle")}


def delayed(values: Values, node: int, seconds: int) -> Values:
    for array in values.values():
        array[node, ..., seconds:] = array[node, ..., :-seconds].copy()
    return values


@pytest.mark.parametrize("pause", ["rest", "wait"])
def test_who_is_not_seen_to_come_back_from_a_pause_is_late(pause: str) -> None:
    """The others work for a moment until the next one, which they would not do without it."""
    values = delayed(short_work(pause), 2, LATE)
    assert [] == nodes_found(values)
    assert ["node-02"] == nodes_found(values, peerwatch=TRUSTED)


@pytest.mark.parametrize("pause", ["rest", "wait"])
def test_on_time_nobody_was_the_first(pause: str) -> None:
    assert [] == nodes_found(short_work(pause), peerwatch=TRUSTED)


def test_who_stops_first_after_the_job_has_worked_for_a_while_is_found() -> None:
    values = training(SECONDS, rests=(ONSET - 120, ONSET - 80), waits=(ONSET, SECONDS))
    values = {name: values[name] for name in (*SHOWN, "gpu_duty_cycle")}
    for name in SHOWN:
        values[name][2, ..., ONSET - 9 : ONSET] *= 0.003
    assert ["node-02"] == nodes_found(values)
    assert np.isfinite(values["gpu_tensor_activity"]).all()
