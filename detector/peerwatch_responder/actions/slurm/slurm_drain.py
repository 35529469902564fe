"""Drains a node: no job begins there any more, and those that run there may end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.action import RejectedError, StepState, register
from peerwatch_responder.actions.slurm.conclude import conclude
from peerwatch_responder.actions.slurm.node import nodes_of

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
        found = drain.inspect()
        if found.status != "done":
            return f"nothing is resumed: {found.text}"
        reply = self._cluster.commands.change("update", f"NodeName={target.node}", "State=RESUME")
        return conclude(reply, drain.inspect_undone, harmless=True)


class _Drain:
    name = "drain"

    def __init__(self, cluster: SlurmCluster, target: Target) -> None:
        self._cluster = cluster
        self._target = target

    def inspect(self) -> StepState:
        target = self._target
        node = nodes_of(self._cluster.commands).get(target.node)
        if node is None:
            return StepState("other", f"Slurm has no node {target.node!r}")
        state = f"{node.name} is {node.shown}"
        if node.key == target.key and node.reason == target.reason:
            busy = not node.states.isdisjoint({"ALLOCATED", "MIXED", "COMPLETING"})
            return StepState(
                "done", f"{state}: {'draining, jobs still run' if busy else 'drained'}"
            )
        owner = node.owner(reserved=self._cluster.reserved)
        if owner == "nobody":
            return StepState("open", state, {"states": sorted(node.states), "reason": node.reason})
        return StepState("other", f"{state}, reason {node.reason!r}: it stays as it is")

    def inspect_undone(self) -> StepState:
        """Inspect whether our mark is gone."""
        found = self.inspect()
        if found.status == "done":
            return StepState("open", found.text)
        return StepState("done", f"resumed; {found.text}")

    def do(self, before: Before) -> str:
        found = self.inspect()
        if found.status == "done":
            return found.text
        if found.status == "other":
            raise RejectedError(found.text)
        reply = self._cluster.commands.change(
            "update",
            f"NodeName={self._target.node}",
            "State=DRAIN",
            f"Reason={self._target.reason}",
        )
        return conclude(reply, self.inspect, harmless=True)
