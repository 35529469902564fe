"""Drains a node: no job begins there any more, and those that run there may end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.action import Look, RejectedError, register
from peerwatch_responder.actions.slurm.node import nodes_of
from peerwatch_responder.actions.slurm.settle import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_responder.action import ActionOptions, Before, Target
    from peerwatch_responder.actions.slurm.cluster import SlurmCluster


@register("slurm_drain", "drains the node in Slurm", takes_out=True, cluster="slurm")
class SlurmDrain:
    """Drains the node with a reason that has the response's key; undone, it is resumed.

    A second drain would overwrite the reason of the first, so a node that is out by anybody else is
    never drained. Slurm keeps no reason of a node that is in use: to resume it is all there is to
    put back.
    """

    def __init__(self, _options: ActionOptions, cluster: SlurmCluster) -> None:
        self._cluster = cluster

    def steps(self, target: Target) -> Sequence[_Drain]:
        """Return the one step there is."""
        self._cluster.check(target)
        return [_Drain(self._cluster, target)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Resume the node where the reason is ours, byte for byte; otherwise as ``Action.undo``."""
        self._cluster.check(target)
        drain = _Drain(self._cluster, target)
        found = drain.look()
        if found.standing != "done":
            return f"nothing is resumed: {found.text}"
        told = self._cluster.commands.tell("update", f"NodeName={target.node}", "State=RESUME")
        return settle(told, drain.look_back, harmless=True)


class _Drain:
    name = "drain"

    def __init__(self, cluster: SlurmCluster, target: Target) -> None:
        self._cluster = cluster
        self._target = target

    def look(self) -> Look:
        target = self._target
        node = nodes_of(self._cluster.commands).get(target.node)
        if node is None:
            return Look("other", f"Slurm has no node {target.node!r}")
        state = f"{node.name} is {node.shown}"
        if node.key == target.key and node.reason == target.reason:
            busy = not node.states.isdisjoint({"ALLOCATED", "MIXED", "COMPLETING"})
            return Look("done", f"{state}: {'draining, jobs still run' if busy else 'drained'}")
        owner = node.owner(reserved=self._cluster.reserved)
        if owner == "nobody":
            return Look("open", state, {"states": sorted(node.states), "reason": node.reason})
        return Look("other", f"{state}, reason {node.reason!r}: it stays as it is")

    def look_back(self) -> Look:
        """Look whether our mark is gone."""
        found = self.look()
        if found.standing == "done":
            return Look("open", found.text)
        return Look("done", f"resumed; {found.text}")

    def do(self, before: Before) -> str:
        found = self.look()
        if found.standing == "done":
            return found.text
        if found.standing == "other":
            raise RejectedError(found.text)
        told = self._cluster.commands.tell(
            "update",
            f"NodeName={self._target.node}",
            "State=DRAIN",
            f"Reason={self._target.reason}",
        )
        return settle(told, self.look, harmless=True)
