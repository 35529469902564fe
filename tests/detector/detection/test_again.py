"""What a node shows again and again while the job keeps its pace is not what slows it down."""

from __future__ import annotations

import pytest

from detector.training_job import ONSET, Values, changed, nodes_found, training

OFF = {"again": False}


def wandering(
    *before: tuple[int, int], slower_from: int, weaker: float = 0.78, lasts: int = 300
) -> Values:
    """Return a job that is slower from some second on, and a node that is low from the onset.

    Parameters
    ----------
    before
        Seconds before the onset in which it was low, too.
    slower_from
        When the job becomes slower.
    weaker
        How low the node is before the onset.
    lasts
        How many seconds the node is low for from the onset on.
    """
    values = training(1300)
    values["gpu_tensor_activity"][..., slower_from:] *= 0.95
    for begin, end in before:
        changed(values, "gpu_power", 2, weaker, slice(ONSET - begin, ONSET - end))
    return changed(values, "gpu_power", 2, 0.78, slice(ONSET, ONSET + lasts))


AGAIN = (350, 290), (230, 190), (120, 60)


def test_a_node_that_wanders_is_not_why_the_job_is_slower_by_chance() -> None:
    values = wandering(*AGAIN, slower_from=ONSET + 60)
    assert [] == nodes_found(values)
    assert ["node-02"] == nodes_found(values, peerwatch=OFF)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(wandering(slower_from=ONSET), id="once"),
        pytest.param(wandering((90, 40), slower_from=ONSET - 90), id="slower since it first was"),
        pytest.param(wandering(*AGAIN, slower_from=ONSET, weaker=0.9), id="hardly to be seen"),
        pytest.param(
            wandering(*AGAIN, slower_from=ONSET, lasts=500), id="it lasts, and so it costs"
        ),
    ],
)
def test_a_node_that_slows_the_job_down_is_found_though_it_was_low_before(values: Values) -> None:
    assert ["node-02"] == nodes_found(values)
