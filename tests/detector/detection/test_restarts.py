"""A job whose processes end and are started anew: what they do and hold is set anew with them."""

from __future__ import annotations

import numpy as np
import pytest

from detector.training_job import ONSET, Values, changed, found, nodes_found, replay, training

# The processes are gone for a minute, less than a checkpoint may take.
BACK = ONSET + 60
OFF = {"restarts": False}


def restarted(
    seconds: int = 1300,
    *,
    waits: tuple[int, int] | None = None,
    slower: float = 0.0,
    frees: bool = True,
) -> Values:
    """Return a job that is ended and started anew, or only rests, as in a checkpoint."""
    values = training(seconds, waits=waits, rests=(ONSET, BACK), slower=slower)
    values["gpu_memory_used"] = np.full_like(values["gpu_power"], 5e10)
    if frees:
        values["gpu_memory_used"][..., ONSET:BACK] = 6e8
    return values


@pytest.mark.parametrize(
    ("frees", "settings", "expected"),
    [
        pytest.param(True, {}, [], id="started anew"),
        pytest.param(False, {}, ["node-02"], id="only a rest"),
        pytest.param(True, OFF, ["node-02"], id="without the rule"),
    ],
)
def test_a_start_needs_the_full_continuity_however_short_the_rest_was(
    frees: bool, settings: dict[str, bool], expected: list[str]
) -> None:
    """A rank that is ready three minutes after the others, which wait for it."""
    late = slice(BACK, BACK + 200)
    values = restarted(waits=(late.start, late.stop), frees=frees)
    assert expected == nodes_found(changed(values, "cpu_usage", 2, 0.3, late), peerwatch=settings)


def test_who_keeps_a_start_waiting_for_long_is_named() -> None:
    values = restarted(waits=(BACK, 1300))
    ((node, _, _, raised),) = found(changed(values, "cpu_usage", 2, 0.3, slice(BACK, None)))
    assert "node-02" == node
    assert 240 <= raised - BACK <= 275


@pytest.mark.parametrize(("settings", "expected"), [({}, []), (OFF, ["node-02"])])
def test_what_a_node_showed_before_a_start_does_not_make_the_start_long(
    settings: dict[str, bool], expected: list[str]
) -> None:
    """The job worked for minutes beside it, was started anew, and loads for half a minute."""
    values = training(1300, waits=(ONSET + 130, ONSET + 170), rests=(ONSET, ONSET + 130))
    values = changed(values, "cpu_usage", 2, 0.6, slice(ONSET - 350, None))
    assert expected == nodes_found(values, peerwatch=settings)


def test_what_is_learned_anew_leaves_no_deviation_standing() -> None:
    """A node loads for half a minute longer; the job steps once, and waits for its data."""
    values = restarted(waits=(BACK, BACK + 40))
    stall = slice(BACK + 60, BACK + 115)
    for name, left in (("gpu_tensor_activity", 0.002), ("gpu_power", 0.4)):
        values[name][..., stall] *= left
    late = slice(BACK, BACK + 38)
    for name in ("cpu_usage", "gpu_memory_used"):
        changed(values, name, 2, 0.1, late)
    assert [] == nodes_found(values)


def test_a_first_rank_that_moves_with_a_restart_is_no_fault_of_its_old_node() -> None:
    """Its traffic is gone from there, and later the job happens to be slower."""
    values = changed(restarted(slower=0.05), "network_throughput", 2, 0.2, slice(BACK, None))
    assert [] == nodes_found(values)
    assert ["node-02"] == nodes_found(values, peerwatch=OFF)


def test_what_the_hardware_does_is_no_other_after_a_restart() -> None:
    values = changed(restarted(slower=0.05), "gpu_power", 2, 0.7, slice(BACK, None))
    assert ["node-02"] == nodes_found(values)


def test_what_is_learned_anew_is_compared_soon() -> None:
    """Two minutes after the restart a rank stops."""
    fault = BACK + 150
    values = restarted(waits=(fault + 10, 1300))
    changed(values, "network_throughput", 2, 0.2, slice(BACK, None))
    ((node, _, since, _),) = found(changed(values, "cpu_usage", 4, 0.3, slice(fault, None)))
    assert ("node-04", True) == (node, abs(since - fault) <= 10)


@pytest.mark.parametrize(("healed", "standing"), [(False, ["node-02"]), (True, [])])
def test_a_restart_refutes_no_finding(healed: bool, standing: list[str]) -> None:
    """The job is started anew with the node that it failed of, which is as before or not."""
    values = restarted(waits=(ONSET - 200, ONSET))
    changed(values, "cpu_usage", 2, 0.3, slice(ONSET - 205, BACK if healed else None))
    here = replay(values)
    here.run(ONSET)
    assert ["node-02"] == list(here.state.standing)
    here.run()
    assert standing == list(here.state.standing)
