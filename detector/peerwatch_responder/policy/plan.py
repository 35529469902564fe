"""What a decision is, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from peerwatch_responder.alert import Alert
    from peerwatch_responder.policy.state import Want

# act: do it. wait: what stands against it may pass; it is decided anew. refuse: never for this
# alert, which is written down once. ignore: nothing was to be decided.
Verdict = Literal["act", "wait", "refuse", "ignore"]

# Label values of peerwatch_response_decisions_total{reason}.
Reason = Literal[
    "rule",
    "no_rule",
    "no_node",
    "resolved",
    "answered",
    "under_way",
    "already_out",
    "answered_lately",
    "protected",
    "too_old",
    "in_future",
    "not_firing",
    "firing_unknown",
    "advice",
    "released",
    "attempts",
    "other_owner",
    "owner_unknown",
    "settling",
    "several_suspects",
    "paused",
    "breaker",
    "budget_job",
    "budget_hour",
    "budget_concurrent",
]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done about one alert.

    Parameters
    ----------
    alert
        The alert.
    verdict, reason
        What, and why; the reason is one of a fixed list.
    text
        The same as a sentence for a person, with values and limits.
    rule, actions, key
        What would be done, by which rule and under which key; empty where no rule matches.
    """

    alert: Alert
    verdict: Verdict
    reason: Reason
    text: str
    rule: str = ""
    actions: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done about all alerts.

    Parameters
    ----------
    decisions
        One for each alert, those that began first in front.
    wants
        Alerts that a rule would answer and that were not seen before; for the journal.
    trips
        Why the breaker trips now; None: it does not, or did before.
    """

    decisions: tuple[Decision, ...]
    wants: tuple[Want, ...] = ()
    trips: str | None = None
