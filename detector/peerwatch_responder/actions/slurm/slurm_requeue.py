"""Requeues the job of an alert, if it still runs on the node as it did then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.action import RejectedError, StepState, UnknownError, register
from peerwatch_responder.actions.slurm.conclude import conclude
from peerwatch_responder.actions.slurm.job import job_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_responder.action import ActionOptions, Before, Target
    from peerwatch_responder.actions.slurm.cluster import SlurmCluster


@register(
    "slurm_requeue",
    "requeues the job in Slurm",
    takes_out=False,
    cluster="slurm",
    restarts=lambda _options: True,
)
class SlurmRequeue:
    """Requeues the alert's job, and no other, if it runs on the alert's node.

    A run that began after the alert is not the one that the alert is about: whoever has
    started it anew, it is left alone. So a job is requeued once, also where a crash came between.
    """

    def __init__(self, _options: ActionOptions, cluster: SlurmCluster) -> None:
        self._cluster = cluster

    def steps(self, target: Target) -> Sequence[_Requeue]:
        """Return the one step there is."""
        self._cluster.check(target)
        return [_Requeue(self._cluster, target)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Do nothing: what a run has lost does not come back; otherwise as ``Action.undo``."""
        return "a job that was requeued runs again by itself"


class _Requeue:
    name = "requeue"

    def __init__(self, cluster: SlurmCluster, target: Target) -> None:
        self._cluster = cluster
        self._target = target

    def inspect(self) -> StepState:
        target = self._target
        job = job_of(self._cluster.commands, target.job_id)
        if job is None:
            return StepState("done", f"Slurm has no job {target.job_id!r} any more")
        if job.changes:
            raise UnknownError(f"{job.shown}: it is looked at when that has ended")
        if not job.runs:
            return StepState("done", job.shown)
        if target.node not in job.nodes:
            return StepState("done", f"{job.shown}, not on {target.node}")
        if job.began > target.starts_at:
            return StepState("done", f"{job.shown} since a time after the alert's begin")
        if not job.can_requeue:
            return StepState(
                "other", f"{job.shown} and may not be requeued (no batch job, or Requeue=0)"
            )
        return StepState("open", job.shown, {"job": job.id, "began": job.began})

    def do(self, before: Before) -> str:
        found = self.inspect()
        if found.status == "done":
            return found.text
        if found.status == "other":
            raise RejectedError(found.text)
        reply = self._cluster.commands.change("requeue", found.before["job"])
        return conclude(reply, self._inspect_requeued, harmless=False)

    def _inspect_requeued(self) -> StepState:
        """As ``inspect``; a job that is being ended is requeued."""
        job = job_of(self._cluster.commands, self._target.job_id)
        if job is not None and job.changes:
            return StepState("done", job.shown)
        return self.inspect()
