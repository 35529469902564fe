"""A collective that every member has launched has ended where one of them went on from it."""

from __future__ import annotations

import pytest

from peerwatch_detector.diagnosis.collectives.hang.late_ends import with_ends
from peerwatch_detector.diagnosis.collectives.snapshot import Group, Position, Snapshot

GROUP = Group("A", frozenset({0, 1, 2}))
AT_FIVE = Position(5, 4)


@pytest.mark.parametrize(
    ("other", "completed"),
    [
        # At the same collective: nobody knows of its end.
        (AT_FIVE, 4),
        # It noted the end, launched the next, or launched one of another group since.
        (Position(5, 5), 5),
        (Position(6, 4), 5),
        (Position(5, 4, went_on=True), 5),
        # It did not come to it: what was before has ended.
        (Position(4, 3), 4),
        (Position(4, 4), 4),
        # Several in flight: that it went on says nothing of the last.
        (Position(5, 3, went_on=True), 4),
    ],
)
def test_what_one_member_shows_holds_for_all(other: Position, completed: int) -> None:
    positions = with_ends(GROUP, {0: AT_FIVE, 1: AT_FIVE, 2: other})

    assert {completed} == {positions[rank].completed for rank in (0, 1)}
    assert [5, 5, other.enqueued] == [positions[rank].enqueued for rank in range(3)]


@pytest.mark.parametrize(
    "positions",
    [
        # A member is missing, or its launches only are counted; starts are known of one.
        {0: AT_FIVE, 1: Position(6, 4)},
        {0: AT_FIVE, 1: Position(6, 4), 2: Position(6, 4, 4)},
        {0: Position(5), 1: Position(6), 2: Position(6)},
    ],
)
def test_what_is_not_known_is_left_as_it_is(positions: dict[int, Position]) -> None:
    assert positions == with_ends(GROUP, positions)


def test_it_holds_once_and_for_all() -> None:
    once = with_ends(GROUP, {0: AT_FIVE, 1: AT_FIVE, 2: Position(5, 4, went_on=True)})
    assert once == with_ends(GROUP, once)
    assert {} == with_ends(GROUP, {})


@pytest.mark.parametrize(
    ("positions", "ahead"),
    [
        # In one, and the end of the one before is not noted: as a host that waits for each.
        ({0: AT_FIVE, 1: Position(6, 4), 2: Position(5)}, False),
        ({0: AT_FIVE, 1: Position(7, 4), 2: AT_FIVE}, True),
    ],
)
def test_more_in_flight_than_a_host_waits_for_were_launched_ahead(
    positions: dict[int, Position], ahead: bool
) -> None:
    assert ahead == Snapshot(0.0, {"A": GROUP}, {"A": positions}).launched_ahead


def test_where_hosts_launch_ahead_only_a_completion_shows_an_end() -> None:
    went_on = {0: AT_FIVE, 1: Position(7, 4), 2: Position(5, 4, went_on=True)}
    assert went_on == with_ends(GROUP, went_on, ahead=True)
    noted = with_ends(GROUP, went_on | {2: Position(5, 5)}, ahead=True)
    assert {5} == {position.completed for position in noted.values()}
