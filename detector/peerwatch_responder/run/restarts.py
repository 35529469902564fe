"""Asks whether a job is started again: the one place where advice comes into a response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.advice import Advice, Job, NoAdvisor

if TYPE_CHECKING:
    from collections.abc import Collection

    from peerwatch_responder.action import Target
    from peerwatch_responder.advice import RetryAdvisor


class Restarts:
    """Which actions start a job again, and who is asked before.

    Parameters
    ----------
    actions
        Names of the actions that do.
    advisor
        Whom to ask; None: nobody.
    """

    def __init__(self, actions: Collection[str] = (), advisor: RetryAdvisor | None = None) -> None:
        self._actions = frozenset(actions)
        self._advisor = advisor or NoAdvisor()

    def advice(self, action: str, target: Target) -> Advice | None:
        """Return what is advised about the target's job; None: the action starts none.

        Raises
        ------
        UnknownError
            If it could not be learnt.
        """
        if action not in self._actions or not target.job_id:
            return None
        job = Job(target.cluster, target.job_id, target.node, target.starts_at, target.labels)
        return self._advisor.advise(job)
