"""What sources hand over, whatever they are: runs of jobs, times out of service, evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

State = Literal[
    "completed",
    "failed",
    "timeout",
    "out_of_memory",
    "cancelled",
    "preempted",
    "requeued",
    "node_fail",
    "running",
    "other",
]

# Ends after which the scheduler itself starts the job again.
CONTINUED: frozenset[State] = frozenset({"preempted", "requeued", "node_fail"})


class Window(NamedTuple):
    """A span of time that books are kept of, in Unix seconds."""

    start: float
    end: float

    @property
    def days(self) -> float:
        """How long it is."""
        return (self.end - self.start) / 86_400


@dataclass(frozen=True, slots=True)
class JobRow:
    """One run of a job as its scheduler wrote it down; times are Unix seconds.

    Parameters
    ----------
    job_id
        The scheduler's own number of the job (Slurm: ``JobIDRaw``; Kubernetes: as the exporters
        name it, ``<namespace>/<job>``).
    shown_id
        The number that users see; for a task of an array ``<array>_<task>``.
    order
        Rises from run to run of one job (Slurm: ``DBIndex``).
    user, name, work_dir
        Of the job; by them a resubmission is known (Kubernetes: its namespace, and the name and
        kind of its controller).
    state
        How the run ended.
    submit, eligible, start, end
        When; None where the scheduler does not know, or not yet.
    suspended_seconds
        Time for which it was suspended.
    nodes
        Where it ran.
    gpus
        How many GPUs it held; 0: none, or not known.
    comment
        What its owner wrote; ``ckpt=60`` is the checkpoint interval in minutes.
    excluded
        Nodes on which its owner did not want it.
    continues
        Whether its scheduler says that it goes on with the run before it.
    """

    job_id: str
    shown_id: str
    order: int
    user: str
    name: str
    work_dir: str
    state: State
    submit: float
    eligible: float | None
    start: float | None
    end: float | None
    suspended_seconds: float = 0.0
    nodes: tuple[str, ...] = ()
    gpus: int = 0
    comment: str = ""
    excluded: tuple[str, ...] = ()
    continues: bool = False


class OutOfService(NamedTuple):
    """A time for which a node was out of service, in Unix seconds; ``end`` None: it still is."""

    node: str
    start: float
    end: float | None
    reason: str


class Jobs(NamedTuple):
    """What a scheduler wrote down of a window.

    Parameters
    ----------
    rows
        Runs of jobs.
    out
        Times out of service.
    missing
        What of it could not be read, a sentence each.
    """

    rows: Sequence[JobRow]
    out: Sequence[OutOfService]
    missing: tuple[str, ...] = ()


EvidenceKind = Literal["check", "xid", "diagnosis", "finding", "log"]


class Evidence(NamedTuple):
    """Something that was observed on a node.

    Parameters
    ----------
    kind
        Who observed it.
    node
        Where; empty: of the job as a whole.
    name
        The check, the XID's number, the class of a diagnosis, the metric of a finding or the
        signature of a log.
    severity
        ``high`` or ``low``; of a finding and a diagnosis its confidence is so.
    start, end
        First and last time at which it stood, in Unix seconds.
    job_id
        The job that it is about; empty: any on the node.
    """

    kind: EvidenceKind
    node: str
    name: str
    severity: Literal["high", "low"]
    start: float
    end: float
    job_id: str = ""
