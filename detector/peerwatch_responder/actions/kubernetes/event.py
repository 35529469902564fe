"""Writes an event about a node, which ``kubectl describe node`` shows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from peerwatch_responder.action import ActionOptions, LaterError, StepState, register
from peerwatch_responder.actions.kubernetes.api import StatusError, UnsureError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_responder.action import Before, Target
    from peerwatch_responder.actions.kubernetes.api import Api
    from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster

# Where events about what has no namespace belong.
_PATH = "/api/v1/namespaces/default/events"


class EventOptions(ActionOptions):
    """Settings of ``kubernetes_event``."""

    reason: str = Field(
        default="FaultyNode",
        pattern=r"^[A-Za-z][A-Za-z0-9]{0,62}$",
        description="Its reason, in one word.",
    )


@dataclass(frozen=True, slots=True)
class _Event:
    api: Api
    options: EventOptions
    target: Target
    clock: Callable[[], float]
    name: str = "event"

    def inspect(self) -> StepState:
        # It is never read, which would take a right more: its name is fixed, so that a second one
        # is refused by the server.
        return StepState("open", f"an event about node {self.target.node}")

    def do(self, before: Before) -> str:
        try:
            self.api.send("create events", "POST", _PATH, self._content())
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return "It is written already."
            raise
        except UnsureError as error:
            raise LaterError(str(error)) from error
        return "201"

    def _content(self) -> dict[str, object]:
        node = self.target.node
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock()))
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"peerwatch-{self.target.key}-{self.options.reason.lower()}",
                "namespace": "default",
            },
            # Events of the kubelet have the node's name for its uid, and kubectl looks for that.
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
            "type": "Warning",
            "reason": self.options.reason,
            "message": self.target.reason,
            "source": {"component": "peerwatch-responder"},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }


@register(
    "kubernetes_event",
    "writes an event about a node",
    takes_out=False,
    options=EventOptions,
    cluster="kubernetes",
)
class KubernetesEvent:
    """Writes one event, under a name that no second one can have.

    Parameters
    ----------
    options
        Its settings.
    cluster
        The cluster.
    clock
        Unix time in seconds.
    """

    def __init__(
        self,
        options: EventOptions,
        cluster: KubernetesCluster,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = cluster.api
        self._options = options
        self._clock = clock

    def steps(self, target: Target) -> Sequence[_Event]:
        """Return the one step there is."""
        return [_Event(self._api, self._options, target, self._clock)]

    def undo(self, target: Target, step: str, before: Before) -> str:
        """Leave the event: it tells what happened."""
        return "an event stays: it tells what happened"
