"""The contract of advice: whether a job is started again, asked once, before the restart.

An alert says that a node is faulty; whether the job would do better without it is another
question, and what the job has written answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

# stop: the same job would fail again. ask: only its owner can say.
Verdict = Literal["retry", "retry_elsewhere", "retry_later", "stop", "ask"]


@dataclass(frozen=True, slots=True)
class Job:
    """The job that is about to be started again.

    Parameters
    ----------
    cluster, job_id
        As the alert names it.
    node
        The node that the alert names.
    since
        When the alert began, in Unix seconds.
    labels
        All labels of the alert.
    """

    cluster: str
    job_id: str
    node: str
    since: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Advice:
    """What an adviser says of a job.

    Parameters
    ----------
    verdict
        Whether it is started again, and how.
    reason
        One of a short list, for counting.
    text
        The same as a sentence for a person, with the line that decided.
    wait_seconds
        With ``retry_later``: how long nothing is started.
    """

    verdict: Verdict
    reason: str
    text: str = ""
    wait_seconds: float = 0.0

    @property
    def restarts(self) -> bool:
        """Whether the job is started again."""
        return self.verdict not in {"stop", "ask"}


class RetryAdvisor(Protocol):
    """Asked before each action that starts a job again."""

    def advise(self, job: Job) -> Advice:
        """Return whether the job is started again.

        Raises
        ------
        UnknownError
            If that could not be learnt: nothing is started, and it is asked again.
        """


class NoAdvisor:
    """Where nobody is asked: a job is started again, as the rule says."""

    def advise(self, job: Job) -> Advice:
        """Return that it is started again."""
        return Advice("retry", "not_asked", f"Nobody was asked about job {job.job_id!r}.")
