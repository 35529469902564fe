"""Lets a requeued job begin at once: Slurm has it wait for two minutes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from peerwatch_responder.action import StepState, UnknownError, register
from peerwatch_responder.actions.slurm.conclude import conclude
from peerwatch_responder.actions.slurm.job import job_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_responder.action import ActionOptions, Before, Target
    from peerwatch_responder.actions.slurm.cluster import SlurmCluster


@register("slurm_start", "lets the requeued job begin at once", takes_out=False, cluster="slurm")
class SlurmStart:
    """Sets the begin of the alert's job to now, if it waits for a later one.

    Parameters
    ----------
    cluster
        Slurm.
    clock
        Unix time in seconds.
    """

    def __init__(
        self,
        _options: ActionOptions,
        cluster: SlurmCluster,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._clock = clock

    def steps(self, target: Target) -> Sequence[_Start]:
        """Return the one step there is."""
        self._cluster.check(target)
        return [_Start(self._cluster, target, self._clock)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Do nothing; otherwise as ``Action.undo``."""
        return "a job that may begin is left to Slurm"


class _Start:
    name = "start"

    def __init__(self, cluster: SlurmCluster, target: Target, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._target = target
        self._clock = clock

    def inspect(self) -> StepState:
        job = job_of(self._cluster.commands, self._target.job_id)
        if job is None:
            return StepState("done", f"Slurm has no job {self._target.job_id!r} any more")
        if job.changes:
            raise UnknownError(f"{job.shown}: it is looked at when that has ended")
        if not job.waits or job.waits_until <= self._clock():
            return StepState("done", job.shown)
        return StepState("open", f"{job.shown} until {job.waits_until:.0f}", {"job": job.id})

    def do(self, before: Before) -> str:
        found = self.inspect()
        if found.status == "done":
            return found.text
        reply = self._cluster.commands.change(
            "update", f"JobId={found.before['job']}", "StartTime=now"
        )
        return conclude(reply, self.inspect, harmless=True)
