"""What was answered so far, and what is known of the cluster now: all that a decision rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_responder.alert import Alert
    from peerwatch_responder.cluster import Owner

# planned: written down, nothing done yet. acting: some steps may have been done. stuck: it ended
# between two steps, and a person is needed. passed: its node passed its checks and was left in use.
# undone: its marks are gone again.
Status = Literal["planned", "acting", "done", "failed", "stuck", "passed", "refused", "undone"]
UNDER_WAY: frozenset[Status] = frozenset({"planned", "acting"})
# The node is out because of it, wholly or in part.
OUT: frozenset[Status] = frozenset({"planned", "acting", "done", "stuck"})


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step of a response that has begun.

    Parameters
    ----------
    action, step
        Their names.
    is_done
        Whether it is known to be done; it may be otherwise.
    before
        What must be known to undo it.
    text
        What was found or answered, for a person.
    at
        When it was last written of, in Unix seconds.
    """

    action: str
    step: str
    is_done: bool
    before: Mapping[str, Any] = field(default_factory=dict)
    text: str = field(default="", compare=False)
    at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to one alert.

    Parameters
    ----------
    key
        ``Alert.key`` of the alert and the actions.
    cluster, node, job_id
        Whom it is about.
    actions
        What it does, in its order.
    status
        How far it is.
    planned_at
        When it was decided, in Unix seconds.
    fingerprint, starts_at
        The alert's.
    ended_at
        When it reached a status that it keeps; None: it has not.
    returned_at
        When the node was put back to work, by whomever; None: it is out, or was never taken out.
    steps
        Those that have begun, in their order.
    text
        Why it ended as it did.
    labels
        The alert's.
    takes_out
        Whether its node is out of work after it.
    why
        The decision as a sentence.
    passes
        How often in a row its node has passed its checks since it is out.
    tried_at
        When it was last checked for that, in Unix seconds; None: it was not.
    undone_from
        Of one that is undone the status that it had ended with; None: it is not undone.
    """

    key: str
    cluster: str
    node: str
    job_id: str
    actions: tuple[str, ...]
    status: Status
    planned_at: float
    fingerprint: str
    starts_at: float
    ended_at: float | None = None
    returned_at: float | None = None
    steps: tuple[DoneStep, ...] = ()
    text: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    takes_out: bool = True
    why: str = ""
    passes: int = 0
    tried_at: float | None = None
    undone_from: Status | None = None

    @property
    def is_out(self) -> bool:
        """Whether its node is out of work because of it."""
        return self.takes_out and self.status in OUT and self.returned_at is None


@dataclass(frozen=True, slots=True)
class Want:
    """An alert that a rule would have answered, whether it was or not.

    Parameters
    ----------
    key
        ``Alert.key`` of the alert and the actions.
    cluster, node
        Whom it names.
    at
        When it was first seen, in Unix seconds.
    """

    key: str
    cluster: str
    node: str
    at: float


# Without slots: a storm of alerts asks the same of all responses, once for each alert.
@dataclass(frozen=True)
class State:
    """What the journal says.

    Parameters
    ----------
    responses
        By their key.
    alerts
        Those that a rule matches, as last heard of, by fingerprint.
    paused
        Why a person has paused everything; None: nobody has.
    tripped_at
        When the breaker stopped everything; None: it has not, or a person has reset it.
    wants
        The alerts that a rule would have answered, of the breaker's time and longer.
    released
        When a person last removed our mark from a node, by cluster and node.
    """

    responses: Mapping[str, Response] = field(default_factory=dict)
    alerts: Mapping[str, Alert] = field(default_factory=dict)
    paused: str | None = None
    tripped_at: float | None = None
    wants: tuple[Want, ...] = ()
    released: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @cached_property
    def of_node(self) -> Mapping[tuple[str, str], Sequence[Response]]:
        """The responses by cluster and node, in their order."""
        found: dict[tuple[str, str], list[Response]] = {}
        for each in self.responses.values():
            found.setdefault((each.cluster, each.node), []).append(each)
        return found

    @cached_property
    def nodes_out(self) -> frozenset[tuple[str, str]]:
        """Cluster and node of those that are out of work because of a response."""
        return frozenset(
            (each.cluster, each.node) for each in self.responses.values() if each.is_out
        )

    @cached_property
    def newest_first(self) -> Sequence[Response]:
        """The responses by when they were decided."""
        return sorted(self.responses.values(), key=lambda each: -each.planned_at)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the cluster and Prometheus say now; what could not be learnt is unknown, never assumed.

    Parameters
    ----------
    firing
        Fingerprints of the alerts that fire now, by Prometheus or Alertmanager; None: unknown.
    nodes
        How many nodes the cluster has; None: unknown.
    owners
        Who has taken a node out, by cluster and node; one that is absent here is unknown.
    protected
        Nodes that are never touched: control plane, our own; by cluster and node.
    take_out
        Names of the actions after which a node is out of work; None: all.
    advice
        All that root diagnoses advise for a node of a job, by cluster, job and node, where they are
        sure or likely.
    """

    firing: frozenset[str] | None = None
    nodes: int | None = None
    owners: Mapping[tuple[str, str], Owner] = field(default_factory=dict)
    protected: frozenset[tuple[str, str]] = frozenset()
    take_out: frozenset[str] | None = None
    advice: Mapping[tuple[str, str, str], frozenset[str]] = field(default_factory=dict)
