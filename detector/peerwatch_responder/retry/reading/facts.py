"""What the scheduler says of a job that ended, beside its logs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of a job from its scheduler, or from whoever asks.

    Parameters
    ----------
    job
        What the history knows it by: attempts of one job have the same; empty: unknown.
    job_id
        The scheduler's id, as logs and metrics have it; empty: unknown.
    attempt
        Which run of it this is; empty: unknown.
    exit_code
        Of its first process that failed; None: unknown.
    state
        Slurm's, such as ``NODE_FAIL``; empty: unknown.
    reason, message
        Kubernetes', of its pod or container; empty: unknown.
    nodes
        Where it ran.
    ended
        When, in Unix seconds; None: unknown.
    source
        Who says it, for quoting, such as ``scontrol show job 4711``.
    text
        The same as a line that can be quoted; empty: nothing was said.
    notes
        What could not be learnt.
    """

    job: str = ""
    job_id: str = ""
    attempt: str = ""
    exit_code: int | None = None
    state: str = ""
    reason: str = ""
    message: str = ""
    nodes: tuple[str, ...] = ()
    ended: float | None = None
    source: str = ""
    text: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def failed(self) -> bool:
        """Whether it is known to have failed."""
        ended_well = self.state.startswith(("COMPLETED", "RUNNING", "COMPLETING"))
        return bool(self.exit_code) or bool(self.reason) or bool(self.state and not ended_well)
