"""A node that is again as it was before another program ran beside the job."""

from __future__ import annotations

import numpy as np
import pytest

from detector.training_job import ONSET, Values, changed, nodes_found, training

BEGIN, END, SECONDS = 1300, 2200, 2700
OFF = {"returns": False}


def after_a_backup(own: float, backup: float, *, slower: float = 0.05) -> Values:
    """Return a job that slows down when a program ends that ran for 15 minutes beside a rank."""
    values = training(SECONDS)
    values["gpu_tensor_activity"][..., END:] *= 1 - slower
    changed(values, "cpu_usage", 2, own, slice(0, None))
    return changed(values, "cpu_usage", 2, backup, slice(BEGIN, END))


def test_a_node_without_the_program_that_ran_beside_the_job_is_as_before() -> None:
    """With it the node was where its peers are, and was learned from."""
    values = after_a_backup(0.6, 1 / 0.6)
    assert [] == nodes_found(values)
    assert ["node-02"] == nodes_found(values, peerwatch=OFF)


@pytest.mark.parametrize("own", [1.0, 0.8])
def test_a_node_that_is_lower_than_it_ever_was_is_found(own: float) -> None:
    values = changed(after_a_backup(own, 1.0), "cpu_usage", 2, 0.55, slice(END, None))
    assert ["node-02"] == nodes_found(values)


@pytest.mark.parametrize(
    ("before", "settings", "expected"),
    [
        pytest.param(0.6, {}, [], id="as before the start"),
        pytest.param(0.6, OFF, ["node-02"], id="without the rule"),
        pytest.param(1.0, {}, ["node-02"], id="lower than before the start"),
    ],
)
def test_a_program_that_began_while_the_job_was_started_anew_was_never_usual(
    before: float, settings: dict[str, bool], expected: list[str]
) -> None:
    """What nodes do is learned anew from a start on, and so is the program beside the job."""
    back, end = ONSET + 60, ONSET + 360
    values = training(1500, rests=(ONSET, back))
    values["gpu_memory_used"] = np.full_like(values["gpu_power"], 5e10)
    values["gpu_memory_used"][..., ONSET:back] = 6e8
    values["gpu_tensor_activity"][..., end:] *= 0.95
    changed(values, "cpu_usage", 2, before, slice(0, ONSET))
    changed(values, "cpu_usage", 2, 0.6, slice(end, None))
    assert expected == nodes_found(values, peerwatch=settings)


def test_what_a_node_is_back_at_is_usual_for_it_also_after_the_hour() -> None:
    """It was low before the program, is low without it, and the job is slower long afterwards."""
    begin, end = 500, 860
    values = training(end + 800)
    changed(values, "cpu_usage", 2, 0.5, slice(0, begin))
    changed(values, "cpu_usage", 2, 0.5, slice(end, None))
    values["gpu_tensor_activity"][..., end + 380 :] *= 0.9
    # Here an hour is twelve minutes.
    assert [] == nodes_found(values, similarity={"baseline_seconds": 120})


def test_what_a_fault_showed_is_not_what_was_usual() -> None:
    """Fifteen minutes of a fault, fifteen without, and the same again."""
    values = training(SECONDS + 900)
    for begin in (700, 2500):
        for name in ("cpu_usage", "gpu_tensor_activity"):
            node = 2 if name == "cpu_usage" else slice(None)
            span = slice(begin, begin + 900)
            changed(values, name, node, 0.55 if name == "cpu_usage" else 0.9, span)
    assert ["node-02", "node-02"] == nodes_found(values)
