"""The node's boards over every restart of the driver and its processes."""

from __future__ import annotations

from peerwatch_exporter.catalog import family
from peerwatch_exporter.driver.node_view import NodeView


def said(*boards):
    """Return what the gpu collector says of boards, given as (index, uuid, whether it answers)."""
    info, present = family("gpu_info"), family("gpu_present")
    for index, uuid, answers in boards:
        # A board that was lost before anybody saw it has no name.
        if uuid:
            info.add_metric((index, uuid, "H100", "", f"0000:0{index}:00.0", "", "570", ""), 1)
        present.add_metric((index, uuid), int(answers))
    return [info, present]


def joined(view, *boards):
    """Return (present by index and uuid, index and uuid of every gpu_info, GPUs visible)."""
    families = {item.spec.name: item.rows for item in view.join("gpu", [said(*boards)])}
    return (
        dict(families["gpu_present"]),
        [labels[:2] for labels, _ in families["gpu_info"]],
        families["gpus_visible"],
    )


def test_board_with_another_index_after_a_reload_is_not_missed_at_its_old_one():
    view = NodeView(None)
    joined(view, ("0", "GPU-a", True), ("1", "GPU-b", True), ("2", "GPU-c", True))
    # The second one did not come back, so the third one has its index.
    present, info, visible = joined(view, ("0", "GPU-a", True), ("1", "GPU-c", True))
    assert {("0", "GPU-a"): 1, ("1", "GPU-c"): 1, ("1", "GPU-b"): 0} == present
    # Joins on the index need it to be one board's.
    assert [("0", "GPU-a"), ("1", "GPU-c")] == info
    assert [((), 2)] == visible


def test_board_that_no_longer_answers_keeps_its_name():
    view = NodeView(None)
    joined(view, ("0", "GPU-a", True), ("1", "GPU-b", True))
    for present, info, visible in (
        joined(view, ("0", "GPU-a", True)),
        joined(view, ("0", "GPU-a", True), ("1", "", False)),
    ):
        assert 0 == present["1", "GPU-b"]
        assert [("0", "GPU-a"), ("1", "GPU-b")] == info
        assert [((), 1)] == visible
