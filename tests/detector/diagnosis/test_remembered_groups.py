"""What is remembered of process groups stays bounded where a job makes ever new ones."""

from __future__ import annotations

from detector.diagnosis.test_straggler_diagnoser import block
from peerwatch_detector.diagnosis.collectives.hang.pauses import Pauses
from peerwatch_detector.diagnosis.collectives.slowness.blocks import Blocks

GROUPS = 3000


def test_the_longest_waits_of_ever_new_groups() -> None:
    pauses = Pauses()
    for number in range(GROUPS):
        now = 100.0 * number
        # This one comes again and again.
        pauses.seen("usual", now - 40, now)
        pauses.seen(("not_launched", (), f"group-{number}"), now - 20, now)
        pauses.end()
    assert len(pauses._longest) <= 1024
    assert (0.0, 40.0) == pauses.seen("usual", 0.0, 1e9)
    assert 0.0 == pauses.seen(("not_launched", (), "group-0"), 0.0, 1e9)[1]


def test_the_blocks_of_ever_new_groups() -> None:
    blocks = Blocks()
    ranks = {0: 0.0, 1: 0.3}
    for number in range(GROUPS):
        new = blocks.update(block({"usual": ranks, f"group-{number}": ranks}, number + 5))
        assert 2 == len(new)
    assert len(blocks._last) <= 1024
    assert [] == blocks.update(block({"usual": ranks}, GROUPS + 4))


def test_the_blocks_of_more_groups_than_are_remembered_are_new_once() -> None:
    blocks = Blocks()
    groups = {f"group-{number}": {0: 0.0, 1: 0.3} for number in range(2000)}
    assert 2000 == len(blocks.update(block(groups, 5)))
    assert [] == blocks.update(block(groups, 5))
