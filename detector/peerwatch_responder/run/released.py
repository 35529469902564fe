"""Finds out that a person has put a node back that was out because of us."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from peerwatch_responder.cluster import Owner, Place
    from peerwatch_responder.policy.state import Response, State


def out(state: State, take_out: Collection[str]) -> Iterator[Response]:
    """Yield the responses that have ended and left their nodes out, as far as that is known.

    Parameters
    ----------
    state
        What the journal says.
    take_out
        Names of the actions after which a node is out of work.
    """
    for each in state.responses.values():
        was_taken = any(step.is_done and step.action in take_out for step in each.steps)
        if each.is_out and each.status in {"done", "stuck"} and was_taken:
            yield each


def released(
    state: State, take_out: Collection[str], owners: Mapping[Place, Owner]
) -> frozenset[Place]:
    """Return the nodes that are out by the journal and in use by their cluster.

    A node that somebody else has taken out meanwhile is not back.

    Parameters
    ----------
    state
        What the journal said before the cluster was asked.
    take_out
        As above.
    owners
        What the cluster says.
    """
    places = {(each.cluster, each.node) for each in out(state, take_out)}
    return frozenset(place for place in places if owners.get(place) == "nobody")
