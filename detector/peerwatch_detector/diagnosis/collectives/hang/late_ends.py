"""Ends that gloo notes late: what a rank has gone on from has ended, for whoever launched it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from peerwatch_detector.diagnosis.collectives.snapshot import Group, Position


def with_ends(
    group: Group, positions: Mapping[int, Position], *, ahead: bool = False
) -> dict[int, Position]:
    """Return the positions in a group with what must have ended counted as completed.

    Gloo runs on the host, which goes on from a collective when it has ended, and notes the end
    later, at times only with the next of the same group. A collective that every member has
    launched has ended if one of them has completed it, has launched the next of the group, or has
    launched one in another group since: ranks run the same program, so no other waits for its end
    either. Without that all would seem to wait for the network in it.

    Parameters
    ----------
    group, positions
        A group, and the positions of its members by rank.
    ahead
        Whether hosts of the job launch ahead: who goes on then says nothing of an end, and only a
        collective that a member has completed has ended.

    Notes
    -----
    A device runs what the host has launched in its own time, so a source that knows starts knows
    ends as well, and is left as it is. A collective whose handle the program keeps for later
    (``async_op``) looks as one that was gone on from; it counts as completed as well.
    """
    known = positions.values()
    if any(position.started is not None for position in known) or len(positions) < len(
        group.members
    ):
        return dict(positions)
    ended = min((position.enqueued for position in known), default=0)
    if ahead or not any(_shows_its_end(position, ended) for position in known):
        completed = [position.completed for position in known if position.completed is not None]
        ended = min(ended, max(completed, default=0))
    return {
        rank: position
        if position.completed is None or position.completed >= ended
        else replace(position, completed=ended)
        for rank, position in positions.items()
    }


def _shows_its_end(position: Position, sequence: int) -> bool:
    """Whether a rank has gone on from a collective, in its group or in another."""
    return position.enqueued > sequence or (
        position.went_on and position.in_flight == position.enqueued
    )
