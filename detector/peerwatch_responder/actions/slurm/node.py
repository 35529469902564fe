"""A node as Slurm has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peerwatch_responder.action import UnknownError
from peerwatch_responder.actions.slurm.command import list_in
from peerwatch_responder.actions.slurm.mark import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_responder.actions.slurm.command import Commands
    from peerwatch_responder.cluster import Owner

_IN_USE = {"IDLE", "ALLOCATED", "MIXED", "RESERVED", "PLANNED", "COMPLETING", "BLOCKED"}
# Of a node that works, or that Slurm itself is watching.
_HARMLESS = _IN_USE | {"NOT_RESPONDING", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"}


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Parameters
    ----------
    name
        As Slurm names it.
    states
        Its state and all flags, in capitals.
    reason
        Why it is out; empty: it is not, or nobody said why.
    partitions
        Those that it is in.
    """

    name: str
    states: frozenset[str]
    reason: str
    partitions: frozenset[str]

    @property
    def key(self) -> str | None:
        """The key of our response that has drained it; None: none has."""
        return key_of(self.reason) if "DRAIN" in self.states else None

    def owner(self, *, reserved: bool) -> Owner:
        """Return who has taken it out.

        Parameters
        ----------
        reserved
            Whether a node in a reservation is in use like any other; otherwise it is whose
            reservation it is.
        """
        if not self.states or "UNKNOWN" in self.states:
            return "unknown"
        if self.key is not None:
            return "ours"
        if self.states - _HARMLESS or ("RESERVED" in self.states and not reserved):
            return "other"
        return "nobody"

    @property
    def shown(self) -> str:
        """Its state as a person reads it, such as ``ALLOCATED+DRAIN``."""
        base = sorted(self.states & {"IDLE", "ALLOCATED", "MIXED", "DOWN"})
        return "+".join([*base, *sorted(self.states - set(base))])


def nodes_of(commands: Commands) -> dict[str, Node]:
    """Return all nodes by name.

    Raises
    ------
    UnknownError
        If Slurm does not say all of it, or knows of no node.
    """
    content = commands.ask_content("sinfo", "--all")
    if "sinfo" in content:
        # From 23.02 on sinfo prints groups of nodes. Before, scontrol prints no JSON.
        listed = commands.ask_json("scontrol", "nodes", "--all", "show", "nodes")
    else:
        listed = list_in(content, "sinfo", "nodes")
    nodes = [_node(each) for each in listed]
    if not nodes:
        raise UnknownError("Slurm lists no node.")
    return {each.name: each for each in nodes}


def _node(listed: Mapping[str, Any]) -> Node:
    name, reason = listed.get("name"), listed.get("reason")
    # One text and a list of flags; newer versions have one list of all.
    state, flags = listed.get("state"), listed.get("state_flags") or []
    states = [state] if isinstance(state, str) else state
    partitions = listed.get("partitions")
    if not isinstance(name, str) or not isinstance(reason, str):
        raise UnknownError(f"Slurm prints a node without a name or reason: {name}")
    known = (_texts(name, "state", states), _texts(name, "state", flags))
    capitals = frozenset(each.upper() for each in (*known[0], *known[1]) if each)
    return Node(name, capitals, reason, frozenset(_texts(name, "partitions", partitions)))


def _texts(node: str, what: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UnknownError(f"Slurm prints no {what} of node {node}: {str(value)[:100]}")
    return value
