"""One alert on its way to a decision, and what stands against an answer to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from peerwatch_responder.alert import Alert
    from peerwatch_responder.policy.plan import Reason, Verdict
    from peerwatch_responder.policy.state import State, Surroundings
    from peerwatch_responder.settings.policy import PolicyConfig, RuleConfig


class Objection(NamedTuple):
    """Why an alert is not answered.

    Parameters
    ----------
    verdict
        ``wait``, ``refuse`` or ``ignore``.
    reason
        One of a fixed list.
    text
        The same as a sentence.
    """

    verdict: Verdict
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """All that a guard may look at.

    Parameters
    ----------
    alert, rule, key
        The alert, the rule that matches it, and the key of the answer.
    state
        What the journal says, with what was decided a moment ago about other alerts.
    surroundings
        What the cluster says.
    suspects
        Nodes of the same job that are named now, this one among them.
    settings
        Section ``policy``.
    now
        Unix seconds.
    """

    alert: Alert
    rule: RuleConfig
    key: str
    state: State
    surroundings: Surroundings
    suspects: frozenset[str]
    settings: PolicyConfig
    now: float

    @property
    def place(self) -> tuple[str, str]:
        """Cluster and node."""
        return self.alert.cluster, self.alert.node


Guard = Callable[[Case], Objection | None]
