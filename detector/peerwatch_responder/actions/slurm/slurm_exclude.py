"""Keeps a job that waits from a node, whatever becomes of the node itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.action import RejectedError, StepState, UnknownError, register
from peerwatch_responder.actions.slurm.conclude import conclude
from peerwatch_responder.actions.slurm.job import expanded, job_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_responder.action import ActionOptions, Before, Target
    from peerwatch_responder.actions.slurm.cluster import SlurmCluster


@register("slurm_exclude", "keeps the waiting job from the node", takes_out=False, cluster="slurm")
class SlurmExclude:
    """Adds the node to the excluded nodes of the alert's job while it waits."""

    def __init__(self, _options: ActionOptions, cluster: SlurmCluster) -> None:
        self._cluster = cluster

    def steps(self, target: Target) -> Sequence[_Exclude]:
        """Return the one step there is."""
        self._cluster.check(target)
        return [_Exclude(self._cluster, target)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Take the node from the list while the job waits; otherwise as ``Action.undo``."""
        self._cluster.check(target)
        return _Exclude(self._cluster, target).take_back(str(before.get("excluded", "")))


class _Exclude:
    name = "exclude"

    def __init__(self, cluster: SlurmCluster, target: Target) -> None:
        self._cluster = cluster
        self._target = target

    def inspect(self) -> StepState:
        target = self._target
        commands = self._cluster.commands
        job = job_of(commands, target.job_id)
        if job is None:
            return StepState("done", f"Slurm has no job {target.job_id!r} any more")
        if job.changes:
            raise UnknownError(f"{job.shown}: it is looked at when that has ended")
        before = {"excluded": job.excluded, "job": job.id}
        if target.node in expanded(commands, [job.excluded]):
            return StepState("done", f"{job.shown} and excludes {target.node}", before)
        if job.waits:
            return StepState("open", job.shown, before)
        if target.node in job.nodes:
            return StepState(
                "other", f"{job.shown} on {target.node}: only a job that waits excludes it"
            )
        return StepState("done", f"{job.shown}, not on {target.node}", before)

    def do(self, before: Before) -> str:
        found = self.inspect()
        if found.status == "done":
            return found.text
        if found.status == "other":
            raise RejectedError(found.text)
        nodes = ",".join(filter(None, (found.before["excluded"], self._target.node)))
        reply = self._cluster.commands.change(
            "update", f"JobId={found.before['job']}", f"ExcNodeList={nodes}"
        )
        return conclude(reply, self.inspect, harmless=True)

    def take_back(self, before: str) -> str:
        """Put the list back, byte for byte where nobody else has changed it."""
        commands, node = self._cluster.commands, self._target.node
        old = expanded(commands, [before])
        if node in old:
            return f"{node} was excluded before"
        job = job_of(commands, self._target.job_id)
        if job is None or not job.waits:
            shown = "there is no such job any more" if job is None else job.shown
            return f"nothing is to be put back: {shown}"
        now = expanded(commands, [job.excluded])
        if node not in now:
            return f"{node} is not excluded any more"
        others = [each for each in now if each != node]
        wanted = before if set(others) == set(old) else ",".join(others)
        reply = commands.change("update", f"JobId={job.id}", f"ExcNodeList={wanted}")
        return conclude(reply, lambda: self._inspect_undone(wanted), harmless=True)

    def _inspect_undone(self, wanted: str) -> StepState:
        job = job_of(self._cluster.commands, self._target.job_id)
        if job is None or not job.waits or job.excluded == wanted:
            return StepState("done", f"its excluded nodes are {wanted!r} again")
        return StepState("open", f"its excluded nodes are {job.excluded!r}")
